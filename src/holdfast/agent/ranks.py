"""The ranks' pages: what each rank says there, as the host reports it.

A rank's page appears when its session starts; until then (and for commands that have no session at
all, though a recorder may tell their steps) there is nothing to read. Orders given before a page
appears are stored when it does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from holdfast.controller.pages import Orders, rank_state
from holdfast.core.hang.deadline import StepIntervals
from holdfast.core.hosts.report import RankState
from holdfast.core.save.ranks import RankAnswers
from holdfast.errors import JournalError
from holdfast.journal.layout import RankPhase, Word
from holdfast.journal.rank_page import PageValues, RankPage


@dataclass(slots=True)
class RankView:
    """One rank's page, and what of it has been told already."""

    rank: int
    live: Path
    page: RankPage | None = None
    recorded: RankPage | None = None  # of a rank without a session, whose steps a recorder tells
    values: PageValues | None = None
    state: RankState = field(default_factory=RankState)
    pace: StepIntervals = field(default_factory=StepIntervals)


class RankPages:
    """All ranks of one attempt on this host."""

    def __init__(self, attempt: int, resume_step: int, journals: dict[int, Path]) -> None:
        self.attempt = attempt
        # Also where that set is only in memory: a rank that has done no step since has nothing of
        # its own to save, and the run is not done before the controller has made the set durable.
        self.orders = Orders(committed=resume_step)
        unread = RankState(answers=RankAnswers(step=resume_step))
        self.views = [RankView(rank, path, state=unread) for rank, path in sorted(journals.items())]

    def read(self, *, with_progress: bool) -> tuple[RankState, ...]:
        """All pages, as they are told to the controller.

        Without `with_progress` a rank that only took steps is left for a later call: answers are
        news at once, progress a few times a second.
        """
        for view in self.views:
            if view.page is not None or self._open(view):
                self._read(view, with_progress)
            elif view.recorded is not None and with_progress:
                view.state = view.state._replace(recorded=view.recorded.load(Word.STEP))
        return tuple(view.state for view in self.views)

    def _open(self, view: RankView) -> bool:
        if not view.live.exists():
            return False
        try:
            page = view.recorded or RankPage.open(view.live)
        except JournalError:
            return False  # its header is being written: next time
        if page.load(Word.PHASE) == RankPhase.RECORDING:
            view.recorded = page
            return False
        view.recorded, view.page = None, page
        self.orders.store(page)
        return True

    def _read(self, view: RankView, with_progress: bool) -> None:
        if view.page is None:
            return
        values = view.values = view.page.snapshot()
        view.pace.look(values.step, values.step_at_ns, values.spans_ns)
        view.state = rank_state(values, view.state, with_progress=with_progress)

    def store_orders(self) -> None:
        """Put what `orders` say into every page."""
        for view in self.views:
            if view.page is not None:
                self.orders.store(view.page)

    def heartbeat(self, now_ns: int) -> None:
        """A waiting rank times out when this stops."""
        for view in self.views:
            if view.page is not None:
                view.page.store(Word.SUPERVISOR_ALIVE_AT, now_ns)

    def finished(self, rank: int) -> bool:
        """Whether the rank's session said that the run is done."""
        return self.phase(rank) is RankPhase.FINISHED

    def phase(self, rank: int) -> RankPhase | None:
        """The rank's phase by its page, read now; None when it has no session."""
        for view in self.views:
            if view.rank != rank:
                continue
            if view.page is None:
                self._open(view)
            if view.page is not None:
                view.values = view.page.snapshot()
                return view.values.phase
        return None

    def suspended(self) -> None:
        """Nothing ran for a while: the steps under way say nothing of the pace."""
        for view in self.views:
            view.pace.forget()

    def close(self) -> None:
        """Unmap all pages."""
        for view in self.views:
            for page in filter(None, (view.page, view.recorded)):
                page.detach()
            view.page = view.recorded = None
