"""Whether a controller that takes over a run goes on with the attempt that runs. Pure.

    gathering = Gathering(attempt=4, slots=(0, 1), hosts=3, until_ns=…)
    gathering.heard(index, incarnation, held, report)
    verdict, reason = gathering.judge(at_ns)

It does if every host of the attempt says that all its ranks were started, and that none has ended.
Else the attempt is ended: ranks that train together are of no use one by one. Hosts that are not
heard are waited for in any case, since they look for the new controller by the store: what they
have in memory may be what the next attempt begins from. They are waited for as long as one that
falls silent, less the time for which the controller before this one had not heard them any more;
but for as long as one that lives needs. The host of a controller that was followed for its silence
has been silent for longer than that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import NamedTuple

from holdfast.core import events as ev
from holdfast.core.hosts.copies import NOTHING_IN_MEMORY, InMemory
from holdfast.core.hosts.members import HostLimits
from holdfast.core.hosts.order import CALM, Attention
from holdfast.core.hosts.report import HostReport
from holdfast.core.hosts.says import HeldSlot
from holdfast.core.save.adopted import newest_words
from holdfast.core.value import value

ENDS = (ev.RankExited, ev.TreeGone, ev.HostLost, ev.LaunchFailed)


class Verdict(StrEnum):
    """What becomes of the attempt that runs."""

    WAIT = "wait"  # for hosts that were not heard yet
    ADOPT = "adopt"
    END = "end"


@value
class Holder:
    """Who has a slot of the attempt. `why_not`: what speaks against going on; "": nothing."""

    index: int
    incarnation: str
    held: HeldSlot
    why_not: str


class LastOrdered(NamedTuple):
    """By the controller before, of an attempt that is all there.

    `order`: the newest word in any page, and its `verdict`, if any has one; 0: none. `attention`:
    as it was last. `memory`: what lies in the hosts'.
    """

    order: int
    verdict: int
    attention: Attention
    memory: InMemory = NOTHING_IN_MEMORY


def waits_ns(limits: HostLimits, silent_ns: int) -> int:
    """How long a host is waited for that the controller before this one had not heard for so long.

    That one may have died just before it would have heard it: one that lives dials, and is heard.
    """
    return max(limits.suspect_ns, limits.lost_ns - silent_ns)


def believed(silent_ns: Mapping[int, int], parts: int) -> dict[int, int]:
    """What a controller has said of hosts that are silent: by slot, of so many parts, for how long.

    Nothing, if it did not hear most of them: it may be the one that was cut off, or late.
    """
    return dict(silent_ns) if 2 * len(silent_ns) <= parts else {}


class Gathering:
    """What was heard so far. `slots`: those of the attempt; `hosts`: how many, with spares."""

    def __init__(
        self,
        attempt: int,
        slots: Collection[int],
        hosts: int,
        until_ns: int,
        silent: Mapping[int, int] | None = None,
    ) -> None:
        """`silent`: by slot, until when its host is waited for, where that is not as long."""
        self.holders: dict[int, Holder] = {}  # by slot
        self._until_ns, self._silent = until_ns, silent or {}
        self._attempt = attempt
        self._slots = slots
        self._hosts = hosts
        self._indices: set[int] = set()

    def heard(
        self, index: int, incarnation: str, held: HeldSlot | None, report: HostReport
    ) -> None:
        """A host has said what it runs. `held`: in which slot; None: nothing."""
        self._indices.add(index)
        for slot in [s for s, one in self.holders.items() if one.incarnation == incarnation]:
            del self.holders[slot]
        if held is not None and report.attempt == self._attempt and held.slot in self._slots:
            why_not = _why_not(index, report)
            self.holders[held.slot] = Holder(index, incarnation, held, why_not)

    def judge(self, at_ns: int) -> tuple[Verdict, str]:
        """What follows from what was heard."""
        against = next((one.why_not for one in self.holders.values() if one.why_not), "")
        missing = self._missing
        if not missing:
            verdict = Verdict.END if against else Verdict.ADOPT
            return verdict, against or "all its hosts are there"
        which = ", ".join(map(str, missing[:8])) + (" …" if len(missing) > 8 else "")
        if len(self._indices) == self._hosts:
            return Verdict.END, against or f"no host runs its part {which} any more"
        if at_ns >= self.until_ns:
            silent = f"nothing was heard of the host that runs its part {which}"
            return Verdict.END, against or silent
        # Also where it cannot go on: the next one begins from what lies in the hosts' memory.
        return Verdict.WAIT, f"nothing was heard yet of the host that runs its part {which}"

    @property
    def _missing(self) -> list[int]:
        return [slot for slot in sorted(self._slots) if slot not in self.holders]

    @property
    def until_ns(self) -> int:
        """Until then hosts are waited for, as things stand."""
        each = (self._silent.get(slot, self._until_ns) for slot in self._missing)
        return max(each, default=self._until_ns)

    @property
    def found(self) -> LastOrdered:
        """What the new controller must know of the pages, once all hosts are there."""
        held = [one.held for one in self.holders.values()]
        stops = [one.attention for one in held if one.attention.is_stopping]
        words = newest_words((one.order, one.verdict) for one in held)
        return LastOrdered(*words, stops[0] if stops else CALM)


def _why_not(index: int, report: HostReport) -> str:
    facts = [fact for _, fact in report.facts.numbered()]
    of_it = [one for one in facts if getattr(one, "attempt", None) == report.attempt]
    if any(isinstance(one, ENDS) for one in of_it):
        return f"a rank on host {index} has ended"
    if not any(isinstance(one, ev.Launched) for one in of_it):
        return f"host {index} had not started all its ranks"
    return ""
