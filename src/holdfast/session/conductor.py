"""The conductor: what a supervisor does for a run's saves, for a script that has none.

`python train.py` gets the same saves as `holdfast run -- python train.py`: this thread reads the
rank's words, drives `core.save.saving` and stores orders and verdicts in the same page. It also
copies the journal to the run store and keeps the lease. What it cannot do is bring a dead process
back.

Of several ranks without a supervisor, rank 0's conductor leads: the others' words come to it, and
its orders go to them, through `Others`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from holdfast.core.save import agree_events as news
from holdfast.core.save.asked import Asked
from holdfast.core.save.saving import Saving
from holdfast.core.save.word import Agreed, Order, pack, unpack
from holdfast.errors import HoldfastError, RunHeld
from holdfast.journal.clocks import now_ns
from holdfast.journal.layout import Phase, Word
from holdfast.journal.words import RankWords, WordsPage
from holdfast.session.boundary import say

IDLE_WAIT_S = 0.1
ACTIVE_WAIT_S = 0.002
UPKEEP_NS = 1_000_000_000
PROGRESS_NS = 250_000_000  # progress is weighed (is a save due?) four times a second


@dataclass(frozen=True, slots=True)
class Duties:
    """What the conductor does to the world: `commit` and `confirm` raise, the others must not.

    `commit` writes a manifest, and `confirm` looks whether the run is still ours: only then the set
    counts. `overdue`: the deadline is over, and the script has not left. `make_room`: a step could
    not be saved. `hold`: nor the last one, which is tried again.
    """

    commit: Callable[[int], None]
    confirm: Callable[[], None]
    upkeep: Callable[[], None]
    note_stop: Callable[[str, int | None], None]
    overdue: Callable[[], None]
    make_room: Callable[[], None]
    hold: Callable[[news.Hold], None]


@dataclass(frozen=True, slots=True)
class Reading:
    """What the conductor goes by: one rank's words, read at one instant."""

    step: int
    loop_ended: bool
    copied: Agreed
    durable: Agreed
    failed: Agreed
    taken: Agreed
    save_asked: int
    save_blocked_ns: int

    @classmethod
    def of(cls, words: RankWords) -> Reading:
        """A rank's own page."""
        return cls(
            step=words.step,
            loop_ended=words.phase in (Phase.LOOP_ENDED, Phase.FINISHED),
            copied=words.copied,
            durable=words.durable,
            failed=words.failed,
            taken=words.taken,
            save_asked=words.save_asked,
            save_blocked_ns=words.save_blocked_ns,
        )


class Others:
    """The other ranks: here, that there are none. `session.followers` has the real ones."""

    def turn(self, at_ns: int, *, hurried: bool) -> None:
        """Take in what they said, and have them told what is new."""

    def readings(self) -> Mapping[int, Reading]:
        """The newest words of those that are there."""
        return {}

    def gone(self, at_ns: int, waited_since_ns: int | None) -> tuple[int, ...]:
        """Ranks that nobody should wait for any more, each once; others wait since that time."""
        del at_ns, waited_since_ns
        return ()

    def stop_asked(self) -> tuple[str, int | None] | None:
        """A stop that one of them was asked for: the source, and the deadline if it has one."""
        return None

    def tell(self, word: Word, value: int, store: Callable[[], None]) -> None:
        """Give them an order or a verdict, then `store` it for this rank."""
        del word, value
        store()


class Conductor:
    """One thread; `ask_stop` may be called from a signal handler."""

    def __init__(
        self, words: WordsPage, saving: Saving, duties: Duties, others: Others | None = None
    ) -> None:
        self._words = words
        self._saving = saving
        self._duties = duties
        self._others = others or Others()
        self._before = [news.RankWords()] * saving.ranks
        self._stop_asked: tuple[str, int | None] | None = None
        self._save_wanted = ""  # by somebody outside, and why
        self._stop_noted = False
        self._stop_begun = False
        self._stop_told: tuple[str, int | None] | None = None
        self._wake = threading.Event()
        self._ending = False
        self._asked = Asked()
        self._unconfirmed: news.Commit | None = None  # its manifest is there
        self._waited_since_ns: int | None = None
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
        for rank in range(self._saving.ranks):
            self._saving.join(rank)
        self._before = [news.RankWords(step=resume_step)] * self._saving.ranks
        self._conducting = True

    def ask_stop(self, source: str, deadline_ns: int | None) -> None:
        """Save at the next boundary and leave. Only the first call counts."""
        if self._stop_asked is None:
            self._stop_asked = (source, deadline_ns)

    def ask_save(self, why: str) -> None:
        """Save at the next boundary that all ranks can answer."""
        self._save_wanted = why

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
                say(f"The conductor failed with an internal error: {error!r}; training goes on")
        self._turn(now_ns())

    def _is_hurried(self) -> bool:
        return self._saving.is_active or self._stop_asked is not None

    def _turn(self, at_ns: int) -> None:
        self._words.store(Word.SUPERVISOR_ALIVE_AT, at_ns)
        self._others.turn(at_ns, hurried=self._is_hurried())
        elsewhere = self._others.stop_asked()
        if elsewhere is not None:
            self._stop_asked = _sooner(self._stop_asked, elsewhere)
        if self._conducting:
            self._conduct(at_ns)
        if at_ns >= self._next_upkeep_ns:
            self._next_upkeep_ns = at_ns + UPKEEP_NS
            self._duties.upkeep()
            self._confirm(is_first=False)
        _, deadline_ns = self._stop_asked or ("", None)
        if deadline_ns is not None and at_ns > deadline_ns and not self._ending:
            self._duties.overdue()

    def _conduct(self, at_ns: int) -> None:
        stop_asked = self._stop_asked  # by a signal at any moment: first that, then what is done
        own = Reading.of(self._words.snapshot())
        asked = not self._asked.is_heard(0, own.save_asked)
        wanted, self._save_wanted = self._save_wanted, ""
        with_progress = (
            self._is_hurried() or asked or bool(wanted) or at_ns >= self._next_progress_ns
        )
        if with_progress:
            self._next_progress_ns = at_ns + PROGRESS_NS
        readings = {0: own, **self._others.readings()}
        for rank, reading in readings.items():
            self._hear(at_ns, rank, reading, with_progress=with_progress or rank > 0)
        self._hear_of_the_gone(at_ns)
        if stop_asked is not None:
            self._begin_stop(at_ns, stop_asked)
        for rank, reading in readings.items():
            self._ask(at_ns, rank, reading)
        if wanted:
            self._do(self._saving.ask(at_ns, wanted))
        wake_ns = self._saving.wake_at_ns
        if wake_ns is not None and wake_ns <= at_ns:
            self._do(self._saving.hear(news.Tick(at_ns)))

    def _hear(self, at_ns: int, rank: int, reading: Reading, *, with_progress: bool) -> None:
        before = self._before[rank]
        step = before.step
        if with_progress or reading.loop_ended:
            # Before the first step the step word is 0, whatever was restored.
            step = max(reading.step, step)
        now = news.RankWords(
            step=step,
            loop_ended=reading.loop_ended,
            copied=reading.copied,
            durable=reading.durable,
            failed=reading.failed,
            taken=reading.taken,
        )
        if now.copied != before.copied:
            self._saving.note_cost(reading.save_blocked_ns)
        self._before[rank] = now
        for event in news.changes(at_ns, rank, before, now):
            self._do(self._saving.hear(event))

    def _hear_of_the_gone(self, at_ns: int) -> None:
        """Ranks that are gone: nobody waits for them, and what waits must hear of it."""
        if not self._stop_begun and not any(words.loop_ended for words in self._before):
            self._waited_since_ns = None
        elif self._waited_since_ns is None:
            self._waited_since_ns = at_ns
        for rank in self._others.gone(at_ns, self._waited_since_ns):
            self._do(self._saving.hear(news.RankGone(at_ns, rank)))

    def _begin_stop(self, at_ns: int, asked: tuple[str, int | None]) -> None:
        if not self._stop_noted:
            self._stop_noted = True
            self._duties.note_stop(*asked)
        if not self._stop_begun:
            if self._saving.ranks > 1 and self._is_saved():
                # One rank would leave at its boundary, while the others wait for it in the next
                # step's collective. Once all have done a step, all can save one and leave.
                return
            self._stop_begun = True
            self._stop_told = asked
            self._do(self._saving.stop(at_ns, *asked))
        elif asked != self._stop_told:
            self._stop_told = asked
            self._do(self._saving.stop(at_ns, *asked))

    def _is_saved(self) -> bool:
        return self._saving.agreement.is_saved and not self._saving.is_over

    def _ask(self, at_ns: int, rank: int, reading: Reading) -> None:
        """A script may have asked for a save, in the step after the one that it has published."""
        if self._asked.is_heard(rank, reading.save_asked):
            return
        agreement = self._saving.agreement
        ordered = max(agreement.step if self._saving.is_active else 0, agreement.committed_step)
        if self._asked.is_new(rank, reading.save_asked, reading.step, ordered):
            self._do(self._saving.ask(at_ns, "the script asked for it", in_step=True))

    def _do(self, actions: tuple[news.Action, ...]) -> None:
        page = self._words
        for action in actions:
            if isinstance(action, news.PublishOrder):
                packed = pack(action.epoch, action.step, action.flags)
                self._others.tell(Word.ORDER, packed, partial(page.store, Word.ORDER, packed))
            elif isinstance(action, news.PublishVerdict):
                packed = pack(action.epoch, action.step, action.flags)
                self._others.tell(Word.VERDICT, packed, partial(_store_verdict, page, packed))
            elif isinstance(action, news.Commit):
                self._commit(action)
            elif isinstance(action, news.MakeRoom):
                self._duties.make_room()
            elif isinstance(action, news.Hold):
                self._duties.hold(action)

    def _commit(self, action: news.Commit) -> None:
        try:
            self._duties.commit(action.step)
        except (HoldfastError, OSError) as error:
            self._commit_failed(action, error)
        else:
            self._unconfirmed = action
            self._confirm(is_first=True)

    def _confirm(self, *, is_first: bool) -> None:
        """Tell a set as durable once the run is known to be ours after its manifest was written."""
        action = self._unconfirmed
        if action is None:
            return
        try:
            self._duties.confirm()
        except RunHeld as error:
            self._commit_failed(action, error)
        except (HoldfastError, OSError) as error:  # whose the run is now, nobody knows: wait
            if is_first:
                say(f"The checkpoint of step {action.step} does not count yet: {error}")
        else:
            self._unconfirmed = None
            self._do(self._saving.hear(news.Committed(now_ns(), action.epoch, action.step)))

    def _commit_failed(self, action: news.Commit, error: Exception) -> None:
        self._unconfirmed = None
        say(f"The checkpoint of step {action.step} could not be completed: {error}")
        failed = news.CommitFailed(now_ns(), action.epoch, action.step, str(error))
        self._do(self._saving.hear(failed))


def _store_verdict(page: WordsPage, packed: int) -> None:
    verdict = unpack(packed)
    if verdict.flags & Order.COMMITTED:
        page.store(Word.COMMITTED, verdict.step)
    page.store(Word.VERDICT, packed)


def _sooner(
    one: tuple[str, int | None] | None, other: tuple[str, int | None]
) -> tuple[str, int | None]:
    """The stop that was asked for first keeps its name; the nearer deadline holds."""
    if one is None:
        return other
    deadlines = [deadline for _, deadline in (one, other) if deadline is not None]
    return one[0], min(deadlines, default=None)
