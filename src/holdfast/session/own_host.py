"""The host of one rank that nobody supervises: it is the rank's own process.

It carries out the controller's orders in the rank's page, and reports what the page says. There is
nothing to start, for the script runs already; and to kill the rank is to end this very process.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from holdfast.controller.pages import Orders, rank_state
from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.hosts.order import Host, Hurry
from holdfast.core.hosts.report import HostReport
from holdfast.core.save import events as news
from holdfast.journal.clocks import now_ns
from holdfast.journal.layout import Word
from holdfast.journal.rank_page import RankPage

ACTIVE_S = 0.002
IDLE_S = 0.1
PROGRESS_NS = 250_000_000  # progress is told four times a second


class OwnHost(Host):
    """For one thread alone. `end`: end this process, as SIGTERM's default does; may return."""

    def __init__(self, page: RankPage, began_ns: int | None, end: Callable[[], None]) -> None:
        """`began_ns`: when this process did; None: that is not the attempt's beginning."""
        super().__init__()
        self.report = HostReport()
        self.clock_offset_ns = 0  # what is to be added to times of the controller's
        self.page = page
        self._began_ns = began_ns
        self._end = end
        self._orders = Orders()
        self._next_progress_ns = 0
        self.profiled: Callable[[act.Profile], None] = lambda _: None

    # --- what is reported -------------------------------------------------------------------

    @property
    def is_hurried(self) -> bool:
        """Whether somebody waits for what the rank says."""
        return self.attention.is_saving or self.attention.is_stopping

    @property
    def wait_s(self) -> float:
        """Until the next look at the page."""
        return ACTIVE_S if self.is_hurried else IDLE_S

    @property
    def attempt(self) -> int:
        """The attempt that has begun; -1: none has."""
        return self.report.attempt

    def heartbeat(self, at_ns: int) -> None:
        """A rank that waits gives up when this stops."""
        self.page.store(Word.SUPERVISOR_ALIVE_AT, at_ns)

    def look(self, at_ns: int) -> bool:
        """Look at the page; whether it says something new."""
        with_progress = self.is_hurried or at_ns >= self._next_progress_ns
        if with_progress:
            self._next_progress_ns = at_ns + PROGRESS_NS
        return self.read(with_progress=with_progress)

    def read(self, *, with_progress: bool) -> bool:
        """The same, at any time."""
        report = self.report
        if not report.ranks:  # no attempt has begun
            return False
        before = report.ranks[0]
        now = rank_state(self.page.snapshot(), before, with_progress=with_progress)
        report.ranks = (now,)
        return now != before

    def note(self, event: ev.Event) -> None:
        """Something has happened here."""
        self.report.note(event)

    # --- what the controller orders ---------------------------------------------------------

    def attend(self) -> None:
        """The script asks its page whether a stop is under way, and by when it must be gone."""
        deadline_ns = self.attention.deadline_ns
        if deadline_ns is not None:
            self._orders.deadline_ns = deadline_ns + self.clock_offset_ns
            self.page.store(Word.DEADLINE_AT, self._orders.deadline_ns)

    def launch(self, action: act.Launch) -> None:
        """The script goes on: every rank has read what it starts from."""
        step = action.resume.step
        self._orders = Orders(deadline_ns=self._orders.deadline_ns, committed=step)
        self._orders.store(self.page)
        self.report.begin(action.attempt, step, 1)
        began_ns = now_ns() if self._began_ns is None else self._began_ns
        self.note(ev.Launched(began_ns, action.attempt))

    def publish_order(self, order: news.PublishOrder, deadline_ns: int | None) -> None:
        """Store an order in the page."""
        by_ns = None if deadline_ns is None else deadline_ns + self.clock_offset_ns
        self._orders.give_order(order, by_ns)
        self._orders.store(self.page)

    def publish_verdict(self, verdict: news.PublishVerdict) -> None:
        """Store a verdict in the page."""
        self._orders.give_verdict(verdict)
        self._orders.store(self.page)

    def publish_committed(self, step: int) -> None:
        """Store in the page which step is durable."""
        self._orders.give_committed(step)
        self._orders.store(self.page)

    def profile(self, action: act.Profile) -> None:
        """Knock at the rank's door."""
        self.profiled(action)

    def kill(self) -> None:
        """End this process."""
        self._end()

    # --- what is never ordered of a rank that nobody supervises, and what it need not know ------

    def forget_seals(self, is_wanted: Callable[[Hashable], bool]) -> None:
        """There is no memory tier."""

    def stand_by(self, action: act.StandBy) -> None:
        """There is no next attempt."""

    def relay(self) -> None:
        """The script has a session."""

    def examine(self, action: act.Examine) -> None:
        """Nobody watches for hangs."""

    def collect_stacks(self, action: act.CollectStacks) -> None:
        """Nobody asks for stacks."""

    def seal(self, action: act.Seal) -> None:
        """There is no memory tier."""

    def flush(self, action: act.Flush) -> None:
        """There is no memory tier."""

    def replicate(self, action: act.Replicate) -> None:
        """There is no memory tier."""

    def hurry(self, action: Hurry) -> None:
        """There is no memory tier."""

    def abandon_flush(self, action: act.AbandonFlush) -> None:
        """There is no memory tier."""
