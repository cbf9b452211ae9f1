"""A run's machines as their service describes them, and what is the matter with them. Pure.

A *resource* is what is created and deleted as one: a node, or a queued resource with one or more
slices. `diagnose` gives it one condition, the gravest of its slices'. What is not understood counts
as gravest of all, since nothing may be done about it: nobody deletes what he does not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from holdfast.core.durations import SECOND_NS
from holdfast.core.exits import MACHINE_MAINTENANCE, MACHINE_PREEMPTED

MINUTE_NS = 60 * SECOND_NS
HOUR_NS = 60 * MINUTE_NS


class SliceState(StrEnum):
    """What a slice's service says that it does."""

    CREATING = "creating"
    READY = "ready"
    REPAIRING = "repairing"  # the service restarts, reimages or repairs it
    STOPPED = "stopped"  # by a person
    PREEMPTED = "preempted"  # or terminated: it does not come back
    DELETING = "deleting"
    UNKNOWN = "unknown"


class SliceHealth(StrEnum):
    """How a slice is, as far as its service can tell."""

    HEALTHY = "healthy"
    MAINTENANCE = "maintenance"
    UNHEALTHY = "unhealthy"
    SILENT = "silent"  # it does not answer its service
    UNTOLD = "untold"


class ResourceState(StrEnum):
    """Where a resource is on its way."""

    WAITING = "waiting"  # in a queue: as long as it takes
    CREATING = "creating"
    UP = "up"
    FAILED = "failed"  # the service gave it up; it must be deleted before another is made
    SUSPENDED = "suspended"  # its slices were taken; likewise
    DELETING = "deleting"
    UNKNOWN = "unknown"


class ActOutcome(StrEnum):
    """What came of an act."""

    ACCEPTED = "accepted"  # or there (gone) already: the next look tells
    STOCKOUT = "stock-out"  # the service has no such machines now
    QUOTA = "quota"  # the project may not have more: waiting alone helps little
    TROUBLE = "trouble"  # no answer, or one that says nothing: perhaps done, perhaps not
    REFUSED = "refused"  # it will be refused again: permission, or a specification that cannot be


@dataclass(frozen=True, slots=True)
class Maintenance:
    """A window that is announced or open; times are unix nanoseconds, None: not told."""

    start_unix_ns: int | None = None
    end_unix_ns: int | None = None
    is_ongoing: bool = False


@dataclass(frozen=True, slots=True)
class Slice:
    """One slice. `words`: the service's own description of its health.

    `addresses`: of each of its hosts, in their order: within the network, and from outside ("").
    `maintained_unix_ns`: when it was maintained last, where its description says so.
    """

    name: str
    state: SliceState
    health: SliceHealth = SliceHealth.UNTOLD
    words: str = ""
    maintenance: Maintenance | None = None
    symptoms: tuple[str, ...] = ()
    autocheckpoint: bool | None = None  # None: the service does not say
    addresses: tuple[tuple[str, str], ...] = ()
    maintained_unix_ns: int | None = None

    @property
    def is_well(self) -> bool:
        """Whether it trains, or could."""
        return self.state is SliceState.READY and self.health in (
            SliceHealth.HEALTHY,
            SliceHealth.UNTOLD,
        )


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource. `owner`: the id of the run whose label it carries; "": nobody's.

    `slices_wanted`: how many slices it was asked for. `failure`: why its service gave it up, in
    `words` for people; None: it did not.
    """

    name: str
    state: ResourceState
    owner: str = ""
    slices: tuple[Slice, ...] = ()
    slices_wanted: int = 1
    words: str = ""
    accelerator: str = ""
    failure: ActOutcome | None = None

    @property
    def healthy(self) -> tuple[str, ...]:
        """The names of the slices that are well: they would go with the others."""
        return tuple(one.name for one in self.slices if one.is_well)


class Condition(StrEnum):
    """What is the matter with a resource, the gravest first."""

    UNKNOWN = "unknown"  # a state that is not understood: nothing is done
    STOPPED = "stopped"  # by a person, who starts it again
    LEAVING = "leaving"  # it is being deleted
    PREEMPTED = "preempted"  # or failed: it must be deleted first
    GONE = "gone"  # there is none of that name
    INCOMPLETE = "incomplete"  # a slice of it is not there
    SICK = "sick"  # a slice is unhealthy, or silent
    MAINTENANCE = "in maintenance"
    CREATING = "creating"
    WAITING = "waiting"  # in a queue
    HEALTHY = "healthy"


_GRAVITY = tuple(Condition)

LOSS_CAUSE = {
    Condition.PREEMPTED: MACHINE_PREEMPTED,
    Condition.MAINTENANCE: MACHINE_MAINTENANCE,
}

# How a slice's own state is taken; READY depends on its health.
_OF_STATE = {
    SliceState.CREATING: (Condition.CREATING, "is being created"),
    SliceState.REPAIRING: (Condition.MAINTENANCE, "is being repaired"),
    SliceState.STOPPED: (Condition.STOPPED, "was stopped by somebody"),
    SliceState.PREEMPTED: (Condition.PREEMPTED, "was preempted"),
    SliceState.DELETING: (Condition.LEAVING, "is being deleted"),
    SliceState.UNKNOWN: (Condition.UNKNOWN, "is in a state that is not understood"),
}
_OF_HEALTH = {
    SliceHealth.HEALTHY: (Condition.HEALTHY, "is healthy"),
    SliceHealth.UNTOLD: (Condition.HEALTHY, "is ready"),
    SliceHealth.MAINTENANCE: (Condition.MAINTENANCE, "is in maintenance"),
    SliceHealth.UNHEALTHY: (Condition.SICK, "is unhealthy"),
    SliceHealth.SILENT: (Condition.SICK, "does not answer its service"),
}
_OF_RESOURCE = {
    ResourceState.WAITING: (Condition.WAITING, "waits for resources"),
    ResourceState.CREATING: (Condition.CREATING, "is being created"),
    ResourceState.FAILED: (Condition.PREEMPTED, "was given up by its service"),
    ResourceState.SUSPENDED: (Condition.PREEMPTED, "was suspended: its slices were taken"),
    ResourceState.DELETING: (Condition.LEAVING, "is being deleted"),
    ResourceState.UNKNOWN: (Condition.UNKNOWN, "is in a state that is not understood"),
}


def diagnose_slice(one: Slice) -> tuple[Condition, str]:
    """What is the matter with one slice, and why."""
    if one.state is not SliceState.READY:
        condition, words = _OF_STATE[one.state]
    elif one.maintenance is not None and one.maintenance.is_ongoing:
        condition, words = Condition.MAINTENANCE, "is in maintenance"
    else:
        condition, words = _OF_HEALTH[one.health]
    detail = f" ({one.words})" if one.words and condition is not Condition.HEALTHY else ""
    return condition, f"{one.name} {words}{detail}"


def diagnose(resource: Resource | None) -> tuple[Condition, str]:
    """What is the matter with a resource, the gravest first; None: the service has none."""
    if resource is None:
        return Condition.GONE, "there is none"
    found = [diagnose_slice(one) for one in resource.slices]
    if resource.state is not ResourceState.UP:
        condition, words = _OF_RESOURCE[resource.state]
        detail = f" ({resource.words})" if resource.words else ""
        found.append((condition, f"{resource.name} {words}{detail}"))
    elif len(resource.slices) < resource.slices_wanted:
        there = f"{len(resource.slices)} of {resource.slices_wanted} slices are there"
        found.append((Condition.INCOMPLETE, f"{resource.name}: {there}"))
    if not found:
        return Condition.UNKNOWN, f"{resource.name} is up, and has no slices"
    condition = min((one for one, _ in found), key=_GRAVITY.index)
    # A node that stands alone says the same of itself and of its only slice.
    return condition, "; ".join(dict.fromkeys(words for one, words in found if one is condition))


def to_rehearse(
    resources: Sequence[Resource], name: str, owner: str, slice_name: str = ""
) -> tuple[Slice | None, str]:
    """The slice to which something may be done for practice, and why none where it is None.

    Of the resource of that name, where it is `owner`'s; `slice_name`: "" where it has one alone.
    """
    ours = next((one for one in resources if one.name == name), None)
    condition, words = diagnose(ours)
    if ours is None:
        return None, f"there is no {name}"
    if ours.owner != owner:
        return None, f"{name} does not carry this run's label: it is left alone"
    if condition is not Condition.HEALTHY:
        return None, f"not all is well as it is: {words}"
    names = ", ".join(one.name for one in ours.slices)
    if not slice_name and len(ours.slices) > 1:
        return None, f"{name} has several slices: name one of {names} with --slice"
    for one in ours.slices:
        if slice_name in ("", one.name):
            return one, words
    return None, f"{name} has no slice {slice_name!r}; it has {names}"
