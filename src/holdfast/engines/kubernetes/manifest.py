"""A run's hosts as a JobSet, or as an Indexed Job alone: plain data for Kubernetes. Pure.

    objects(submission, wishes)     what is applied, in that order; the last has the pods
    shape(submission, wishes)       how many Jobs, and how many pods each has

What each end of a pod means is told to Kubernetes here. `holdfast run` starts ranks again itself,
so a pod ends only where the whole run leaves (75, 69), fails (1, 78), or the pod is taken.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from holdfast.core.hosts.engine import KNOWN, NO_RUN, Submission
from holdfast.engines.kubernetes.extras import access, prepull
from holdfast.engines.kubernetes.options import LABEL, Wishes
from holdfast.errors import (
    EXIT_CONFIGURATION,
    EXIT_SAVED_START_ME_AGAIN,
    EXIT_UNAVAILABLE,
    EXIT_USER_FAILURE,
    ConfigurationError,
)

Object = dict[str, Any]
RUN_ID = "holdfast/run-id"
NAME = "app.kubernetes.io/instance"
CONTAINER = "holdfast"
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
NODE_POOL = "cloud.google.com/gke-nodepool"
LONGEST_NAME = 63
JOB_UID = "batch.kubernetes.io/controller-uid"  # a label that the Job gives its pods
POD_HASH = 6  # characters that a Job adds to its pods' names, beside their index
GRACE_S, SLACK_S = 30, 30  # of `holdfast run`, and until a pod is killed beyond it
SAVE_SHARE = 1.5  # of a measured save, for its bad day
COPIES, COPIES_ALONE = 5, 3  # of a host's share in memory: three of its own, two of a neighbour's
GIB = 2**30
MOST_CHIPS = 4  # of a TPU host with several hosts
SECRETS = "/secret"
_UNEXPANDED = re.compile(r"\$(?=[$(])")  # Kubernetes reads $(NAME) and $$ in a command
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - the pod's


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
    pod = _pod(submission, replace(wishes, account=account))
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


def grace_s(submission: Submission) -> int:
    """From SIGTERM until the run has left: what was said, else by what a save took, else usual."""
    flags = dict(zip(submission.flags[::2], submission.flags[1::2], strict=False))
    if text := flags.get("--grace"):
        try:
            return math.ceil(float(text))
        except (ValueError, OverflowError):
            raise ConfigurationError(f"--grace {text!r} is no number of seconds") from None
    saved_s = math.ceil(SAVE_SHARE * (submission.save_ns or 0) / 1e9)
    return max(GRACE_S, saved_s + 10)


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


def _pod(submission: Submission, wishes: Wishes) -> Object:
    volumes = list(_volumes(submission, wishes))
    container: Object = {
        "name": CONTAINER,
        "image": wishes.image,
        "command": _command(submission, wishes),
        "env": [{"name": "HOLDFAST_SCRATCH", "value": "/scratch"}, *_told_by_the_pod()],
    }
    if wishes.env_from:
        container["envFrom"] = [{"secretRef": {"name": wishes.env_from}}]
    if resources := _resources(wishes):
        container["resources"] = resources
    container["volumeMounts"] = [mount for mount, _ in volumes]
    if wishes.restart == "in-place":
        codes = {"operator": "In", "values": [EXIT_SAVED_START_ME_AGAIN]}
        container["restartPolicy"] = "Never"
        container["restartPolicyRules"] = [{"action": "Restart", "exitCodes": codes}]
    found: Object = {
        "restartPolicy": "Never",  # a pod failure policy needs it
        "terminationGracePeriodSeconds": grace_s(submission) + SLACK_S,
    }
    found |= {"serviceAccountName": wishes.account} if wishes.account else {}
    found |= {"nodeSelector": selector} if (selector := _selector(wishes)) else {}
    if tolerations := _tolerations(wishes):
        found["tolerations"] = tolerations
    return found | {"containers": [container], "volumes": [volume for _, volume in volumes]}


def _command(submission: Submission, wishes: Wishes) -> list[str]:
    flags = list(submission.flags)
    if "--grace" not in flags and (seconds := grace_s(submission)) != GRACE_S:
        flags += ["--grace", str(seconds)]
    if wishes.secret:
        flags += ["--secret-file", f"{SECRETS}/run"]
    words = replace(submission, flags=tuple(flags)).run_words()
    said = words[2 : words.index("--")]
    options = [word for word in said if word != KNOWN]
    pairs = zip(options[::2], options[1::2], strict=True)
    joined = [f"{key}={value}" for key, value in pairs] + ([KNOWN] if KNOWN in said else [])
    found = [*words[:2], *joined, "--stop-is-final", "--", *submission.command]
    for word in found:
        if not _is_text(word):
            raise ConfigurationError(
                f"{word!r} in the command is no valid UTF-8, which is all that Kubernetes takes"
            )
    return [_UNEXPANDED.sub("$$", word) for word in found]


def _is_text(word: str) -> bool:
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def _told_by_the_pod() -> list[Object]:
    """Who it is: an indexed pod's host name is not its own, and notices are about its node.

    By its Job it knows whether the run has ended under that: then it was made again too late.
    """
    fields = {
        "POD_NAME": "metadata.name",
        "POD_NAMESPACE": "metadata.namespace",
        "NODE_NAME": "spec.nodeName",
        "JOB_UID": f"metadata.labels['{JOB_UID}']",
    }
    return [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for name, path in fields.items()
    ]


def _volumes(submission: Submission, wishes: Wishes) -> Iterable[tuple[Object, Object]]:
    """Each mount with its volume."""
    if "://" not in submission.store:
        if not wishes.claim:
            raise ConfigurationError(
                f"the store {submission.store} is a folder, and no claim for it was named: say "
                "-o claim=NAME, of a volume that all pods can mount, or use a bucket (--store)"
            )
        claim = {"persistentVolumeClaim": {"claimName": wishes.claim}}
        yield {"name": "store", "mountPath": submission.store}, {"name": "store"} | claim
    memory = {"medium": "Memory"}
    memory |= {"sizeLimit": size} if (size := _shm(submission, wishes)) else {}
    yield {"name": "memory", "mountPath": SHARED_MEMORY}, {"name": "memory", "emptyDir": memory}
    yield {"name": "scratch", "mountPath": "/scratch"}, {"name": "scratch", "emptyDir": {}}
    if wishes.secret:
        mount = {"name": "secret", "mountPath": SECRETS, "readOnly": True}
        source = {"secretName": wishes.secret, "defaultMode": 0o400}
        yield mount, {"name": "secret", "secret": source}


def _shm(submission: Submission, wishes: Wishes) -> str:
    """As large as said; as the copies of a host's share of a checkpoint; half of the memory."""
    if wishes.shm:
        if wishes.memory and bytes_of(wishes.shm) > bytes_of(wishes.memory):
            raise ConfigurationError(
                f"-o shm={wishes.shm} is more than -o memory={wishes.memory}, in which it counts"
            )
        return wishes.shm
    limit = math.floor(bytes_of(wishes.memory)) if wishes.memory else None
    if submission.checkpoint_bytes:
        share = math.ceil(submission.checkpoint_bytes / submission.hosts)
        copies = COPIES if submission.hosts > 1 else COPIES_ALONE
        wanted = math.ceil(copies * share / GIB)
        if limit is None or wanted * GIB <= limit:
            return f"{wanted}Gi"
    if limit is None:
        return ""
    return str(limit // 2) if limit % (2 * GIB) else f"{limit // (2 * GIB)}Gi"


def bytes_of(quantity: str) -> float:
    """Of a quantity of memory."""
    units = {"": 1.0, "m": 0.001, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
    units |= {f"{unit}i": 1024.0**n for n, unit in enumerate("KMGTP", start=1)}
    number = quantity.rstrip("KMGTPikm")
    return float(number) * units[quantity[len(number) :]]


def _resources(wishes: Wishes) -> Object:
    is_tpu = wishes.accelerator.startswith("tpu") or bool(wishes.topology)
    chips = wishes.chips
    if chips is None and is_tpu:
        chips = min(math.prod(wishes.topology), MOST_CHIPS)
    found = {"cpu": wishes.cpu, "memory": wishes.memory}
    if chips is not None:
        name = wishes.resource or ("google.com/tpu" if is_tpu else "nvidia.com/gpu")
        found[name] = str(chips)
    found = {name: value for name, value in found.items() if value}
    return {"requests": dict(found), "limits": dict(found)} if found else {}


def _selector(wishes: Wishes) -> dict[str, str]:
    google = "cloud.google.com"
    found = dict(wishes.selector)
    if wishes.accelerator.startswith("tpu"):
        found[f"{google}/gke-tpu-accelerator"] = wishes.accelerator
    elif wishes.accelerator:
        found[f"{google}/gke-accelerator"] = wishes.accelerator
    if wishes.topology:
        found[f"{google}/gke-tpu-topology"] = "x".join(map(str, wishes.topology))
    if wishes.flex_start:
        found[f"{google}/gke-flex-start"] = "true"
    if wishes.image_streaming:
        found[f"{google}/gke-image-streaming"] = "true"
    if wishes.boot_disk:
        disk, project = wishes.boot_disk
        key = f"{google}.node-restriction.kubernetes.io/gke-secondary-boot-disk-{disk}"
        found[key] = f"CONTAINER_IMAGE_CACHE.{project}"
    return found


def _tolerations(wishes: Wishes) -> list[Object]:
    keys = list(wishes.tolerate)
    if wishes.flex_start and wishes.queue:
        keys.append("cloud.google.com/gke-queued")
    if name := next((one for one in _resources(wishes).get("limits", ()) if "/" in one), ""):
        keys.append(name)  # nodes with accelerators are tainted by their resource's name
    return [{"key": key, "operator": "Exists"} for key in dict.fromkeys(keys)]
