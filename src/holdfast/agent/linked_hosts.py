"""The hosts of a run behind the network, for the controller's loop (`agent.supervisor`)."""

from __future__ import annotations

import secrets
import selectors
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from holdfast.agent.look import Wakefulness
from holdfast.controller.host_book import HostBook
from holdfast.controller.host_care import CarePolicy, HostCare
from holdfast.controller.remote_hosts import RemoteHosts, Told
from holdfast.controller.straggler_watch import StragglerWatch
from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core import records
from holdfast.core.durations import SECOND_NS, in_words
from holdfast.core.hosts.adoption import LastOrdered
from holdfast.core.hosts.evacuation import Evacuation
from holdfast.core.hosts.in_words import hosts_words
from holdfast.core.hosts.membership import Membership
from holdfast.core.hosts.order import HostOrder
from holdfast.core.hosts.placement import Placement
from holdfast.core.hosts.regroup import ElasticLimits
from holdfast.core.hosts.report import HostReport
from holdfast.core.hosts.says import (
    ControllerSays,
    HostSays,
    Over,
    encode_controller,
    order_json,
)
from holdfast.core.hosts.waiting import why_nobody_comes
from holdfast.core.notices.board import Notice
from holdfast.core.notices.plan import NoticePolicy
from holdfast.core.run.machine import RunMachine, State
from holdfast.core.save.choose import SealedSet
from holdfast.errors import EXIT_DONE
from holdfast.journal.clocks import boot_id, now_ns
from holdfast.journal.hosts_table import ListedHost
from holdfast.link.server import LinkServer
from holdfast.link.values import LinkState, Peer

LONGEST_WAIT_NS = 250_000_000
SAY_NS = 30_000_000_000  # between two words on what is waited for
FIRST_SAY_NS = 3_000_000_000
SAVE_LIMIT_NS = 600_000_000_000  # before a host that trains goes into quarantine
GOING_LIMIT_NS = 30_000_000_000  # the same where it is announced to go
NOBODY_NS = 120_000_000_000  # without any host: then there is nobody to be a controller of


class ControllerLoop(Protocol):
    """The loop."""

    selector: selectors.BaseSelector

    @property
    def machine(self) -> RunMachine:
        """What decides."""

    def tell(self, event: ev.Event) -> None:
        """Something has happened."""

    def say(self, level: str, words: str) -> None:
        """Tell the people watching."""

    def lost(self, words: str) -> None:
        """The run is others', and why."""

    def record(self, fact: Mapping[str, Any]) -> None:
        """Put a fact into the controller's journal."""


class LinkedHosts:
    """A `supervisor.RunHosts`: the agents that have joined, by their links."""

    standby_words = ""

    def __init__(
        self,
        around: ControllerLoop,
        server: LinkServer,
        membership: Membership,
        runs: tuple[tuple[str, str], ...],
        policy: NoticePolicy,
        placement: Placement,
        care: CarePolicy,
        *,
        is_done: bool = False,
        elastic: ElasticLimits | None = None,
        store: str = "",
        chips: int = 0,
        silent_ns: Mapping[int, int] | None = None,
    ) -> None:
        """`runs`: what every host is to run (`core.hosts.says.HostSays`). `placement`: its ranks.

        `policy`: what follows where a host is announced to go. `care`: where it fails. `is_done`:
        the run was done before. `elastic`: how few hosts it trains on; None: all are waited for.
        `store`: where the hosts find this controller. `chips`: of all of them together, where they
        do not say how many they have. `silent_ns`: for how long the controller before this one had
        not heard the host of a part, by its number.
        """
        self._is_done = is_done
        self._store = store
        self._is_alone_said = False
        self._around = around
        self._server = server
        self._members = membership
        self._remote = RemoteHosts(
            self, membership, now_ns, around.say, runs, placement, elastic, chips
        )
        self._remote.silent_ns = dict(silent_ns or {})
        self._remote.outvoted = around.lost
        self._peers: dict[str, Peer] = {}  # by incarnation
        self._wakefulness = Wakefulness(LONGEST_WAIT_NS)
        self._waits_since_ns = self._next_say_ns = 0
        self._heard_ns = now_ns()
        self._strangers = 0
        self._quarantine: dict[int, str] = {}  # as people want it
        self._evacuation = Evacuation(policy)
        self._remote.leaves_alone = self._leaves_alone
        self.care = HostCare(
            self._remote,
            now_ns,
            around.say,
            care,
            quarantine=self._empty_hosts,
            nonce=partial(secrets.token_hex, 16),
        )
        self._remote.lost = self._lost
        self._stragglers = StragglerWatch(membership, self.care, around.say, care.stragglers)
        self._remote.heard_of = self._stragglers.heard
        self._rows_told: tuple[ListedHost, ...] = ()
        self._book = HostBook(self._remote, self._newest, boot_id(), around.record)
        # Before it holds: the attempt, the step that is to be saved, and until when.
        self._saved_by: tuple[int, int, int] | None = None
        self.has_given_up = False  # the run is others': the hosts hear no more of this one
        around.selector.register(server, selectors.EVENT_READ)

    def attach(self, controller: Told) -> None:
        """Whom to tell of the hosts."""
        self._remote.attach(controller)

    # --- controller.host_messages.Wire ------------------------------------------------------

    def written(self, order: HostOrder) -> bytes:
        """As JSON, once for all hosts."""
        return order_json(order)

    def put(self, incarnation: str, says: ControllerSays, order: bytes | None) -> None:
        """Send that agent this, in place of what it was not sent yet."""
        if not self.has_given_up:
            self._server.put(self._peers[incarnation], encode_controller(says, order))

    def silent_ns(self, incarnation: str) -> int | None:
        """How long nothing has come from that agent; None: it has no link."""
        silence_s = self._server.silence_s(self._peers[incarnation])
        return None if silence_s is None else round(silence_s * SECOND_NS)

    def unread_ns(self) -> int:
        """For how long what has come may lie unread."""
        return round(self._server.unread_s() * SECOND_NS)

    # --- controller.ports.Link --------------------------------------------------------------

    def obey(self, order: HostOrder) -> None:
        """Send it to every host that has a slot."""
        self._remote.obey(order)

    def reports(self) -> Iterable[tuple[int, HostReport]]:
        """None: what the hosts have said was handed over."""
        return self._remote.reports()

    def ask(self, do: Callable[[ev.HostsAnswered], None]) -> bool:
        """Have the hosts say how they stand now."""
        return self._remote.ask(do)

    def when_complete(self, do: Callable[[], None]) -> None:
        """Once every slot has a host."""
        self._waits_since_ns = now_ns()
        self._next_say_ns = self._waits_since_ns + FIRST_SAY_NS
        self.care.before_attempt(self._around.machine, do)

    def sealed(self) -> tuple[SealedSet, ...] | None:
        """Which sets are in the hosts' memory."""
        return self._remote.sealed()

    def distrust(self, host: int, words: str) -> None:
        """That host goes into quarantine, if a spare can take its part."""
        self.care.distrust(host, words)

    def chips_of(self, placement: Placement) -> int:
        """As those hosts say that have a part of it."""
        return self._remote.awaited.chips.of(placement.hosts).here

    def gather(self, action: act.Adopt, judged: Callable[[LastOrdered | str], None]) -> None:
        """Ask the hosts of an attempt that runs."""
        self._waits_since_ns = now_ns()
        self._next_say_ns = self._waits_since_ns + FIRST_SAY_NS
        self._remote.gather(action, judged)

    def go_on(self) -> None:
        """They have the slots that they had."""
        self._remote.go_on()

    # --- supervisor.RunHosts ----------------------------------------------------------------

    @property
    def next_look_ns(self) -> int | None:
        """When somebody's silence will mean something."""
        return self._remote.next_look_ns

    def look_whether_we_slept(self) -> bool:
        """While this process did not run, it could hear nobody."""
        gap_ns = self._wakefulness.gap_ns(now_ns(), time.monotonic_ns())
        if gap_ns:
            self._members.slept(gap_ns)
            self._heard_ns += gap_ns
        return gap_ns > 0

    def turn(self) -> None:
        """Hand on what the agents have said."""
        news = self._server.take()
        self._remote.have_spoken(peer.incarnation for peer in news.messages)
        for peer, message in news.messages.items():
            self._peers[peer.incarnation] = peer
            self._heard_ns = now_ns()
            self._remote.take(peer.incarnation, message)
            says = self._remote.heard.newest_of(peer.incarnation)
            if says is not None and self._evacuation.heard(says.index, says.agent):
                self._empty_hosts()
        for peer, change in news.changes.items():
            if change.state is LinkState.DOWN:
                self._remote.closed(peer.incarnation)
        if news.refused.count:
            if not self._strangers:
                self._around.say("warning", f"Somebody was turned away: {news.refused.words}")
            self._strangers += news.refused.count

    def _newest(self) -> tuple[int, Placement]:
        course = self._around.machine.course
        return course.attempt, course.placement

    def look(self, now: int) -> None:
        """Judge silence, and say what is waited for."""
        self._remote.look()
        self._book.look(now, time.time_ns(), is_launched=self._is_launched)
        self.care.look()
        self._stragglers.look(now)
        self._look_at_quarantine(now)
        if now - self._heard_ns > NOBODY_NS:
            self._heard_ns = now
            words = f"no host was heard of for {in_words(NOBODY_NS)}"
            self._around.tell(ev.StopNowAsked(now, words, by_person=False))
        if self._is_done and self.lacks_hosts and self._around.machine.course.attempt < 0:
            self._leave_if_done(now)
        if now >= self._next_say_ns and (awaited := self._awaited):
            self._next_say_ns = now + SAY_NS
            waited = in_words(now - self._waits_since_ns)
            self._around.say("info", f"Waiting {awaited} ({waited} so far)")
            self._say_why_nobody_comes(now)

    @property
    def _is_launched(self) -> bool:
        """Whether the newest attempt has its hosts; one may be lost before all have begun."""
        if self._around.machine.state is State.LAUNCHING:
            return not (self._remote.waits_for or self._members.missing)
        return self._around.machine.state is State.RUNNING

    def _say_why_nobody_comes(self, now: int) -> None:
        if self._is_alone_said or not self.lacks_hosts:
            return
        heard = {peer.index for peer in self._peers.values()}
        limit_ns = self._members.limits.gather_ns
        words = why_nobody_comes(heard, now - self._waits_since_ns, limit_ns, self._store)
        if words:
            self._is_alone_said = True
            self._around.say("warning", words)

    def _leave_if_done(self, now: int) -> None:
        """Who begins a run anew that is done does so on all hosts; one alone has come too late."""
        if now - self._waits_since_ns > NOBODY_NS:
            self._is_done = False
            words = "the run was done already, and its other hosts have not come to begin it again"
            self._around.tell(ev.StopNowAsked(now, words, EXIT_DONE))

    @property
    def _awaited(self) -> str:
        missing = self._members.missing
        if missing and self._remote.awaited.is_waiting:
            kept = ", ".join(map(str, sorted(self._members.quarantine)))
            why = f"; {why}" if (why := self._remote.awaited.why) else ""
            return f"for {_hosts(missing)}{why}" + (f"; in quarantine: {kept}" if kept else "")
        waits_for = self._remote.waits_for
        return f"to go on: {waits_for}" if waits_for else ""

    @property
    def lacks_hosts(self) -> bool:
        """Whether nothing runs, for want of hosts; asked from any thread."""
        return self._remote.awaited.is_waiting and bool(self._members.missing)

    def unlinked(self, indices: Collection[int]) -> None:
        """These hosts say in the store that they have no link to this controller."""
        others = sorted(set(indices) - self._members.heard_indices)
        if not self.lacks_hosts or not others:
            return
        if len(others) <= len(self._members.heard_indices):
            self._say_who_has_no_way(others)
            return
        self.has_given_up = True
        words = f"{_hosts(tuple(others))} cannot reach this controller: another one goes on"
        self._around.tell(ev.StopNowAsked(now_ns(), words, by_person=False))

    def _say_who_has_no_way(self, others: list[int]) -> None:
        if self._is_alone_said:
            return
        self._is_alone_said = True
        words = f"{_hosts(tuple(others))} found this store, and no way to this controller"
        self._around.say(
            "warning",
            f"{words[0].upper()}{words[1:]} (port {self._server.port}): let all hosts of the run "
            "reach each other, on any port, with one --secret-file if there is one",
        )

    def quarantined(
        self, found: dict[int, tuple[str, bool]], written: Collection[int] = ()
    ) -> None:
        """These hosts are to have no part of the run, as it is on record.

        `found`: by index, why, and whether the run has put it there by itself; `written`: those
        that are new there. What trains on one of them is saved first, if that can be done in time.
        """
        before = self._wanted_quarantine
        self.care.on_file(found, written)
        self._quarantine = {index: why for index, (why, is_ours) in found.items() if not is_ours}
        if self._wanted_quarantine != before:
            self._empty_hosts()

    def _leaves_alone(self, says: HostSays, notice: Notice) -> bool:
        """A host is announced to go: a spare takes its part, if there is one."""
        if self._around.machine.attention.is_stopping:
            return False
        trains = {one.index for one in self._members.members.values() if one.slot is not None}
        leaving = trains & self._wanted_quarantine.keys()
        is_known = says.index in self._evacuation.reasons
        is_alone = self._evacuation.takes(
            says.index,
            says.agent,
            notice,
            trains=says.index in trains,
            spares=self._members.takers(says.index)
            + self._remote.awaited.can_do_without
            - len(leaving),
        )
        if is_alone:
            if not is_known:
                self._around.record(records.host_to_go(now_ns(), says.index, notice).fact)
            self._empty_hosts()
        return is_alone

    @property
    def _wanted_quarantine(self) -> dict[int, str]:
        return self._evacuation.reasons | self.care.reasons | self._quarantine

    def _lost(self, index: int, words: str) -> None:
        """A host that was announced to go does so through no fault of its own."""
        if index not in self._wanted_quarantine:
            self.care.lost(index, words)

    def _empty_hosts(self) -> None:
        """Save what trains on hosts that are to have no part."""
        now = now_ns()
        new = sorted(self._wanted_quarantine.keys() - self._members.quarantine.keys())
        trains = [one.index for one in self._members.members.values() if one.slot is not None]
        if self._saved_by is None and any(index in trains for index in new):
            machine = self._around.machine
            is_hasty = any(index in self._evacuation.reasons for index in new)
            limit_ns = GOING_LIMIT_NS if is_hasty else SAVE_LIMIT_NS
            self._saved_by = machine.course.attempt, machine.saving.fastest_step, now + limit_ns
            self._around.tell(ev.SaveAsked(now, f"{_hosts(tuple(new))} to give up their part"))
        self._look_at_quarantine(now)

    def _look_at_quarantine(self, now: int) -> None:
        if self._saved_by is not None:
            attempt, step, until_ns = self._saved_by
            machine = self._around.machine
            is_running = (machine.course.attempt, machine.state) == (attempt, State.RUNNING)
            if is_running and now < until_ns and machine.saving.committed_step < step:
                return
            self._saved_by = None
        wanted = self._wanted_quarantine
        if wanted != self._members.quarantine:
            new = wanted.keys() - self._members.quarantine.keys()
            trains = {one.index for one in self._members.members.values() if one.slot is not None}
            if going := {index: wanted[index] for index in sorted(new & trains)}:
                self._around.tell(self._evacuation.move(now, going))
            self._remote.set_quarantine(wanted)

    @property
    def hosts_words(self) -> str:
        """How they stand, in a line."""
        return hosts_words(self._members.slots, self._members.members.values())

    def new_rows(self) -> tuple[ListedHost, ...] | None:
        """How each host stands, by its number; None: as when another thread asked last."""
        behind, rows = self._stragglers.behind, self._book.rows
        if rows is self._rows_told:
            return None
        self._rows_told = rows
        return tuple(
            replace(one, behind_ns=behind[one.index][0], step_ns=behind[one.index][1])
            if one.index in behind
            else one
            for one in rows
        )

    def go_on_without_us(self) -> bool:
        """They hear nothing more of this controller, and find the next one by the store."""
        self.has_given_up = True
        return True

    def close(self, _: act.Finish | None) -> None:
        """The hosts are told of it once it is on record (`end`). No launch tells of this wait."""
        waited = self._remote.awaited.waits
        if waited is None or waited.since_ns is None or self._around.machine.course.attempt < 0:
            return  # before the first attempt all is a wait
        self._around.record(records.wait(waited, waited.since_ns).fact)

    def end(self, over: Over) -> None:
        """It is on record: have all hosts leave."""
        self.care.end()
        self._remote.end(over)
        self._server.close()


def _hosts(missing: tuple[int, ...]) -> str:
    numbers = ", ".join(map(str, missing[:8])) + (" …" if len(missing) > 8 else "")
    return f"host {numbers}" if len(missing) == 1 else f"hosts {numbers}"
