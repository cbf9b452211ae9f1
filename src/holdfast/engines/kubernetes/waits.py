"""What a pod's start has waited for, by the cluster's own stamps. Pure.

    queue       the Job or the pod is made → the pod has a node (Kueue's queue, the scheduler)
    provision   an autoscaler begins to make a node for it → it has one
    pull        its image is pulled
    boot        → its container has started

Stamps are whole seconds, so what is shorter is not told.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.core.durations import SECOND_NS
from holdfast.core.hosts.engine import EngineWait
from holdfast.engines.kubernetes.pod_template import CONTAINER
from holdfast.engines.kubernetes.standing import (
    Object,
    event_ns,
    inner,
    items,
    moment_ns,
)

FIRST_PODS_NS = 60 * SECOND_NS  # after a Job's start: later ones are made for those that have left
SCALES_UP = ("TriggeredScaleUp", "Nominated")  # the cluster autoscaler's, and Karpenter's


def waits_of(pod: Object, events: Iterable[Object], job: Object | None) -> tuple[EngineWait, ...]:
    """`events`: the pod's; `job`: its Job, None: not known."""
    status = next(
        (one for one in items(inner(pod, "status"), "containerStatuses")
         if one.get("name") == CONTAINER), {})  # fmt: skip
    started = moment_ns(inner(inner(status, "state"), "running").get("startedAt"))
    before = moment_ns(inner(inner(status, "lastState"), "terminated").get("finishedAt"))
    if before is not None:  # started again within its pod
        return tuple(_spans([("boot", before, started)]))
    created = moment_ns(inner(pod, "metadata").get("creationTimestamp"))
    scheduled = next(
        (
            moment_ns(one.get("lastTransitionTime"))
            for one in items(inner(pod, "status"), "conditions")
            if one.get("type") == "PodScheduled" and one.get("status") == "True"
        ),
        None,
    )
    told = [(ns, one) for one in events if (ns := event_ns(one)) is not None]
    scaled = [ns for ns, one in told if one.get("reason") in SCALES_UP]
    made = min(scaled, default=scheduled)
    pull = [ns for ns, one in told if one.get("reason") == "Pulling" and _is_ours(one)]
    pulled = [ns for ns, one in told if one.get("reason") == "Pulled" and _is_ours(one)]
    pull_start, pull_end = min(pull, default=None), max(pulled, default=None)
    if pull_start is None:  # it was there
        pull_end = scheduled
    return tuple(
        _spans(
            [
                ("queue", _asked(created, job), made),
                ("provision", made, scheduled),
                ("pull", pull_start, pull_end),
                ("boot", pull_end, started),
            ]
        )
    )


def _asked(created: int | None, job: Object | None) -> int | None:
    """The moment at which the Job was made, for its first pods; else that of the pod."""
    if job is None or created is None:
        return created
    began = moment_ns(inner(job, "status").get("startTime"))
    made = moment_ns(inner(job, "metadata").get("creationTimestamp"))
    is_first = began is not None and created - began < FIRST_PODS_NS
    return min(made, created) if is_first and made is not None else created


def _is_ours(event: Object) -> bool:
    """About the run's container, and not one beside it."""
    path = str(inner(event, "involvedObject").get("fieldPath") or "")
    return path in ("", f"spec.containers{{{CONTAINER}}}")


def _spans(found: Iterable[tuple[str, int | None, int | None]]) -> Iterable[EngineWait]:
    for kind, start, end in found:
        if start is not None and end is not None and end > start:
            yield EngineWait(kind, start, end)
