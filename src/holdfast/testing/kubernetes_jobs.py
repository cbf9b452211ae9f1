"""What a cluster's controllers make of Jobs and JobSets, and what becomes of their pods: emulated.

From the Kubernetes documents on Jobs (indexes, pod failure policies), on API-initiated eviction and
on garbage collection, and from JobSet's own. It is no scheduler and no kubelet: a test says when a
pod has a node (`schedule`), runs (`start`) and ends (`end`).

What is not emulated: `podReplacementPolicy`, back-off delays between pods, exclusive placement.
"""

from __future__ import annotations

import copy
import itertools
import ssl
from datetime import UTC, datetime
from typing import Any

from holdfast.testing.kubernetes import NAMESPACE, NODE, KubernetesEmulator

Object = dict[str, Any]
JOB_SETS = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{NAMESPACE}/jobsets"
JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
EVENTS = f"/api/v1/namespaces/{NAMESPACE}/events"
INDEX = "batch.kubernetes.io/job-completion-index"
JOB_SET = "jobset.sigs.k8s.io"  # what its labels begin with


class KubernetesJobs(KubernetesEmulator):
    """The controllers of a namespace, without the API by which they are told of Jobs."""

    def __init__(self, *, tls: ssl.SSLContext | None = None) -> None:
        self.quota: dict[str, str] = {}  # by the plural of what may not be made: the words
        self.is_suspending = False  # a queue: what is made waits until it is admitted
        self._names = itertools.count(1)
        super().__init__(tls=tls)

    # --- what it is told --------------------------------------------------------------------

    def verb_queue(self) -> None:
        """What is made from now on is suspended at once, as Kueue's webhook has it."""
        self.is_suspending = True

    def verb_admit(self, name: str) -> None:
        """Start a Job or JobSet that is suspended."""
        for folder in (JOBS, JOB_SETS):
            if found := self.objects.get(f"{folder}/{name}"):
                found["spec"]["suspend"] = False
                self._changed(folder, found)
                self._work(folder, found)
                for job in self._owned(found, JOBS):
                    job["spec"]["suspend"] = False
                    self._work(JOBS, job)

    def verb_schedule(self, pod: str, node: str = NODE) -> None:
        """The pod has a node."""
        found = self._pod(pod)
        found["spec"]["nodeName"] = node
        self._condition(found, "PodScheduled", "True")
        self._changed(PODS, found)

    def verb_unschedulable(self, pod: str, words: str) -> None:
        """No node is right for it."""
        found = self._pod(pod)
        self._condition(found, "PodScheduled", "False", "Unschedulable", words)
        self._changed(PODS, found)

    def verb_wait(self, pod: str, reason: str, words: str = "") -> None:
        """Its container does not start for that reason, such as ErrImagePull."""
        self._state(pod, {"waiting": {"reason": reason, "message": words}}, "Pending")

    def verb_start(self, pod: str) -> None:
        """Its container runs."""
        self._state(pod, {"running": {"startedAt": self.now()}}, "Running")

    def verb_end(self, pod: str = "", code: str = "0", reason: str = "", words: str = "") -> None:
        """Its container has ended; what its Job makes of that is done. Without a pod: watches."""
        if not pod:
            super().verb_end()
            return
        ended = {"exitCode": int(code), "reason": reason or ("Completed", "Error")[code != "0"]}
        ended["message"] = words
        found = self._state(pod, {"terminated": ended}, ("Succeeded", "Failed")[code != "0"])
        if "deletionTimestamp" in found["metadata"]:
            self._changed(PODS, self.objects.pop(f"{PODS}/{pod}"), "DELETED")
        self._ended(found, int(code))

    def verb_event(self, pod: str, reason: str, at_s: str, path: str = "") -> None:
        """Something about a pod, that many seconds from now; `path`: which of its containers."""
        found = self._pod(pod)
        about = {"kind": "Pod", "name": pod, "uid": found["metadata"]["uid"], "fieldPath": path}
        self._tell(about, reason, "", float(at_s))

    def verb_evict(self, pod: str, reason: str = "EvictionByEvictionAPI") -> None:
        """Its time runs: its processes get SIGTERM, and the grace period begins."""
        found = self._pod(pod)
        self._condition(found, "DisruptionTarget", "True", reason, "it is in the way")
        grace_s = float(found["spec"].get("terminationGracePeriodSeconds", 30))
        found["metadata"]["deletionTimestamp"] = self.now(grace_s)
        self._changed(PODS, found)

    # --- what it does -----------------------------------------------------------------------

    def now(self, later_s: float = 0.0) -> str:
        """In whole seconds, as its objects have it."""
        moment = datetime.fromtimestamp(int(self.calendar() + later_s), UTC)
        return moment.strftime("%Y-%m-%dT%H:%M:%SZ")

    def pods(self) -> list[Object]:
        """Those of Jobs, as they are now, by their names."""
        with self.changed:
            found = (one for path, one in sorted(self.objects.items()) if _is_in(path, PODS))
            return [copy.deepcopy(one) for one in found if "ownerReferences" in one["metadata"]]

    def _pod(self, name: str) -> Object:
        if f"{PODS}/{name}" not in self.objects:
            raise ValueError(f"there is no pod {name}")
        return self.objects[f"{PODS}/{name}"]

    def _add(self, folder: str, made: Object, owner: Object | None = None) -> None:
        metadata = made["metadata"]
        metadata |= {
            "namespace": NAMESPACE,
            "uid": f"uid-{next(self._names)}",
            "creationTimestamp": self.now(),
        }
        if owner is not None:
            of = {"kind": owner["kind"], "name": owner["metadata"]["name"]}
            metadata["ownerReferences"] = [of | {"uid": owner["metadata"]["uid"]}]
        self.objects[f"{folder}/{metadata['name']}"] = made
        self._changed(folder, made, "ADDED")

    def _remove(self, path: str) -> None:
        """It and what it owns; of pods that run, the processes have their grace period first."""
        found = self.objects.pop(path)
        self._changed(path.rpartition("/")[0], found, "DELETED")
        for job in self._owned(found, JOBS):
            self._remove(f"{JOBS}/{job['metadata']['name']}")
        for pod in self._owned(found, PODS):
            if pod["status"]["phase"] == "Running":
                grace_s = float(pod["spec"].get("terminationGracePeriodSeconds", 30))
                pod["metadata"]["deletionTimestamp"] = self.now(grace_s)
                self._changed(PODS, pod)
            else:
                self._remove(f"{PODS}/{pod['metadata']['name']}")

    def _changed(self, folder: str, found: Object, kind: str = "MODIFIED") -> None:
        self._modified(folder, found, kind)
        self.changed.notify_all()

    def _work(self, folder: str, found: Object) -> None:
        """What its controller makes of it: Jobs of a JobSet, pods of a Job."""
        if folder not in (JOB_SETS, JOBS):
            return
        spec = found["spec"]
        found.setdefault("status", {})
        name, waits = found["metadata"]["name"], spec.get("suspend", False)
        if folder == JOBS and not waits:
            found["status"]["startTime"] = self.now()
            for index in range(spec.get("completions", 1)):
                self._make_pod(found, index)
        for replicated in spec.get("replicatedJobs", ()) if not self._owned(found, JOBS) else ():
            for number in range(replicated.get("replicas", 1)):
                template = copy.deepcopy(replicated["template"])
                marks = {f"{JOB_SET}/job-index": str(number)}
                marks[f"{JOB_SET}/jobset-uid"] = found["metadata"]["uid"]
                metadata = {"name": f"{name}-{replicated['name']}-{number}", "labels": marks}
                job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata}
                made = {**job, "spec": {**template["spec"], "suspend": waits}, "status": {}}
                self._add(JOBS, made, found)
                self._work(JOBS, made)

    def _owned(self, owner: Object, folder: str) -> list[Object]:
        uid = owner["metadata"]["uid"]
        found = (one for path, one in self.objects.items() if _is_in(path, folder))
        return [
            one
            for one in found
            if any(of["uid"] == uid for of in one["metadata"].get("ownerReferences", ()))
        ]

    def _make_pod(self, job: Object, index: int) -> None:
        name = job["metadata"]["name"]
        if "pods" in self.quota:
            about = {"kind": "Job", "name": name, "uid": job["metadata"]["uid"]}
            self._tell(about, "FailedCreate", f"Error creating: {self.quota['pods']}", 0.0)
            return
        template = copy.deepcopy(job["spec"]["template"])
        marks = {INDEX: str(index), "batch.kubernetes.io/job-name": name}
        marks["batch.kubernetes.io/controller-uid"] = job["metadata"]["uid"]
        marks |= job["metadata"].get("labels", {})
        metadata = template.get("metadata", {})
        metadata = {
            "name": f"{name}-{index}-{next(self._names):05d}",
            "labels": metadata.get("labels", {}) | marks,
            "annotations": metadata.get("annotations", {}) | {INDEX: str(index)},
        }
        for container in template["spec"]["containers"]:
            told = {"name": "JOB_COMPLETION_INDEX", "value": str(index)}
            container["env"] = [*container.get("env", ()), told]
        pod = {"kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        self._add(PODS, {**pod, "status": {"phase": "Pending", "conditions": []}}, job)

    def _ended(self, pod: Object, code: int) -> None:
        """As the Job's pod failure policy says; an index that is done stays so."""
        path = f"{JOBS}/{pod['metadata']['labels']['batch.kubernetes.io/job-name']}"
        job = self.objects.get(path)
        owners = {of["uid"] for of in pod["metadata"]["ownerReferences"]}
        if job is None or job["metadata"]["uid"] not in owners:
            return
        status, index = job["status"], int(pod["metadata"]["annotations"][INDEX])
        if code == 0:
            status["succeeded"] = status.get("succeeded", 0) + 1
            if status["succeeded"] == job["spec"]["completions"]:
                self._over(job, "Complete", "")
            return
        action = _action(job["spec"], pod, code)
        failed = status["failed"] = status.get("failed", 0) + (action != "Ignore")
        if action == "FailJob":
            self._over(job, "Failed", "PodFailurePolicy")
        elif action == "FailIndex":
            self._over(job, "Failed", "MaxFailedIndexesExceeded")
        elif failed > job["spec"].get("backoffLimit", 6):
            self._over(job, "Failed", "BackoffLimitExceeded")
        else:
            self._make_pod(job, index)

    def _over(self, job: Object, kind: str, reason: str) -> None:
        """The Job is over, and so is its JobSet, unless a rule has it made again."""
        self._condition(job, kind, "True", reason)
        self._changed(JOBS, job)
        owner = next(iter(job["metadata"].get("ownerReferences", ())), None)
        if owner is None or (job_set := self.objects.get(f"{JOB_SETS}/{owner['name']}")) is None:
            return
        for rule in job_set["spec"].get("failurePolicy", {}).get("rules", ()):
            reasons = rule.get("onJobFailureReasons")
            if kind == "Failed" and (not reasons or reason in reasons):
                if rule["action"] != "FailJobSet":
                    self._again(job_set)
                    return
                break
        if kind == "Complete" and not all(map(_is_complete, self._owned(job_set, JOBS))):
            return
        self._condition(job_set, "Failed" if kind == "Failed" else "Completed", "True", reason)
        self._changed(JOB_SETS, job_set)

    def _again(self, job_set: Object) -> None:
        for job in self._owned(job_set, JOBS):
            self._remove(f"{JOBS}/{job['metadata']['name']}")
        job_set["status"]["restarts"] = job_set["status"].get("restarts", 0) + 1
        self._work(JOB_SETS, job_set)

    def _state(self, pod: str, state: Object, phase: str) -> Object:
        found = self._pod(pod)
        name = found["spec"]["containers"][0]["name"]
        found["status"] |= {"phase": phase, "containerStatuses": [{"name": name, "state": state}]}
        self._changed(PODS, found)
        return found

    def _condition(
        self, found: Object, kind: str, status: str, reason: str = "", words: str = ""
    ) -> None:
        conditions = found["status"].setdefault("conditions", [])
        conditions[:] = [one for one in conditions if one["type"] != kind]
        told = {"type": kind, "status": status, "reason": reason, "message": words}
        conditions.append({**told, "lastTransitionTime": self.now()})

    def _tell(self, about: Object, reason: str, words: str, later_s: float) -> None:
        event: Object = {
            "metadata": {"name": f"event-{next(self._names)}"},
            "involvedObject": about,
        }
        event |= {"reason": reason, "message": words, "lastTimestamp": self.now(later_s)}
        self._add(EVENTS, event)


def _is_in(path: str, folder: str) -> bool:
    return path.rpartition("/")[0] == folder


def _is_complete(job: Object) -> bool:
    conditions = job["status"].get("conditions", ())
    return any(one["type"] == "Complete" and one["status"] == "True" for one in conditions)


def _action(spec: Object, pod: Object, code: int) -> str:
    """Of the first rule that fits."""
    conditions = {(one["type"], one["status"]) for one in pod["status"]["conditions"]}
    for rule in spec.get("podFailurePolicy", {}).get("rules", ()):
        wanted = {(one["type"], one["status"]) for one in rule.get("onPodConditions", ())}
        codes = rule.get("onExitCodes")
        if wanted & conditions or (
            codes and (code in codes["values"]) == (codes["operator"] == "In")
        ):
            return str(rule["action"])
    return "Count"
