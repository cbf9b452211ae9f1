"""The pods of an emulated cluster as processes of this machine: a scheduler and a kubelet."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

from processes import House, Process

from holdfast.testing.kubernetes_cluster import KubernetesClusterEmulator


class Kubelet:
    """`look()` does what is due; a test calls it until what it waits for is so."""

    def __init__(self, cluster: KubernetesClusterEmulator, house: House, **more: object) -> None:
        self._cluster, self._house, self._more = cluster, house, more
        self.processes: dict[str, Process] = {}
        self._ended: set[str] = set()
        self._told: set[str] = set()
        self._seen = 0  # the cluster's version
        self.lost: set[str] = set()  # pods whose ends their nodes cannot tell any more

    def look(self) -> bool:
        """Start what waits, tell what is to go, and report what has ended."""
        seen, self._seen = self._seen, self._cluster.version
        for pod in self._cluster.pods() if self._seen != seen else ():
            name = pod["metadata"]["name"]
            if name not in self.processes:
                self._start(name, pod)
            elif pod["metadata"].get("deletionTimestamp") and name not in self._told:
                self._told.add(name)
                self.processes[name].send(signal.SIGTERM)
        for name, process in self.processes.items():
            if name not in self._ended and (code := process.code()) is not None:
                self._ended.add(name)
                code = 137 if name in self.lost else code
                self._cluster.do("end", name, str(code if code >= 0 else 128 - code))
        return False

    def until(self, predicate: Any) -> None:
        try:
            self._house.eventually(lambda: self.look() or predicate())
        except AssertionError as error:
            said = "\n".join(f"{name}:\n{one.text}" for name, one in self.processes.items())
            raise AssertionError(f"{error}\n{said}") from error

    def newest(self, index: int) -> Process:
        """The process of the pod that was made last for that index."""
        marks = [
            (pod["metadata"]["name"].rpartition("-")[2], pod["metadata"]["name"])
            for pod in self._cluster.pods()
            if pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] == str(index)
        ]
        return self.processes[max(marks)[1]]

    def _of_slice(self, pod: dict[str, Any]) -> dict[str, str]:
        """What GKE tells a pod of a TPU slice."""
        labels = pod["metadata"]["labels"]
        if "cloud.google.com/gke-tpu-topology" not in pod["spec"].get("nodeSelector", ()):
            return {}
        return {
            "MEGASCALE_SLICE_ID": labels["jobset.sigs.k8s.io/job-index"],
            "TPU_WORKER_ID": labels["batch.kubernetes.io/job-completion-index"],
            "TPU_WORKER_HOSTNAMES": "one-host-a-slice",
        }

    def _start(self, name: str, pod: dict[str, Any]) -> None:
        self._cluster.do("schedule", name)
        (container,) = pod["spec"]["containers"]
        program, *words = container["command"]
        assert program == "holdfast"
        fields = {
            "metadata.name": name,
            "metadata.namespace": pod["metadata"]["namespace"],
            "spec.nodeName": "node-a",
            **{f"metadata.labels['{key}']": one for key, one in pod["metadata"]["labels"].items()},
        }
        env = {
            one["name"]: one["value"]
            if "value" in one
            else fields.get(one["valueFrom"]["fieldRef"]["fieldPath"], "")
            for one in container["env"]
            if one["name"] != "HOLDFAST_SCRATCH"  # all of them are on one machine
        }
        env |= {"KUBERNETES_SERVICE_HOST": "10.0.0.1"} | self._of_slice(pod)
        mounts = [one["mountPath"] for one in container["volumeMounts"]]
        assert str(Path(self._house.store)) in mounts
        command = (sys.executable, "-m", "holdfast.cli.main", *words)
        self.processes[name] = self._house.start(*command, **env, **self._more)
        self._cluster.do("start", name)
