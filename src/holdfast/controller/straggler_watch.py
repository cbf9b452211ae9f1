"""Hosts that the others wait for: said, and replaced by a spare where that is wanted."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.controller.host_care import HostCare
from holdfast.core.durations import in_words
from holdfast.core.hosts.membership import Membership
from holdfast.core.hosts.report import HostReport
from holdfast.core.hosts.stragglers import Behind, StragglerPolicy, Stragglers, chronic

LOOK_NS = 1_000_000_000


class StragglerWatch:
    """For the controller's thread; another may read `behind`, which is replaced, never changed."""

    def __init__(
        self,
        members: Membership,
        care: HostCare,
        say: Callable[[str, str], None],
        policy: StragglerPolicy,
    ) -> None:
        self.behind: dict[int, Behind] = {}  # by index
        self._members, self._care, self._say = members, care, say
        self._policy = policy
        self._stragglers = Stragglers(policy)
        self._next_look_ns = 0
        self._said: set[int] = set()
        self._replaced: dict[int, int] = {}  # by slot, which host was replaced there

    def heard(self, index: int, report: HostReport) -> None:
        """A host that trains has told how its ranks stand."""
        self._stragglers.heard(index, report.attempt, report.ranks)

    def look(self, now: int) -> None:
        """Once a second: who is behind, and for how long."""
        if now < self._next_look_ns:
            return
        self._next_look_ns = now + LOOK_NS
        members = self._members.members.values()
        trains = {one.index: one.slot for one in members if one.slot is not None}
        found = self.behind = self._stragglers.judge(now, trains)
        late = chronic(found)
        for index in sorted(self._said - late.keys()):
            self._said.discard(index)
            if index in found:
                self._say("info", f"Host {index} keeps pace with the others again")
        for index, one in sorted(late.items()):
            words = f"behind the others by {one.words} for {in_words(one.late_ns or 0)}"
            slot = trains[index]
            is_new = index not in self._said
            if is_new:
                self._said.add(index)
                self._say("warning", f"Host {index} is {words}: they wait for it")
            if not self._policy.replaces:
                continue
            if slot in self._replaced:
                if is_new:
                    was = self._replaced[slot]
                    words = f"so was host {was} there: it is the part that is slow, not the host"
                    self._say("warning", f"Host {index} stays: {words}")
            elif self._care.replace(index, words):
                self._replaced[slot] = index
