"""The conductor: what a supervisor does for a run's saves, for a script that has none.

`python train.py` gets the same saves as `holdfast run -- python train.py`: this thread reads the
rank's words, drives `core.saving` and stores orders and verdicts in the same page. It also copies
the journal to the run store and keeps the lease. What it cannot do is bring a dead process back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from holdfast.core import agree_events as news
from holdfast.core.saving import Saving
from holdfast.core.word import Order, pack
from holdfast.errors import HoldfastError
from holdfast.journal.clocks import now_ns
from holdfast.journal.layout import Phase, Word
from holdfast.journal.words import WordsPage
from holdfast.session.boundary import say

IDLE_WAIT_S = 0.1
ACTIVE_WAIT_S = 0.002
UPKEEP_NS = 1_000_000_000
PROGRESS_NS = 250_000_000  # progress is weighed (is a save due?) four times a second


@dataclass(frozen=True, slots=True)
class Duties:
    """What the conductor does to the world: `commit` raises, the others must not.

    `overdue`: the deadline is over, and the script has not left.
    """

    commit: Callable[[int], None]
    upkeep: Callable[[], None]
    note_stop: Callable[[str, int | None], None]
    overdue: Callable[[], None]


class Conductor:
    """One thread; `ask_stop` may be called from a signal handler."""

    def __init__(self, words: WordsPage, saving: Saving, duties: Duties) -> None:
        self._words = words
        self._saving = saving
        self._duties = duties
        self._before = news.RankWords()
        self._stop_asked: tuple[str, int | None] | None = None
        self._stop_begun = False
        self._wake = threading.Event()
        self._ending = False
        self._save_asked = 0
        self._conducting = False
        self._next_upkeep_ns = 0
        self._next_progress_ns = 0
        self._thread = threading.Thread(target=self._run, name="holdfast-conductor", daemon=True)

    def start(self) -> None:
        """Begin the upkeep: a long restore must not let the lease grow old."""
        self._words.store(Word.SUPERVISOR_ALIVE_AT, now_ns())
        self._thread.start()

    def conduct(self, resume_step: int) -> None:
        """The loop begins after `resume_step` (0: from scratch): saves are decided from now on."""
        self._saving.begin(now_ns(), resume_step)
        self._saving.join(0)
        self._before = news.RankWords(step=resume_step)
        self._conducting = True

    def ask_stop(self, source: str, deadline_ns: int | None) -> None:
        """Save at the next boundary and leave. Only the first call counts."""
        if self._stop_asked is None:
            self._stop_asked = (source, deadline_ns)

    @property
    def stop_asked(self) -> tuple[str, int | None] | None:
        """Who asked for a stop, and by when; None: nobody did."""
        return self._stop_asked

    def hurry(self) -> None:
        """Look at the words now. Not for signal handlers: they must not wait for a lock."""
        self._wake.set()

    def close(self) -> None:
        """End the thread; a commit under way is finished."""
        self._ending = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._ending:
            self._wake.wait(ACTIVE_WAIT_S if self._is_hurried() else IDLE_WAIT_S)
            self._wake.clear()
            try:
                self._turn(now_ns())
            except Exception as error:
                # The training must not notice; the next turn tries again.
                self._words.increment(Word.ERRORS)
                say(f"the conductor met an error of its own: {error!r}; training goes on")
        self._turn(now_ns())

    def _is_hurried(self) -> bool:
        return self._saving.is_active or self._stop_asked is not None

    def _turn(self, at_ns: int) -> None:
        self._words.store(Word.SUPERVISOR_ALIVE_AT, at_ns)
        if self._conducting:
            self._conduct(at_ns)
        if at_ns >= self._next_upkeep_ns:
            self._next_upkeep_ns = at_ns + UPKEEP_NS
            self._duties.upkeep()
        _, deadline_ns = self._stop_asked or ("", None)
        if deadline_ns is not None and at_ns > deadline_ns and not self._ending:
            self._duties.overdue()

    def _conduct(self, at_ns: int) -> None:
        words = self._words.snapshot()
        step = self._before.step
        asked = words.save_asked != self._save_asked
        ended = words.phase is Phase.LOOP_ENDED
        if self._is_hurried() or asked or ended or at_ns >= self._next_progress_ns:
            self._next_progress_ns = at_ns + PROGRESS_NS
            # Before the first step the step word is 0, whatever was restored.
            step = max(words.step, step)
        reading = news.RankWords(
            step=step,
            loop_ended=ended,
            snap=words.snap,
            durable=words.durable,
            failed=words.failed,
        )
        if words.snap != self._before.snap:
            self._saving.note_cost(words.save_blocked_ns)
        heard = news.changes(at_ns, 0, self._before, reading)
        self._before = reading
        for event in heard:
            self._do(self._saving.hear(event))
        if self._stop_asked is not None and not self._stop_begun:
            self._stop_begun = True
            self._duties.note_stop(*self._stop_asked)
            self._do(self._saving.stop(at_ns, *self._stop_asked))
        if asked:
            self._save_asked = words.save_asked
            self._do(self._saving.ask(at_ns, "the script asked for it", in_step=True))
        wake_ns = self._saving.wake_at_ns
        if wake_ns is not None and wake_ns <= at_ns:
            self._do(self._saving.hear(news.Tick(at_ns)))

    def _do(self, actions: tuple[news.Action, ...]) -> None:
        for action in actions:
            if isinstance(action, news.PublishOrder):
                self._words.store(Word.ORDER, pack(action.epoch, action.step, action.flags))
            elif isinstance(action, news.PublishVerdict):
                if action.flags & Order.COMMITTED:
                    self._words.store(Word.COMMITTED, action.step)
                self._words.store(Word.VERDICT, pack(action.epoch, action.step, action.flags))
            elif isinstance(action, news.Commit):
                self._commit(action)

    def _commit(self, action: news.Commit) -> None:
        outcome: news.Event
        try:
            self._duties.commit(action.step)
        except (HoldfastError, OSError) as error:
            say(f"the checkpoint of step {action.step} could not be completed: {error}")
            outcome = news.CommitFailed(now_ns(), action.epoch, action.step, str(error))
        else:
            outcome = news.Committed(now_ns(), action.epoch, action.step)
        self._do(self._saving.hear(outcome))
