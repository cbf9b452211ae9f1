"""The RayJob for KubeRay: its fields are those of the resource, and they fit one another.

The fields are written by hand as in `manifest_schema`: those that the manifest uses and those
beside them. Sources, read in November 2026: the resource RayJob, v1, of KubeRay 1.7.0 (up to 1.3
`rayStartParams` must be there), and what its controller refuses (validation.go).
"""

from __future__ import annotations

import copy
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast.engines.ray import OPTIONS
from holdfast.engines.ray.host import NOTICE_VARIABLE
from holdfast.engines.ray.keeper import STATUS

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
from manifest_schema import (
    CONTAINER,
    LABEL,
    LABELS,
    METADATA,
    TEXT,
    VOLUME,
    Fields,
    Flag,
    Items,
    Map,
    Text,
    Whole,
)

sys.path.pop(0)

ROOT = Path(__file__).parents[2]
MANIFEST = ROOT / "examples" / "kubernetes" / "rayjob.yaml"
LONGEST_NAME = 47
HOOK = Fields({"exec": Fields({"command": Items(TEXT, least=1)})})
RAY_CONTAINER = Fields(
    CONTAINER.needs,
    {**CONTAINER.may, "lifecycle": Fields(may={"preStop": HOOK, "postStart": HOOK})},
)
RAY_POD = Fields(
    {"containers": Items(RAY_CONTAINER, key="name", least=1)},
    {
        "restartPolicy": Text(("Always", "Never", "OnFailure")),
        "terminationGracePeriodSeconds": Whole(high=2**63 - 1),
        "volumes": Items(VOLUME, key="name"),
        "nodeSelector": LABELS,
        "serviceAccountName": TEXT,
    },
)
GROUP = Fields(
    {"template": Fields({"spec": RAY_POD}), "rayStartParams": Map(TEXT)},
    {"labels": LABELS, "resources": Map(TEXT)},
)
WORKERS = Fields(
    {**GROUP.needs, "groupName": TEXT, "minReplicas": Whole(), "maxReplicas": Whole()},
    {**GROUP.may, "replicas": Whole(), "numOfHosts": Whole(1), "idleTimeoutSeconds": Whole()},
)
RAY_CLUSTER = Fields(
    {"headGroupSpec": GROUP},
    {
        "rayVersion": TEXT,
        "enableInTreeAutoscaling": Flag(),
        "workerGroupSpecs": Items(WORKERS, key="groupName"),
    },
)
RAY_JOB = Fields(
    {"rayClusterSpec": RAY_CLUSTER},
    {
        "entrypoint": TEXT,
        "runtimeEnvYAML": TEXT,
        "submissionMode": Text(("K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode")),
        "shutdownAfterJobFinishes": Flag(),
        "ttlSecondsAfterFinished": Whole(),
        "activeDeadlineSeconds": Whole(1),
        "backoffLimit": Whole(),
        "suspend": Flag(),
    },
)
WHOLE = Fields(
    {"apiVersion": Text(("ray.io/v1",)), "kind": Text(("RayJob",)), "metadata": METADATA,
     "spec": RAY_JOB}
)  # fmt: skip


def refused(found: Any) -> list[str]:
    """A sentence for all that is wrong; of rules between fields only where all fields are right."""
    return list(WHOLE.wrong(found, "RayJob")) or list(_broken(found))


def _broken(found: Any) -> Iterator[str]:
    name, spec = found["metadata"]["name"], found["spec"]
    if len(name) > LONGEST_NAME or not (LABEL.fullmatch(name) and name[0].isalpha()):
        yield f"{name} is no name of a RayJob"
    if spec.get("ttlSecondsAfterFinished") and not spec.get("shutdownAfterJobFinishes"):
        yield "a cluster that stays has no time to live"
    cluster = spec["rayClusterSpec"]
    workers = cluster.get("workerGroupSpecs", [])
    for one in workers:
        if one["minReplicas"] > one["maxReplicas"]:
            yield f"{one['groupName']} has more at least than at most"
    for one in (cluster["headGroupSpec"], *workers):
        said = {"num-cpus", "num-gpus", "memory", "resources"} & one["rayStartParams"].keys()
        if said and one.get("resources"):
            yield "resources are said in two ways"
        known = {volume["name"] for volume in one["template"]["spec"].get("volumes", ())}
        for container in one["template"]["spec"]["containers"]:
            mounts = {mount["name"] for mount in container.get("volumeMounts", ())}
            yield from (f"{lost} is mounted, and is not there" for lost in mounts - known)


@pytest.fixture
def manifest() -> Any:
    return yaml.safe_load(MANIFEST.read_text())


def test_the_manifest_has_the_fields_of_the_resource(manifest: Any) -> None:
    assert refused(manifest) == []


def workers_of(found: Any) -> Any:
    return found["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]


PLANTED: dict[str, tuple[Callable[[Any], object], str]] = {
    "a misspelled field": (lambda job: job["spec"].update(entryPoint="x"), "entryPoint is no"),
    "a number for text": (
        lambda job: workers_of(job)["rayStartParams"].update({"num-cpus": 1}), "is no string"),
    "no least number": (lambda job: workers_of(job).pop("minReplicas"), "has no minReplicas"),
    "more at least than at most": (
        lambda job: workers_of(job).update(minReplicas=9), "more at least than at most"),
    "resources in two ways": (
        lambda job: job["spec"]["rayClusterSpec"]["headGroupSpec"].update(resources={"CPU": "0"}),
        "in two ways"),
    "a hook that does nothing": (
        lambda job: workers_of(job)["template"]["spec"]["containers"][0]["lifecycle"]["preStop"][
            "exec"].update(command=[]), "has 0 items"),
    "a volume that is not there": (
        lambda job: workers_of(job)["template"]["spec"].pop("volumes"), "shm is mounted"),
    "a name that is too long": (
        lambda job: job["metadata"].update(name="a" * 48), "is no name of a RayJob"),
    "a time to live for what stays": (
        lambda job: job["spec"].update(shutdownAfterJobFinishes=False, ttlSecondsAfterFinished=9),
        "no time to live"),
}  # fmt: skip


@pytest.mark.parametrize("what", PLANTED)
def test_one_mistake_is_refused(manifest: Any, what: str) -> None:
    plant, words = PLANTED[what]
    made = copy.deepcopy(manifest)
    plant(made)
    assert any(words in one for one in refused(made))


def entrypoint(found: Any) -> dict[str, str]:
    """The options of `holdfast submit` there: by name, those of the engine with `-o`'s own."""
    words = shlex.split(found["spec"]["entrypoint"])
    assert words[:5] == ["holdfast", "submit", "--engine", "ray", "--wait"]
    ours = words[5 : words.index("--")]
    pairs = zip(ours[::2], ours[1::2], strict=True)
    return dict(value.split("=", 1) if name == "-o" else (name, value) for name, value in pairs)


def test_the_cluster_has_a_node_for_each_host_with_what_is_reserved_there(manifest: Any) -> None:
    said, workers = entrypoint(manifest), workers_of(manifest)
    assert int(said["--hosts"]) + int(said["--spares"]) == workers["replicas"]
    assert workers["replicas"] == workers["minReplicas"] == workers["maxReplicas"]
    (container,) = workers["template"]["spec"]["containers"]
    limits = container["resources"]["limits"]
    assert (said["num_cpus"], said["gpus"]) == (limits["cpu"], limits["nvidia.com/gpu"])
    assert {"num_cpus", "gpus"} <= {one.name for one in OPTIONS}
    head = manifest["spec"]["rayClusterSpec"]["headGroupSpec"]
    assert head["rayStartParams"]["num-cpus"] == "0"


def test_its_ray_is_the_one_that_is_tested(manifest: Any) -> None:
    tested = (ROOT / "tests/engines/constraints-ray.txt").read_text()
    assert f"ray=={manifest['spec']['rayClusterSpec']['rayVersion']}\n" in tested


def test_a_pod_that_goes_tells_its_agent_and_gives_it_the_grace(manifest: Any) -> None:
    """What the hook writes is where the agent looks, and what it waits for is a keeper's."""
    pod = workers_of(manifest)["template"]["spec"]
    (container,) = pod["containers"]
    (variable,) = container["env"]
    assert variable["name"] == NOTICE_VARIABLE
    (path,) = [one[5:] for one in variable["value"].split(",") if one.startswith("file:")]
    shell, flag, script = container["lifecycle"]["preStop"]["exec"]["command"]
    assert (shell, flag) == ("sh", "-c")
    grace_s = int(entrypoint(manifest)["--grace"])
    assert script.startswith(f"echo {grace_s} >{path};")
    assert f"$(seq {grace_s})" in script
    assert pod["terminationGracePeriodSeconds"] >= grace_s + 30
    assert re.search(rf"grep -qs pid /var/tmp/holdfast-\*/ray-\*/{STATUS} ", script)
