"""How a JobSet or a Job stands, and each of its pods, from what the cluster says of them. Pure.

The objects are plain data, as the API gives them: whatever is missing in one is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from holdfast.core.durations import SECOND_NS
from holdfast.core.hosts.engine import EngineHost, HostStage
from holdfast.core.visible import clean
from holdfast.engines.kubernetes.pod_template import CONTAINER
from holdfast.engines.protocol import OrderStanding
from holdfast.errors import (
    EXIT_CONFIGURATION,
    EXIT_SAVED_START_ME_AGAIN,
    EXIT_UNAVAILABLE,
    EXIT_USER_FAILURE,
)

Object = Mapping[str, Any]
INDEX = "batch.kubernetes.io/job-completion-index"
JOB_INDEX = "jobset.sigs.k8s.io/job-index"
MOST_CHARS = 200
EXITS = {
    EXIT_USER_FAILURE: "the command has failed: `holdfast report` and its log say why",
    EXIT_UNAVAILABLE: "the run's store is not there (exit code 69)",
    EXIT_SAVED_START_ME_AGAIN: "it has saved and left (exit code 75)",
    EXIT_CONFIGURATION: "invalid configuration (exit code 78): its log says what",
    126: "its image cannot run `holdfast` (exit code 126)",
    127: "its image has no `holdfast` (exit code 127): install holdfast-ml in it",
    137: "it was killed (exit code 137)",
}
NOT_FOUND = "executable file not found"


def standing_of(
    top: Object | None,
    pods: Iterable[Object],
    events: Iterable[Object] = (),
    workloads: Iterable[Object] = (),
) -> OrderStanding:
    """`top`: the JobSet or Job, None: it is deleted. `events`: of Jobs; `workloads`: Kueue's."""
    if top is None:
        return OrderStanding("deleted", (), is_over=True)
    hosts = tuple(host_of(one, _pods_of_a_job(top)) for one in newest(pods))
    conditions = {str(one.get("type")): one for one in items(inner(top, "status"), "conditions")}
    for kind in ("Failed", "FailureTarget", "Completed", "Complete"):
        found = conditions.get(kind)
        if found is not None and found.get("status") == "True":
            words = _said(found) if kind.startswith("Fail") else ""
            state = "failed" if kind.startswith("Fail") else "done"
            since = moment_ns(found.get("lastTransitionTime"))
            return OrderStanding(f"{state}{words}", hosts, kind != "FailureTarget", since)
    if inner(top, "metadata").get("deletionTimestamp"):
        since = moment_ns(inner(top, "metadata").get("deletionTimestamp"))
        return OrderStanding("is being deleted", hosts, False, since)
    if inner(top, "spec").get("suspend") is True:
        return _queued(top, hosts, workloads)
    return _at_work(top, list(newest(pods)), hosts, events)


def _queued(
    top: Object, hosts: tuple[EngineHost, ...], workloads: Iterable[Object]
) -> OrderStanding:
    """Kueue starts it when there is room; who has suspended it else is not known."""
    uid = inner(top, "metadata").get("uid")
    for workload in workloads:
        owners = items(inner(workload, "metadata"), "ownerReferences")
        if not any(one.get("uid") == uid for one in owners):
            continue
        for condition in items(inner(workload, "status"), "conditions"):
            if condition.get("type") == "QuotaReserved" and condition.get("status") != "True":
                since = moment_ns(condition.get("lastTransitionTime"))
                return OrderStanding(f"queued by Kueue{_said(condition)}", hosts, False, since)
        return OrderStanding("queued by Kueue: its checks are not done", hosts)
    since = moment_ns(inner(top, "metadata").get("creationTimestamp"))
    return OrderStanding("suspended: a queue starts it, or nobody does", hosts, False, since)


def _at_work(
    top: Object, pods: Sequence[Object], hosts: tuple[EngineHost, ...], events: Iterable[Object]
) -> OrderStanding:
    wanted = _pods_of_a_job(top) * _jobs(top)
    ready = sum(one.stage in (HostStage.READY, HostStage.DRAINING) for one in hosts)
    state = f"{ready} of {wanted} pods run"
    if not pods:
        refused = [one for one in events if one.get("reason") == "FailedCreate"]
        if refused:
            last = max(refused, key=lambda one: event_ns(one) or 0)
            words = _short(last.get("message"))
            return OrderStanding(f"no pod can be made: {words}", hosts, False, event_ns(last))
    waiting = [pair for pair in zip(pods, hosts, strict=True) if pair[1].stage is HostStage.COMING]
    told = [(pod, host) for pod, host in waiting if host.reason]
    if not told:
        return OrderStanding(state, hosts)
    since = [ns for pod, _ in waiting if (ns := _waits_since_ns(pod)) is not None]
    return OrderStanding(
        f"{state}; {told[0][1].reason}", hosts, False, min(since) if since else None
    )


def host_of(pod: Object, pods_of_a_job: int) -> EngineHost:
    """One pod."""
    metadata, status = inner(pod, "metadata"), inner(pod, "status")
    stage, reason = _stage(pod, status)
    deadline = moment_ns(metadata.get("deletionTimestamp"))
    return EngineHost(
        clean(str(metadata.get("name"))),
        stage,
        index_of(metadata, pods_of_a_job),
        clean(reason),
        deadline if stage is HostStage.DRAINING else None,
    )


def _stage(pod: Object, status: Object) -> tuple[HostStage, str]:
    phase = status.get("phase")
    disrupted = _condition(status, "DisruptionTarget", "True")
    taken = "" if disrupted is None else f"{disrupted.get('reason')}{_said(disrupted, '')}"
    if phase == "Succeeded":
        return HostStage.GONE, "done"
    if phase == "Failed":
        return HostStage.GONE, taken or _end(status)
    if disrupted is not None or inner(pod, "metadata").get("deletionTimestamp"):
        return HostStage.DRAINING, taken or "the pod is deleted"
    state = _container(status)
    if "running" in state:
        return HostStage.READY, ""
    if "terminated" in state:
        return HostStage.GONE, _end(status)
    unscheduled = _condition(status, "PodScheduled", "False")
    if unscheduled is not None:
        return HostStage.COMING, f"{unscheduled.get('reason')}{_said(unscheduled, '')}"
    waiting = inner(state, "waiting")
    reason, message = str(waiting.get("reason") or ""), _short(waiting.get("message"))
    if NOT_FOUND in message:
        return HostStage.COMING, f"its image has no `holdfast`: {message}"
    if reason in ("", "ContainerCreating", "PodInitializing"):
        return HostStage.COMING, ""
    return HostStage.COMING, f"{reason}: {message}" if message else reason


def _end(status: Object) -> str:
    """Why its container has ended."""
    ended = inner(_container(status), "terminated")
    code, reason, message = ended.get("exitCode"), ended.get("reason"), _short(ended.get("message"))
    if NOT_FOUND in message:
        return f"its image has no `holdfast`: {message}; install holdfast-ml in it"
    if reason == "OOMKilled":
        return "it needed more memory than its limit, in which /dev/shm counts"
    if reason in ("StartError", "ContainerCannotRun"):
        return f"{reason}: {message}"
    if isinstance(code, int):
        return EXITS.get(code, f"exit code {code}")
    return _short(status.get("message")) or str(status.get("reason") or "it has failed")


def _container(status: Object) -> Object:
    """The state of the run's own container."""
    for one in items(status, "containerStatuses"):
        if one.get("name") == CONTAINER:
            return inner(one, "state")
    return {}


def _waits_since_ns(pod: Object) -> int | None:
    unscheduled = _condition(inner(pod, "status"), "PodScheduled", "False")
    found = None if unscheduled is None else moment_ns(unscheduled.get("lastTransitionTime"))
    return found or moment_ns(inner(pod, "metadata").get("creationTimestamp"))


def newest(pods: Iterable[Object]) -> list[Object]:
    """Of each index the pod that was made last: those before it have been made again."""
    found: dict[tuple[str, str], Object] = {}
    for pod in pods:
        metadata = inner(pod, "metadata")
        labels = _marks(metadata)
        index = str(labels.get(INDEX) or metadata.get("name"))
        key = (str(labels.get(JOB_INDEX, "0")), index)
        if key not in found or _made(found[key]) < _made(pod):
            found[key] = pod
    return sorted(found.values(), key=_place)


def _made(pod: Object) -> tuple[int, bool]:
    """Of two of one second the one that is not over is newer."""
    is_alive = inner(pod, "status").get("phase") not in ("Failed", "Succeeded")
    return moment_ns(inner(pod, "metadata").get("creationTimestamp")) or 0, is_alive


def _place(pod: Object) -> tuple[int, str]:
    metadata = inner(pod, "metadata")
    index = index_of(metadata, 1 << 20)
    return (1 << 60 if index is None else index), str(metadata.get("name"))


def index_of(metadata: Object, pods_of_a_job: int) -> int | None:
    """A pod's number in the run: Job by Job, and in each by its index."""
    marks = _marks(metadata)
    job, index = str(marks.get(JOB_INDEX, "0")), str(marks.get(INDEX, ""))
    if not (job.isdecimal() and index.isdecimal()):
        return None
    return int(job) * pods_of_a_job + int(index)


def _marks(metadata: Object) -> dict[str, Any]:
    """Before Kubernetes 1.28 the index was an annotation alone."""
    return {**inner(metadata, "annotations"), **inner(metadata, "labels")}


def _template(top: Object) -> tuple[int, Object]:
    """How many Jobs, and the spec of each."""
    spec = inner(top, "spec")
    for one in items(spec, "replicatedJobs"):
        replicas = one.get("replicas", 1)
        inside = inner(inner(one, "template"), "spec")
        return replicas if isinstance(replicas, int) else 1, inside
    return 1, spec


def _jobs(top: Object) -> int:
    return _template(top)[0]


def _pods_of_a_job(top: Object) -> int:
    found = _template(top)[1].get("completions")
    return found if isinstance(found, int) else 1


# --- reading plain data -------------------------------------------------------------------------


def _condition(status: Object, kind: str, value: str) -> Object | None:
    for one in items(status, "conditions"):
        if one.get("type") == kind and one.get("status") == value:
            return one
    return None


def _said(condition: Object, reason: str | None = None) -> str:
    """Its words behind a colon, with its reason if it says nothing else."""
    words = _short(condition.get("message"))
    if not words and reason is None:
        words = str(condition.get("reason") or "")
    return f": {words}" if words else ""


def _short(text: object) -> str:
    words = clean(" ".join(str(text or "").split()))
    return words if len(words) <= MOST_CHARS else f"{words[:MOST_CHARS]}…"


def inner(value: Object, name: str) -> Object:
    """An object in it; empty where none is."""
    found = value.get(name)
    return found if isinstance(found, Mapping) else {}


def items(value: Object, name: str) -> list[Object]:
    """The objects of a list in it."""
    found = value.get(name)
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def moment_ns(text: object) -> int | None:
    """A moment as Kubernetes writes it (RFC 3339), in unix nanoseconds; None: it is none."""
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    if found.tzinfo is None:
        return None
    return int(found.timestamp()) * SECOND_NS + found.microsecond * 1000


def event_ns(event: Object) -> int | None:
    """When an event was last seen."""
    told = (event.get(name) for name in ("lastTimestamp", "eventTime", "firstTimestamp"))
    return next((ns for one in told if (ns := moment_ns(one)) is not None), None)
