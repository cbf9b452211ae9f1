"""Cloud TPU's words for states and health, as ours. A word that is not in here is UNKNOWN.

From the API's own reference (Node.State, Node.Health, QueuedResourceState.State and
UpcomingMaintenance); versions v2 and v2alpha1 share their words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from holdfast.core.hosts.fleet import (
    Maintenance,
    Resource,
    ResourceState,
    Slice,
    SliceHealth,
    SliceState,
)
from holdfast.provision.cloud_tpu.errors import failure_of
from holdfast.provision.protocol import RUN_LABEL

_STATES = {
    "CREATING": SliceState.CREATING,
    "READY": SliceState.READY,
    "RESTARTING": SliceState.REPAIRING,
    "REIMAGING": SliceState.REPAIRING,
    "REPAIRING": SliceState.REPAIRING,
    "STARTING": SliceState.REPAIRING,
    "DELETING": SliceState.DELETING,
    "STOPPING": SliceState.STOPPED,
    "STOPPED": SliceState.STOPPED,
    "PREEMPTED": SliceState.PREEMPTED,
    "TERMINATED": SliceState.PREEMPTED,  # by maintenance, or at the end of a preemptible's day
}
_HEALTH = {
    "HEALTH_UNSPECIFIED": SliceHealth.UNTOLD,
    "HEALTHY": SliceHealth.HEALTHY,
    "TIMEOUT": SliceHealth.SILENT,
    "UNHEALTHY_TENSORFLOW": SliceHealth.UNHEALTHY,
    "UNHEALTHY_MAINTENANCE": SliceHealth.MAINTENANCE,
}
_QUEUED = {
    "CREATING": ResourceState.WAITING,  # the request is being written down
    "ACCEPTED": ResourceState.WAITING,
    "WAITING_FOR_RESOURCES": ResourceState.WAITING,
    "PROVISIONING": ResourceState.CREATING,
    "ACTIVE": ResourceState.UP,
    "FAILED": ResourceState.FAILED,
    "SUSPENDING": ResourceState.DELETING,  # its slices are being taken: SUSPENDED follows
    "SUSPENDED": ResourceState.SUSPENDED,
    "DELETING": ResourceState.DELETING,
}
_FRACTION = re.compile(r"\.\d+")
WORDS_CHARS = 200
_MAINTAINED = re.compile(
    r"maintenance event at\s+(\d{4}-\d\d-\d\d[T ][\d:.]+(?:Z|[+-]\d\d:?\d\d)?)", re.IGNORECASE
)


def last_part(name: str) -> str:
    """`projects/P/locations/Z/nodes/NAME` → `NAME`."""
    return name.rpartition("/")[2]


def slice_of(node: Any) -> Slice:
    """A node, of either version."""
    return Slice(
        name=last_part(node.name),
        state=_STATES.get(_word(node, "state"), SliceState.UNKNOWN),
        health=_HEALTH.get(_word(node, "health"), SliceHealth.UNHEALTHY),
        words=line(node.health_description),
        maintenance=_maintenance(getattr(node, "upcoming_maintenance", None)),
        symptoms=tuple(_symptom(one) for one in node.symptoms),
        autocheckpoint=getattr(node, "autocheckpoint_enabled", None),
        maintained_unix_ns=_maintained(node.health_description),
        addresses=tuple(
            (line(one.ip_address), line(one.access_config.external_ip if one.access_config else ""))
            for one in node.network_endpoints
        ),
    )


def resource_of_node(node: Any) -> Resource:
    """A node that stands alone."""
    one = slice_of(node)
    states = {
        SliceState.CREATING: ResourceState.CREATING,
        SliceState.DELETING: ResourceState.DELETING,
    }
    return Resource(
        name=one.name,
        state=states.get(one.state, ResourceState.UP),
        owner=node.labels.get(RUN_LABEL, ""),
        slices=(one,),
        accelerator=node.accelerator_type,
    )


def resource_of_queued(queued: Any, nodes: Iterable[Any]) -> Resource:
    """A queued resource and those of its nodes that are there."""
    state = _QUEUED.get(_word(queued.state, "state"), ResourceState.UNKNOWN)
    specs = list(queued.tpu.node_spec)
    error = queued.state.failed_data.error
    owners = {spec.node.labels.get(RUN_LABEL, "") for spec in specs}
    return Resource(
        name=last_part(queued.name),
        state=state,
        owner=owners.pop() if len(owners) == 1 else "",  # of two owners it is nobody's
        slices=tuple(sorted(map(slice_of, nodes), key=lambda one: one.name)),
        slices_wanted=sum(map(_count, specs)),
        words=line(error.message),
        accelerator=specs[0].node.accelerator_type if specs else "",
        failure=failure_of(error.code, error.message) if state is ResourceState.FAILED else None,
    )


def _count(spec: Any) -> int:
    """How many nodes a specification stands for: the field has two names, in the two versions."""
    many = getattr(spec, "multi_node_params", None) or getattr(spec, "multislice_params", None)
    return int(many.node_count) if many else 1


def _word(message: Any, field: str) -> str:
    """An enum's word; its number where the library is older than the word.

    Not as the library's own wrapper does it, which warns of such a number.
    """
    raw = type(message).pb(message)
    number = getattr(raw, field)
    known = raw.DESCRIPTOR.fields_by_name[field].enum_type.values_by_number.get(number)
    return str(number) if known is None else str(known.name)


def _symptom(symptom: Any) -> str:
    where = f" on worker {symptom.worker_id}" if symptom.worker_id else ""
    return line(f"{_word(symptom, 'symptom_type').lower().replace('_', ' ')}{where}")


def _maintenance(window: Any) -> Maintenance | None:
    """The window, if there is one: an empty message says that there is none."""
    if not window:
        return None
    return Maintenance(
        start_unix_ns=_unix_ns(window.window_start_time),
        end_unix_ns=_unix_ns(window.window_end_time),
        is_ongoing=_word(window, "maintenance_status") == "ONGOING",
    )


def _maintained(description: str) -> int | None:
    """The stamp in "The TPU had a maintenance event at 2026-11-27T02:03:04.5Z"."""
    found = _MAINTAINED.search(description)
    return None if found is None else _unix_ns(found[1])


def _unix_ns(text: str) -> int | None:
    """A date as RFC 3339 has it, to the second; None for what is none."""
    try:
        at = datetime.fromisoformat(_FRACTION.sub("", text))
    except ValueError:
        return None
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()) * 10**9


def line(text: str) -> str:
    """One printable line of bounded length."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= WORDS_CHARS else f"{line[:WORDS_CHARS]}…"
