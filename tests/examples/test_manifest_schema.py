"""The manifests for Kubernetes pass the schemas and rules of Job and JobSet; changed, they fail."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
from manifest_schema import OF_JOB, OF_JOB_SET, wrong

sys.path.pop(0)

FOLDER = Path(__file__).parents[2] / "examples" / "kubernetes"
Change = Callable[[Any], object]


def manifest(name: str) -> Any:
    return yaml.safe_load((FOLDER / name).read_text())


def job_of(found: Any) -> Any:
    """The spec of its one Job."""
    spec = found["spec"]
    return spec if found["kind"] == "Job" else spec["replicatedJobs"][0]["template"]["spec"]


@pytest.mark.parametrize("name", ["job.yaml", "jobset.yaml"])
def test_the_manifest_is_taken(name: str) -> None:
    assert wrong(manifest(name)) == []


def put(value: Any, *path: Any) -> Change:
    """That value at this place of the Job."""

    def change(job: Any) -> None:
        for key in path[:-1]:
            job = job[key]
        job[path[-1]] = value

    return change


def without(*path: Any) -> Change:
    """Nothing at this place of the Job."""

    def change(job: Any) -> None:
        for key in path[:-1]:
            job = job[key]
        del job[path[-1]]

    return change


POD = ("template", "spec")
CONTAINER = (*POD, "containers", 0)
RULES = ("podFailurePolicy", "rules")
OF_A_JOB: dict[str, tuple[Change, str]] = {
    "a misspelled field": (put(9, "completion"), "completion is no field"),
    "a field of the pod in the Job": (put("Never", "restartPolicy"), "restartPolicy is no field"),
    "a misspelled field of a pod": (put(1, *POD, "terminationGrace"), "terminationGrace is no"),
    "text for a number": (put("9", "completions"), "completions is no whole number"),
    "true for a number": (put(True, "parallelism"), "parallelism is no whole number"),
    "a number for text": (put(1, *CONTAINER, "command", 0), "command[0] is no string"),
    "a number for a value": (put(5, *CONTAINER, "env", 0, "value"), "value is no string"),
    "less than none": (put(-1, "parallelism"), "parallelism is -1"),
    "more than 32 bits": (put(2**31, "backoffLimit"), "backoffLimit is 2147483648"),
    "another mode": (put("indexed", "completionMode"), "completionMode is 'indexed'"),
    "a list for an object": (put([], *POD), "spec is no object"),
    "an object for a list": (put({}, *POD, "containers"), "containers is no list"),
    "no container": (put([], *POD, "containers"), "containers has 0 items"),
    "no name": (without(*CONTAINER, "name"), "has no name"),
    "no template": (without("template"), "has no template"),
    "a name that is none": (put("Hold_Fast", *CONTAINER, "name"), "is no name: 'Hold_Fast'"),
    "no quantity": (put("64 GB", *CONTAINER, "resources", "limits", "memory"), "no quantity"),
    "a volume twice": (
        lambda job: job["template"]["spec"]["volumes"].append({"name": "store", "emptyDir": {}}),
        "volumes has 'store' twice"),
    "one path twice": (
        put("/store", *CONTAINER, "volumeMounts", 1, "mountPath"), "has '/store' twice"),
    "an exit code twice": (put([75, 75], *RULES, 1, "onExitCodes", "values"), "has 75 twice"),
    "an exit code that is none": (put([256], *RULES, 1, "onExitCodes", "values"), "is 256"),
    "no exit code": (put([], *RULES, 1, "onExitCodes", "values"), "has 0 items"),
    "another action": (put("Restart", *RULES, 1, "action"), "action is 'Restart'"),
    "a condition that is a flag": (
        put(True, *RULES, 0, "onPodConditions", 0, "status"), "status is no string"),
    "a label with blanks": (put("l m", "template", "metadata", "labels", "a"), "no value of a"),
    "a label's key": (put("lm", "template", "metadata", "labels", "a/b/c"), "which is no key"),
    "a variable of what": (
        put({"fieldRef": {"fieldPath": "spec.node"}}, *CONTAINER, "env", 1, "valueFrom"),
        "fieldPath is 'spec.node'"),
    "restarted by what": (
        put([{"action": "Restart"}], *CONTAINER, "restartPolicyRules"), "has no exitCodes"),
    "a mode in decimal": (put(400 * 8, *POD, "volumes", 3, "secret", "defaultMode"), "is 3200"),
    "another medium": (put("memory", *POD, "volumes", 1, "emptyDir", "medium"), "medium is"),
    # The rules between fields.
    "restarted in place": (put("OnFailure", *POD, "restartPolicy"), "needs restartPolicy Never"),
    "no restart policy": (without(*POD, "restartPolicy"), "needs restartPolicy Never"),
    "two reasons": (
        put([{"type": "DisruptionTarget"}], *RULES, 1, "onPodConditions"), "and not both"),
    "no reason": (without(*RULES, 1, "onExitCodes"), "and not both"),
    "0 as a failure": (put([0, 75], *RULES, 1, "onExitCodes", "values"), "0 is no failure"),
    "out of order": (put([78, 1], *RULES, 3, "onExitCodes", "values"), "are in order"),
    "of another container": (
        put("other", *RULES, 1, "onExitCodes", "containerName"), "container that is not there"),
    "one index alone fails": (put("FailIndex", *RULES, 2, "action"), "needs backoffLimitPerIndex"),
    "without completions": (without("completions"), "needs completions"),
    "failed indexes of what": (put(0, "maxFailedIndexes"), "needs backoffLimitPerIndex"),
    "indexes of what": (
        lambda job: job.update(backoffLimitPerIndex=3, completionMode="NonIndexed"),
        "needs an Indexed Job"),
    "two values": (put("lm", *CONTAINER, "env", 1, "value"), "a variable has one value"),
    "no value": (without(*CONTAINER, "env", 0, "value"), "a variable has one value"),
    "rules without a policy": (
        put([{"action": "Restart", "exitCodes": {"operator": "In", "values": [75]}}],
            *CONTAINER, "restartPolicyRules"), "need its restartPolicy"),
    "no such volume": (put("shelf", *CONTAINER, "volumeMounts", 0, "name"), "is mounted that is"),
    "two sources": (put({}, *POD, "volumes", 0, "emptyDir"), "one source"),
    "no source": (without(*POD, "volumes", 0, "persistentVolumeClaim"), "one source"),
    "more than the limit": (
        put("65Gi", *CONTAINER, "resources", "requests", "memory"), "more is asked for"),
}  # fmt: skip


@pytest.mark.parametrize("name", ["job.yaml", "jobset.yaml"])
@pytest.mark.parametrize("what", OF_A_JOB)
def test_a_job_that_is_changed_is_refused(what: str, name: str) -> None:
    change, words = OF_A_JOB[what]
    found = manifest(name)
    change(job_of(found))
    (first, *_) = wrong(found) or ["nothing"]
    assert words in first


def again(spec: Any, **fields: Any) -> None:
    """A second job like the first."""
    spec["replicatedJobs"].append(copy.deepcopy(spec["replicatedJobs"][0]) | fields)


def in_order(spec: Any) -> None:
    again(spec, name="more", dependsOn=[{"name": "hosts", "status": "Ready"}])
    spec["startupPolicy"] = {"startupPolicyOrder": "InOrder"}


CLAIM = {"metadata": {"name": "runs", "namespace": "other"}, "spec": {}}
OF_A_JOB_SET: dict[str, tuple[Change, str]] = {
    "two orders": (in_order, "exclude each other"),
    "a claim elsewhere": (
        put([{"templates": [CLAIM]}], "volumeClaimPolicies"), "names no namespace"),
    "a claim without a name": (
        put([{"templates": [{"metadata": {}, "spec": {}}]}], "volumeClaimPolicies"), "no name"),
    "two jobs of one name": (again, "replicatedJobs has 'hosts' twice"),
    "the first waits": (
        put([{"name": "hosts", "status": "Ready"}], "replicatedJobs", 0, "dependsOn"),
        "depends on none"),
    "waits for what": (put([{"name": "a"}], "replicatedJobs", 0, "dependsOn"), "has no status"),
    "success of nobody": (
        put({"operator": "All", "targetReplicatedJobs": ["a"]}, "successPolicy"), "is not there"),
    "no operator": (put({}, "successPolicy"), "has no operator"),
    "a rule without a name": (
        put({"rules": [{"action": "FailJobSet"}]}, "failurePolicy"), "has no name"),
    "a rule's name": (
        put({"rules": [{"action": "FailJobSet", "name": "a-bug"}]}, "failurePolicy"),
        "made of letters"),
    "another reason": (
        put({"rules": [{"action": "FailJobSet", "name": "bug", "onJobFailureReasons": ["Bug"]}]},
            "failurePolicy"), "onJobFailureReasons[0] is 'Bug'"),
    "another strategy": (put({"restartStrategy": "None"}, "failurePolicy"), "restartStrategy is"),
    "a misspelled field": (put(1, "replicas"), "JobSet.spec.replicas is no field"),
    "less than no job": (put(-1, "replicatedJobs", 0, "replicas"), "replicas is -1"),
    "a long name": (put("h" * 55, "replicatedJobs", 0, "name"), "is no name for its pods"),
    "a name in capitals": (put("Hosts", "replicatedJobs", 0, "name"), "is no name for its pods"),
    "a job without a template": (without("replicatedJobs", 0, "template"), "has no template"),
}  # fmt: skip


@pytest.mark.parametrize("what", OF_A_JOB_SET)
def test_a_job_set_that_is_changed_is_refused(what: str) -> None:
    change, words = OF_A_JOB_SET[what]
    found = manifest("jobset.yaml")
    change(found["spec"])
    (first, *_) = wrong(found) or ["nothing"]
    assert words in first


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (put("batch/v1beta1", "apiVersion"), "apiVersion is"),
        (put("JobSets", "kind"), "its kind is neither"),
        (put({}, "metadata"), "has no name"),
        (put("9lm", "metadata", "name"), "begin with a letter"),
        (without("spec"), "has no spec"),
        (put({}, "status"), "status is no field"),
    ],
)
def test_what_is_around_it_counts_too(change: Change, words: str) -> None:
    found = manifest("jobset.yaml")
    change(found)
    assert any(words in one for one in wrong(found))


def test_what_is_allowed_beside_is_taken() -> None:
    found = manifest("jobset.yaml")
    again(found["spec"], name="more", dependsOn=[{"name": "hosts", "status": "Complete"}])
    found["spec"] |= {
        "successPolicy": {"operator": "Any", "targetReplicatedJobs": ["more"]},
        "failurePolicy": {"maxRestarts": 3, "restartStrategy": "Recreate"},
        "startupPolicy": {"startupPolicyOrder": "AnyOrder"},
        "suspend": True,
    }
    job_of(found)["template"]["spec"]["nodeSelector"] = {"kind": "big"}
    assert wrong(found) == []


def test_every_rule_is_broken_by_some_change() -> None:
    broken = set()
    for changes, part in ((OF_A_JOB, job_of), (OF_A_JOB_SET, lambda found: found["spec"])):
        for change, _ in changes.values():
            found = manifest("jobset.yaml")
            change(part(found))
            broken.update(wrong(found))
    assert {rule.words for rule in (*OF_JOB, *OF_JOB_SET)} <= broken
