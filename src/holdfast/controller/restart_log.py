"""How a restart went, phase by phase: from the moment in which a rank broke to the next sessions.

Told by what the run's machine is fed with, and by what only the agent knows. What comes after
that, the restore and the first step, the ranks' own journals tell. The ledger does not need any of
this; people do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.controller.ports import Notebook
from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.run.state import Timer

# In this order; each lasts until its own moment. What was over before the one above it took 0.
PHASES = ("detect", "drain", "wait", "choose", "record", "launch", "start")
WHOLE = {"launch", "start"}  # all ranks were started, and have shown themselves

OF_A_CHOICE = (ev.SetsSeen, ev.Chosen)


class RestartLog:
    """The story of one restart at a time."""

    def __init__(self) -> None:
        self._ranks = 0
        self._of: int | None = None  # the attempt that broke
        self._broke_ns = 0
        self._moments: dict[str, int] = {}
        self._joined: set[int] = set()
        self._starts: dict[int, str] = {}  # by rank: why it started cold; "": it was woken
        self._launched_ns = self._of_launched_ns = 0  # the newest attempt, and the one that broke
        self._ready_ns = 0  # what waited for the next attempt

    def hear(self, event: ev.Event) -> None:
        """Take an input of the run's machine."""
        if isinstance(event, ev.RankExited):
            if self._of != event.attempt:
                self._begin(event.attempt, event.died_at_ns)
            self._moments.setdefault("detect", event.at_ns)
            return
        if isinstance(event, ev.Launched):
            self._launched_ns = event.at_ns
        if self._of is None:
            return
        if isinstance(event, ev.TreeGone) and event.attempt == self._of:
            self._moments["drain"] = event.at_ns
        elif isinstance(event, ev.TimerFired) and event.timer == Timer.RESTART:
            self._moments["wait"] = event.at_ns
        elif isinstance(event, OF_A_CHOICE):
            self._moments["choose"] = event.at_ns
        elif isinstance(event, ev.OnRecord):
            self._moments["record"] = event.at_ns
        elif isinstance(event, ev.Launched):
            self._moments["launch"] = event.at_ns
        elif isinstance(event, ev.Joined):
            self._joined.add(event.rank)
            if len(self._joined) == self._ranks:
                self._moments["start"] = event.at_ns

    def _begin(self, attempt: int, broke_ns: int) -> None:
        self._of, self._broke_ns, self._of_launched_ns = attempt, broke_ns, self._launched_ns
        self._ready_ns = 0
        self._moments, self._joined, self._starts = {}, set(), {}

    def ordered(self, ranks: int) -> None:
        """The next attempt is to have so many ranks."""
        self._ranks = ranks

    def started(self, rank: int, cold: str) -> None:
        """A rank began as a standby that was woken; or, with a reason, without one."""
        self._starts[rank] = cold

    def prepared(self, ready_ns: int) -> None:
        """Interpreters for all ranks were ready then; 0: there were none."""
        self._ready_ns = ready_ns

    def take(self) -> tuple[int, dict[str, Any]] | None:
        """The attempt that broke, and the story; once, when all ranks of the next are there."""
        if self._of is None or not self._moments.keys() >= WHOLE:
            return None
        attempt, self._of = self._of, None
        phases, reached_ns = {}, self._broke_ns
        for name in PHASES:
            until_ns = max(reached_ns, self._moments.get(name, reached_ns))
            if name != "wait" or until_ns > reached_ns:  # most restarts come at once
                phases[name] = until_ns - reached_ns
            reached_ns = until_ns
        starts = sorted(self._starts.items())
        cold = {str(rank): why for rank, why in starts if why}
        woken = [rank for rank, why in starts if not why]
        story: dict[str, Any] = {"phases_ns": phases, "woken": woken, "cold": cold}
        if self._ready_ns > self._of_launched_ns:
            story["standby_ready_ns"] = self._ready_ns - self._of_launched_ns
        return attempt, story


class RestartNotes:
    """A notebook that also has it noted how each restart went."""

    def __init__(self, book: Notebook, note: Callable[[int, Mapping[str, Any]], None]) -> None:
        """`note(attempt, story)`: of the restart after that attempt."""
        self.log = RestartLog()
        self._book = book
        self._note = note

    def event(self, event: ev.Event) -> None:
        """An input of the run's machine."""
        self._book.event(event)
        self.log.hear(event)

    def answered(self, actions: tuple[act.Action, ...], at_ns: int) -> None:
        """What the machine decided on it."""
        self._book.answered(actions, at_ns)
        for action in actions:
            if isinstance(action, act.Launch):
                self.log.ordered(action.placement.ranks)
        over = self.log.take()
        if over is not None:
            self._note(*over)

    def fact(self, fact: Mapping[str, Any]) -> None:
        """A fact for the ledger."""
        self._book.fact(fact)
