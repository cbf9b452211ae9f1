"""Which hosts a run does without: those that fail again and again, or are not fit to train.

    care = HostCare(remote, now_ns, say, policy, quarantine=apply, nonce=draw)
    care.before_attempt(machine, do)  # `do` once the hosts are there, and those that failed are fit
    care.look()  # now and then
    care.reasons  # by index: who is to have no part

What is decided is `core.hosts.suspicion`'s and `core.hosts.preflight`'s. A quarantine that comes of
it is put on record in the run's folder by whoever looks there (`unwritten`, `on_file`), so it holds
under the next controller, and ends when somebody removes it there. If the run would wait for want
of hosts, a host gets another chance after a while, unless somebody has put it in quarantine.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from holdfast.controller.host_messages import PREFLIGHT_PORT
from holdfast.controller.remote_hosts import RemoteHosts
from holdfast.core.durations import SECOND_NS, in_words
from holdfast.core.hosts.membership import MemberState
from holdfast.core.hosts.preflight import HostPlace, PreflightOrder, judge, plan
from holdfast.core.hosts.stragglers import StragglerPolicy
from holdfast.core.hosts.suspicion import (
    GRAVE,
    HostSuspicion,
    HostVerdict,
    SuspicionPolicy,
    laid_at,
)
from holdfast.core.run.machine import RunMachine

LET_BACK_NS = 60 * SECOND_NS  # a run without enough hosts; twice as long each further time
MOST_LET_BACK_NS = 3600 * SECOND_NS


@dataclass(frozen=True, slots=True)
class CarePolicy:
    """What the run does by itself about hosts that fail."""

    suspicion: SuspicionPolicy = field(default_factory=SuspicionPolicy)
    stragglers: StragglerPolicy = field(default_factory=StragglerPolicy)
    has_preflight: bool = True


@dataclass(frozen=True, slots=True)
class _Preflight:
    """One that is under way."""

    begun_ns: int
    orders: Mapping[str, PreflightOrder]


class HostCare:
    """For the controller's thread alone; others may read `unwritten` and `unreleased`."""

    def __init__(
        self,
        remote: RemoteHosts,
        now_ns: Callable[[], int],
        say: Callable[[str, str], None],
        policy: CarePolicy,
        *,
        quarantine: Callable[[], None],
        nonce: Callable[[], str],
    ) -> None:
        """`quarantine()`: have it hold that `reasons` have changed."""
        self.reasons: dict[int, str] = {}
        self.unwritten: dict[int, str] = {}  # replaced, never changed: another thread reads them
        self.unreleased: tuple[int, ...] = ()
        self.has_store: Callable[[], bool] = lambda: True  # whether the controller can write there
        self._remote, self._members = remote, remote.membership
        self._now_ns, self._say, self._policy = now_ns, say, policy
        self._quarantine, self._nonce = quarantine, nonce
        self._suspicion = HostSuspicion(policy.suspicion)
        self._times: dict[int, int] = {}  # by index, how often it was put into quarantine
        self._judged_attempt = -1
        self._preflight: _Preflight | None = None
        self._preflights = 0
        self._do: Callable[[], None] | None = None  # once all is well
        self._hold_until_ns: int | None = None
        self._lacking_since_ns: int | None = None
        self._said_alone: set[int] = set()

    # --- what happens -----------------------------------------------------------------------

    def lost(self, index: int, words: str) -> None:
        """A host with a part of the run was lost, which nobody had announced."""
        self._lay(index, words, is_grave=True)

    def distrust(self, slot: int, words: str) -> None:
        """What the host of that slot has in memory is wrong: it is not waited for more of it."""
        host = self._members.host_of(slot)
        if host is None or host.index in self.reasons:
            return
        self._lay(host.index, words, is_grave=True)
        if self._can_be_spared(host.index):
            self._put(host.index, words)

    def on_file(self, found: Mapping[int, tuple[str, bool]], written: Collection[int]) -> None:
        """The quarantines on record: why, and whether the run did it. `written`: just now."""
        self.unwritten = {n: why for n, why in self.unwritten.items() if n not in written}
        self.unreleased = tuple(n for n in self.unreleased if found.get(n, ("", False))[1])
        for index in list(self.reasons):
            is_ours = found.get(index, ("", True))[1]
            if index not in self.unwritten and index not in found:
                self._trust(index)  # somebody has released it
            elif not is_ours:
                del self.reasons[index]  # a person wants it, too
        for index, (why, is_ours) in found.items():
            if is_ours and index not in self.reasons and index not in self.unreleased:
                self.reasons[index] = why  # an earlier controller's

    def _trust(self, index: int) -> None:
        del self.reasons[index]
        self._suspicion.forget(index)
        self._times.pop(index, None)

    def _lay(self, index: int, words: str, *, is_grave: bool) -> None:
        self._suspicion.lay(self._now_ns(), index, words, is_grave=is_grave)
        self._said_alone.discard(index)

    # --- before an attempt ------------------------------------------------------------------

    def before_attempt(self, machine: RunMachine, do: Callable[[], None]) -> None:
        """Call `do` once every slot has a host, and those that have failed are fit to train."""
        self._blame(machine)
        self._hold_until_ns = None
        self._gather(do)

    def _gather(self, do: Callable[[], None]) -> None:
        self._stop_preflight()
        self._do = None
        self._remote.when_complete(lambda: self._are_there(do))

    def _blame(self, machine: RunMachine) -> None:
        """Lay the end of the newest attempt at a host, if it is one's."""
        run = machine.course
        if run.attempt < 0 or run.attempt == self._judged_attempt or run.stop is not None:
            return
        self._judged_attempt = run.attempt
        verdict = run.ending.verdict(run.hangs.verdict, None, "")
        ends = {rank: one.exit for rank, one in run.ending.by_rank.items()}
        slot, words = laid_at(verdict.cause, verdict.rank, ends, run.placement.hosts)
        host = None if slot is None else self._members.host_of(slot)
        if host is not None:
            self._lay(host.index, words, is_grave=verdict.cause in GRAVE)
            self._judge()

    def _are_there(self, do: Callable[[], None]) -> None:
        now = self._now_ns()
        if self._hold_until_ns is None:
            self._hold_until_ns = now + self._wait_ns(now)
        self._do = do
        if not self._begin_preflight(now):
            self._go_on_if_due(now)

    def _wait_ns(self, now: int) -> int:
        """For the sake of those that cannot be replaced."""
        blamed = set(self._suspicion.blamed(now)) & {one.index for one in self._places()}
        wait_ns = self._suspicion.wait_ns(now) if blamed else 0
        if wait_ns:
            self._say("warning", f"The next attempt waits for {in_words(wait_ns)}")
        return wait_ns

    def _places(self) -> list[HostPlace]:
        """The hosts that train."""
        found = []
        for slot in range(self._members.slots):
            if (one := self._members.host_of(slot)) is not None:
                says = self._remote.heard.newest_of(one.incarnation)
                ports = () if says is None else says.ports
                port = ports[PREFLIGHT_PORT] if len(ports) > PREFLIGHT_PORT else 0
                address = "" if says is None else says.address
                found.append(HostPlace(slot, one.index, one.incarnation, address, port))
        return found

    # --- preflight --------------------------------------------------------------------------

    def _begin_preflight(self, now: int) -> bool:
        places = self._places()
        suspects = self._suspicion.doubtful & {one.index for one in places}
        if not suspects or not self._policy.has_preflight:
            return False
        self._preflights += 1
        orders = plan(self._preflights, self._nonce(), suspects, places)
        self._preflight = _Preflight(now, orders)
        self._remote.messages.order_preflight(orders)
        return True

    def _stop_preflight(self) -> None:
        if self._preflight is not None:
            self._preflight = None
            self._remote.messages.order_preflight({})

    def _look_at_preflight(self, now: int) -> None:
        preflight = self._preflight
        if preflight is None:
            return
        answers = {}
        for incarnation in preflight.orders:
            says = self._remote.heard.newest_of(incarnation)
            answers[incarnation] = None if says is None else says.preflight
        found = judge(preflight.begun_ns, now, preflight.orders, answers)
        if found.waits:
            return
        self._stop_preflight()
        members = self._members.members
        states = [members[one].state if one in members else None for one in preflight.orders]
        is_silent = any(state is not MemberState.ASSIGNED for state in states)
        if found.failed and (is_silent or (found.of_store and not self.has_store())):
            # A host fell silent meanwhile, or the store is away: nobody knows whose fault it is.
            self._begin_preflight(now)
            return
        for incarnation, answer in found.passed.items():
            if incarnation not in members:
                continue
            index = members[incarnation].index
            self._suspicion.is_fit(index)
            words = f"{answer.words}; {in_words(answer.took_ns)}"
            self._say("info", f"Host {index} has passed its preflight ({words})")
        for incarnation, why in found.failed.items():
            self._put(members[incarnation].index, f"failed its preflight: {why}")

    def _go_on_if_due(self, now: int) -> None:
        do, hold_ns = self._do, self._hold_until_ns
        if do is None or self._preflight is not None:
            return
        if not self._members.is_complete:
            self._gather(do)
        elif hold_ns is None or now >= hold_ns:
            self._do = None
            do()

    # --- now and then -----------------------------------------------------------------------

    def look(self) -> None:
        """Judge who has answered, who has failed too often, and who gets another chance."""
        now = self._now_ns()
        if self._do is not None and not self._members.is_complete:
            self._gather(self._do)
        self._look_at_preflight(now)
        self._judge()
        self._let_back(now)
        self._go_on_if_due(now)

    def replace(self, index: int, why: str) -> bool:
        """Have a spare take that host's part, after a save; whether one is there."""
        if index in self.reasons or not self._can_be_spared(index):
            return False
        self._put(index, why)
        return True

    def end(self) -> None:
        """The run is over: nobody waits any more."""
        self._do = None
        self._stop_preflight()

    def _judge(self) -> None:
        now = self._now_ns()
        for index in self._suspicion.blamed(now):
            if index in self._members.quarantine or index in self.reasons:
                continue
            can_be_spared = self._can_be_spared(index)
            verdict, words = self._suspicion.judge(now, index, can_be_spared=can_be_spared)
            if verdict is HostVerdict.QUARANTINE:
                self._put(index, words)
            elif verdict is HostVerdict.WAIT and index not in self._said_alone:
                self._said_alone.add(index)
                self._say("warning", f"Host {index} was {words}; no spare can take its place")

    def _can_be_spared(self, index: int) -> bool:
        """Whether every slot has a host without it."""
        members = self._members.members.values()
        spares = sum(one.state is MemberState.SPARE and one.index != index for one in members)
        has_slot = any(one.index == index and one.slot is not None for one in members)
        leaving = [n for n in self.reasons if n not in self._members.quarantine]
        trains = {one.index for one in members if one.slot is not None}
        if has_slot and not self._members.takers(index):
            return False  # they are of other slices
        wanted = len(self._members.missing) + has_slot + len(trains.intersection(leaving))
        return spares >= wanted

    def _put(self, index: int, why: str) -> None:
        """Into quarantine, which holds from now on."""
        self.reasons[index] = why
        self.unwritten = {**self.unwritten, index: why}
        self.unreleased = tuple(n for n in self.unreleased if n != index)
        self._times[index] = self._times.get(index, 0) + 1
        self._lacking_since_ns = None
        words = "`holdfast hosts RUN --release` lets it back in"
        self._say("warning", f"Host {index} goes into quarantine: {why}; {words}")
        self._quarantine()

    def _let_back(self, now: int) -> None:
        """A run that lacks hosts tries one again that it has put into quarantine itself."""
        kept: list[int] = []
        if (
            self.reasons and self._remote.awaited.is_waiting
        ):  # asked at each turn, and hosts are many
            is_lacking = self._members.missing and not self._members.spares
            members = self._members.members.values() if is_lacking else ()
            there = [one.index for one in members if one.state is MemberState.QUARANTINED]
            kept = [index for index in there if index in self.reasons]
        if not kept:
            self._lacking_since_ns = None
            return
        if self._lacking_since_ns is None:
            self._lacking_since_ns = now
        index = min(kept, key=lambda n: (self._times.get(n, 1), n))
        grown_ns = LET_BACK_NS << min(self._times.get(index, 1) - 1, 16)
        if now - self._lacking_since_ns < min(grown_ns, MOST_LET_BACK_NS):
            return
        self._lacking_since_ns = None
        del self.reasons[index]
        self.unwritten = {n: why for n, why in self.unwritten.items() if n != index}
        self.unreleased = (*self.unreleased, index)
        self._suspicion.doubt(index)
        words = "no other host is there to train"
        self._say("warning", f"Host {index} comes out of quarantine on trial: {words}")
        self._quarantine()
