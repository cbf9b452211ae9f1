"""What a run's membership is made of: its hosts, and what is done about them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from holdfast.core.durations import SECOND_NS
from holdfast.core.value import value

REMEMBERED = 16  # of each index, incarnations that are gone


class MemberState(StrEnum):
    """How a host stands."""

    WAITING = "waiting"  # another process of its index is not known to be gone
    SPARE = "spare"
    ASSIGNED = "assigned"
    SUSPECT = "suspect"  # assigned, and silent for a while
    QUARANTINED = "quarantined"  # it is to have no slot, until somebody releases it
    LOST = "lost"
    REFUSED = "refused"


GONE = (MemberState.LOST, MemberState.REFUSED)


@value
class HostLimits:
    """Nanoseconds. Of silence: live migration and memory stalls take seconds.

    `gather_ns`: after the first host has joined, spares wait so long for those that are not there.
    """

    suspect_ns: int = 2 * SECOND_NS
    lost_ns: int = 10 * SECOND_NS
    gather_ns: int = 120 * SECOND_NS


@dataclass(slots=True)
class JoinedHost:
    """One agent that has joined. `slot`: the one that it has; None: none.

    `is_linked`: its connection stands, as far as is known.
    """

    index: int
    incarnation: str
    heard_ns: int
    judged_ns: int  # when it is refused, should it wait until then
    slice: str = ""
    state: MemberState = MemberState.SPARE
    slot: int | None = None
    is_linked: bool = True

    @property
    def is_there(self) -> bool:
        """Whether it counts: neither lost nor refused."""
        return self.state not in GONE


@dataclass(slots=True)
class ReturningHosts:
    """Hosts that live, and end what an earlier controller has launched before they join anew.

    `of_slot`: by slot, the index of who had it. Nobody else gets it before `by_ns`.
    """

    of_slot: dict[int, int] = field(default_factory=dict)
    by_ns: int = 0

    def keeps(self, at_ns: int, slot: int) -> bool:
        """Whether that slot waits for its host."""
        return slot in self.of_slot and at_ns < self.by_ns

    def take(self, index: int) -> int | None:
        """That host is back: the slot that it had; None: it had none."""
        slot = next((slot for slot, one in self.of_slot.items() if one == index), None)
        if slot is not None:
            del self.of_slot[slot]
        return slot


@value
class Assign:
    """That host has this slot from now on, as a new and empty host of it."""

    slot: int
    incarnation: str


@value
class Lose:
    """The host of this slot is gone, with all that was on it."""

    slot: int
    index: int
    incarnation: str
    words: str


@value
class RefuseHost:
    """That agent is no part of the run, and is to end."""

    incarnation: str
    words: str


@value
class Tell:
    """A sentence for the people watching."""

    level: str
    words: str


Move = Assign | Lose | RefuseHost | Tell
