"""A run's hosts as a JobSet, or as an Indexed Job alone: plain data for Kubernetes. Pure.

    objects(submission, wishes)     what is applied, in that order; the last has the pods
    shape(submission, wishes)       how many Jobs, and how many pods each has

What each end of a pod means is told to Kubernetes here. `holdfast run` starts ranks again itself,
so a pod ends only where the whole run leaves (75, 69), fails (1, 78), or the pod is taken.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from holdfast.core.hosts.engine import NO_RUN, Submission
from holdfast.engines.kubernetes.extras import access, prepull
from holdfast.engines.kubernetes.options import LABEL, Wishes
from holdfast.engines.kubernetes.pod_template import CONTAINER, MOST_CHIPS, Object, pod_of
from holdfast.errors import (
    EXIT_CONFIGURATION,
    EXIT_SAVED_START_ME_AGAIN,
    EXIT_UNAVAILABLE,
    EXIT_USER_FAILURE,
    ConfigurationError,
)

RUN_ID = "holdfast/run-id"
NAME = "app.kubernetes.io/instance"
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
NODE_POOL = "cloud.google.com/gke-nodepool"
LONGEST_NAME = 63
POD_HASH = 6  # characters that a Job adds to its pods' names, beside their index


class PodShape(NamedTuple):
    """`jobs` Jobs of `pods` pods each: one for all hosts, or one a TPU slice."""

    jobs: int
    pods: int


def objects(submission: Submission, wishes: Wishes) -> list[Object]:
    """All that is to be there; raises ConfigurationError for what can never start."""
    _refuse_what_means_nothing(wishes)
    name = object_name(submission, wishes)
    labels = labels_of(submission, name)
    account = wishes.account or (CONTAINER if wishes.with_access else "")
    pod = pod_of(submission, replace(wishes, account=account))
    found = []
    if wishes.with_access:
        found += access(account, wishes.namespace or "default")
    if wishes.with_prepull:
        keys: tuple[str, ...] = ("nodeSelector", "tolerations")
        placed = {key: pod[key] for key in keys if key in pod}
        found.append(prepull(_metadata(f"{name}-prepull", wishes, labels), wishes.image, placed))
    job = _job(submission, wishes, labels, pod)
    is_alone = wishes.kind == "job"
    found.append(
        {
            "apiVersion": "batch/v1" if is_alone else "jobset.x-k8s.io/v1alpha2",
            "kind": "Job" if is_alone else "JobSet",
            "metadata": _metadata(name, wishes, labels | _queue(wishes), _annotations(wishes)),
            "spec": job if is_alone else _job_set(submission, wishes, job),
        }
    )
    return found


def _refuse_what_means_nothing(wishes: Wishes) -> None:
    """Options that need another one: without it they would be passed over."""
    is_tpu = wishes.accelerator.startswith("tpu")
    for is_wrong, words in (
        (
            is_tpu and not wishes.topology,
            f"-o accelerator={wishes.accelerator} needs the slice's -o topology, such as 2x2x4",
        ),
        (
            wishes.accelerator and not is_tpu and wishes.chips is None,
            f"-o accelerator={wishes.accelerator} gives a pod none: say how many with -o chips",
        ),
        (wishes.resource and wishes.chips is None, "-o resource says of what -o chips are"),
        (
            wishes.exclusive and wishes.kind == "job",
            f"-o exclusive={wishes.exclusive} is a JobSet's: say -o kind=jobset",
        ),
        (wishes.max_run_s and not wishes.queue, "-o max-run is for a queue of Kueue: say -o queue"),
        (
            wishes.account and wishes.with_access and "." in wishes.account,
            f"-o account={wishes.account} is no name for a new account: letters, digits and -",
        ),
    ):
        if is_wrong:
            raise ConfigurationError(words)


def object_name(submission: Submission, wishes: Wishes) -> str:
    """The JobSet's or Job's name: the run's, if Kubernetes can have it."""
    name = wishes.name or submission.run
    jobs, pods = shape(submission, wishes)
    inner = "" if wishes.kind == "job" else f"-{_job_name(wishes)}-{jobs - 1}"
    longest = LONGEST_NAME - POD_HASH - len(f"{inner}-{pods - 1}")
    if LABEL.fullmatch(name) and name[0].isalpha() and len(name) <= longest:
        return name
    kept = "".join(one if one.isascii() and one.isalnum() else "-" for one in name.lower())
    near = f"run-{kept}"[:longest].strip("-") if not kept[:1].isalpha() else kept[:longest]
    raise ConfigurationError(
        f"Kubernetes takes no object {name!r}: small letters, digits and -, at most {longest} of "
        f"them, and a letter first; say -o object={near.strip('-')}"
    )


def labels_of(submission: Submission, name: str) -> dict[str, str]:
    """By which everything of a run is found."""
    known = {} if submission.run_id == NO_RUN else {RUN_ID: submission.run_id}
    return {"app.kubernetes.io/managed-by": CONTAINER, NAME: name} | known


def shape(submission: Submission, wishes: Wishes) -> PodShape:
    """One Job with all hosts, or one for each TPU slice."""
    if not wishes.topology:
        return PodShape(1, submission.all_hosts)
    chips = math.prod(wishes.topology)
    each = wishes.chips or min(chips, MOST_CHIPS)
    grid = "x".join(map(str, wishes.topology))
    if chips % each:
        raise ConfigurationError(f"a slice of {grid} is not made of hosts with {each} chips each")
    pods = chips // each
    if submission.hosts % pods:
        raise ConfigurationError(
            f"--hosts {submission.hosts} are no whole slices: one of {grid} has {pods} hosts"
        )
    if submission.spares and pods > 1:
        raise ConfigurationError(
            f"--spares {submission.spares}: a spare host cannot take the place of one host of a "
            "TPU slice; leave them out"
        )
    return PodShape(submission.all_hosts // pods, pods)


def restart_of(submission: Submission, wishes: Wishes) -> str:
    """What is made again after a disruption."""
    jobs, _ = shape(submission, wishes)
    if wishes.kind == "job" and (jobs > 1 or wishes.restart == "all"):
        what = f"{jobs} slices are as many Jobs" if jobs > 1 else "-o restart=all is a JobSet's"
        raise ConfigurationError(f"{what}: say -o kind=jobset")
    return wishes.restart or ("all" if jobs > 1 else "pods")


# --- the parts ----------------------------------------------------------------------------------


def _metadata(
    name: str,
    wishes: Wishes,
    labels: Mapping[str, str],
    annotations: Mapping[str, str] | None = None,
) -> Object:
    found: Object = {"name": name}
    if wishes.namespace:
        found["namespace"] = wishes.namespace
    found["labels"] = dict(labels)
    return found | ({"annotations": dict(annotations)} if annotations else {})


def _queue(wishes: Wishes) -> dict[str, str]:
    return {"kueue.x-k8s.io/queue-name": wishes.queue} if wishes.queue else {}


def _annotations(wishes: Wishes) -> dict[str, str]:
    found = {}
    exclusive = wishes.exclusive or (NODE_POOL if wishes.topology else "")
    if exclusive not in ("", "off") and wishes.kind == "jobset":
        found[EXCLUSIVE] = exclusive
    if wishes.max_run_s is not None:
        found["provreq.kueue.x-k8s.io/maxRunDurationSeconds"] = str(wishes.max_run_s)
    return found


def _job_name(wishes: Wishes) -> str:
    return "slice" if wishes.topology else "hosts"


def _job_set(submission: Submission, wishes: Wishes, job: Object) -> Object:
    """A Job fails for a bug, and the set with it; where all is made again, for disruptions too.

    Its failure policy tells the two by the Job's reason.
    """
    jobs, _ = shape(submission, wishes)
    found: Object = {
        "replicatedJobs": [{"name": _job_name(wishes), "replicas": jobs, "template": {"spec": job}}]
    }
    if restart_of(submission, wishes) != "all":
        return found
    disruption = {
        "name": "disruption",
        "action": "RestartJobSetAndIgnoreMaxRestarts",
        "onJobFailureReasons": ["PodFailurePolicy"],
    }
    bug = {"name": "bug", "action": "FailJobSet"}
    return {"failurePolicy": {"maxRestarts": 0, "rules": [disruption, bug]}} | found


def _job(submission: Submission, wishes: Wishes, labels: Mapping[str, str], pod: Object) -> Object:
    _, pods = shape(submission, wishes)
    # Neither autoscaler may empty a node that trains to save a node.
    stays = {
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
        "karpenter.sh/do-not-disrupt": "true",
    }
    return {
        "completionMode": "Indexed",
        "completions": pods,
        "parallelism": pods,
        **_limits(submission, wishes),
        "podFailurePolicy": {"rules": _failure_rules(restart_of(submission, wishes))},
        "template": {"metadata": {"labels": dict(labels), "annotations": stays}, "spec": pod},
    }


def _limits(submission: Submission, wishes: Wishes) -> Object:
    """How often pods may end in other ways.

    Where a disruption fails the Job, a bug must fail it for another reason: as an index that has
    failed (Kubernetes 1.29). JobSet could tell both by the failure's message, since 0.10 only, and
    by words that are Kubernetes's own.
    """
    if restart_of(submission, wishes) != "all":
        return {"backoffLimit": wishes.retries}
    return {"backoffLimitPerIndex": wishes.retries, "maxFailedIndexes": 0}


def _failure_rules(restart: str) -> list[Object]:
    def exits(action: str, *codes: int) -> Object:
        values = {"containerName": CONTAINER, "operator": "In", "values": sorted(codes)}
        return {"action": action, "onExitCodes": values}

    disrupted = [{"type": "DisruptionTarget", "status": "True"}]
    return [
        {"action": "FailJob" if restart == "all" else "Ignore", "onPodConditions": disrupted},
        exits("Ignore", EXIT_SAVED_START_ME_AGAIN),
        exits("Count", EXIT_UNAVAILABLE),
        exits(
            "FailIndex" if restart == "all" else "FailJob", EXIT_USER_FAILURE, EXIT_CONFIGURATION
        ),
    ]
