"""The pod of a host: its command, what it mounts and asks for, and where it may run. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from holdfast.core.hosts.engine import KNOWN, Submission
from holdfast.engines.kubernetes.options import Wishes
from holdfast.errors import EXIT_SAVED_START_ME_AGAIN, ConfigurationError

Object = dict[str, Any]
# Labels of a pod, by its Job, and by its JobSet (0.9 or later).
JOB_UID, JOB_SET_UID = "batch.kubernetes.io/controller-uid", "jobset.sigs.k8s.io/jobset-uid"
GRACE_S, SLACK_S = 30, 30  # of `holdfast run`, and until a pod is killed beyond it
SAVE_SHARE = 1.5  # of a measured save, for its bad day
COPIES, COPIES_ALONE = 5, 3  # of a host's share in memory: three of its own, two of a neighbour's
GIB = 2**30
SECRETS = "/secret"
_UNEXPANDED = re.compile(r"\$(?=[$(])")  # Kubernetes reads $(NAME) and $$ in a command
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - the pod's
CONTAINER = "holdfast"
MOST_CHIPS = 4  # of a TPU host with several hosts


def pod_of(submission: Submission, wishes: Wishes) -> Object:
    """What each pod is; raises ConfigurationError for what can never start."""
    volumes = list(_volumes(submission, wishes))
    container: Object = {
        "name": CONTAINER,
        "image": wishes.image,
        "command": _command(submission, wishes),
        "env": [{"name": "HOLDFAST_SCRATCH", "value": "/scratch"}, *_told_by_the_pod(wishes)],
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


def _told_by_the_pod(wishes: Wishes) -> list[Object]:
    """Who it is: an indexed pod's host name is not its own, and notices are about its node.

    By its JobSet, or Job, it knows whether the run has ended under that: then it was made again
    too late. Each TPU slice is a Job of its own.
    """
    fields = {
        "POD_NAME": "metadata.name",
        "POD_NAMESPACE": "metadata.namespace",
        "NODE_NAME": "spec.nodeName",
        "JOB_UID": f"metadata.labels['{JOB_UID}']",
    }
    if wishes.kind == "jobset":
        fields["JOBSET_UID"] = f"metadata.labels['{JOB_SET_UID}']"
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
