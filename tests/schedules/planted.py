"""Mistakes in the core that random schedules must find: each is one line that somebody could write.

`PLANTED` maps a name to what puts the mistake in place: a list of (where, name, what instead).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any
from unittest.mock import patch

import play  # noqa: F401 - it knows where the next two are
import watch

from holdfast.core import actions as act
from holdfast.core import event_json, records
from holdfast.core import events as ev
from holdfast.core.hosts.reader import ReportReader
from holdfast.core.run import before, restart
from holdfast.core.run import course as run_course
from holdfast.core.run import machine as run
from holdfast.core.run.machine import State
from holdfast.core.save import agree, choose, word
from holdfast.core.save import agree_moves as moves
from holdfast.core.save import events as news
from holdfast.core.save.agree import AgreementPhase
from holdfast.core.save.choose import Chain
from holdfast.core.save.flushes import Flushes
from holdfast.core.save.memory import Buffers, MemoryTier
from holdfast.core.save.ranks import Ranks
from holdfast.core.save.saving import Saving
from holdfast.core.save.word import Answer, Order
from holdfast.sim.virtual import ranks as virtual_ranks
from holdfast.sim.virtual import store as virtual_store

Patches = list[tuple[Any, str, Any]]


@contextmanager
def planted(name: str) -> Iterator[None]:
    """The core with that mistake."""
    made = PLANTED[name]()
    patches = [
        patch.dict(where, {key: what})
        if isinstance(where, dict)
        else patch.object(where, key, what)
        for where, key, what in made
    ]
    for one in patches:
        one.start()
    try:
        yield
    finally:
        for one in reversed(patches):
            one.stop()


# --- the agreement -------------------------------------------------------------------------------


def _steps_are_not_compared() -> Patches:
    def at_boundary(n: int, order: int, answered: int, at_loop_end: bool = False) -> Any:
        epoch, flags, step = word.unpack(order)
        if epoch not in (0, answered) and not flags & Order.LEAVE and n >= step:
            return Answer.SNAPSHOT, "from S on"
        return word.at_boundary(n, order, answered, at_loop_end)

    def judge(state: Any, rank: int, at_ns: int) -> Any:
        if not state.ranks.have_answered:
            return ()
        state.step = state.ranks.answers[0]
        return moves.agreed(state, at_ns)

    return [(virtual_ranks, "at_boundary", at_boundary), (moves, "judge", judge)]


def _commits_when_the_first_is_durable() -> Patches:
    def written(state: Any) -> Any:
        if not state.ranks.durable:
            return ()
        state.phase = AgreementPhase.COMMITTING
        return (news.Commit(state.epoch, state.step),)

    return [(moves, "written", written)]


def _ranks_leave_before_the_commit() -> Patches:
    return [(virtual_ranks, "while_waiting", lambda *_: (Answer.LEAVE_SAVED, "I have copied mine"))]


def _never_orders_again() -> Patches:
    return [(moves, "miss", lambda *_: ())]


def _an_epoch_is_used_twice() -> Patches:
    return [(moves, "_after", lambda epoch: max(1, epoch))]


def _what_is_taken_counts_as_copied() -> Patches:
    return [(Ranks, "have_copied", property(lambda self: self.have_answered))]


def _what_is_taken_counts_as_missed() -> Patches:
    def judge(state: Any, rank: int, at_ns: int) -> Any:
        ranks = state.ranks
        if ranks.steps[rank] > state.step and rank not in ranks.copied:
            return moves.miss(state, at_ns, "past it, and not copied")
        return real(state, rank, at_ns)

    real = moves.judge
    return [(moves, "judge", judge)]


def _a_copy_under_way_is_overwritten() -> Patches:
    return [(Ranks, "unwritten", lambda self, buffers: buffers)]


def _an_order_forgets_who_copies() -> Patches:
    def ask(self: Ranks, ordered: int) -> None:
        real(self, ordered)
        self.copying, self.writers = {}, {}

    real = Ranks.ask
    return [(Ranks, "ask", ask)]


def _a_copy_that_failed_is_waited_for() -> Patches:
    return [(agree.TABLE[news.SaveFailed], AgreementPhase.COPYING, agree._note_over)]


# --- the memory tier -----------------------------------------------------------------------------


def _overwrites_what_is_sealed() -> Patches:
    free = Buffers.free
    return [(Buffers, "free", lambda self, pinned=(): free(self._replace(sealing=()), pinned))]


def _overwrites_what_is_flushed() -> Patches:
    free = Buffers.free
    return [(Buffers, "free", lambda self, pinned=(): free(self))]


def _gives_the_newest_away() -> Patches:
    free = Buffers.free
    return [(Buffers, "free", lambda self, pinned=(): free(self._replace(sealed=()), pinned))]


def _flushes_another_branch() -> Patches:
    def begin(self: Buffers, restored: Any) -> Buffers:
        return self._replace(in_all=0, opened=None)

    return [(Buffers, "begin", begin)]


def _manifest_after_one_shard() -> Patches:
    return [(Flushes, "is_committing", property(lambda self: bool(self.durable)))]


def _ends_with_memory_ahead() -> Patches:
    never = lambda _, __: False  # noqa: E731
    return [(MemoryTier, "is_pending", never), (MemoryTier, "is_ahead", never)]


# --- the run -------------------------------------------------------------------------------------


def _restarts_before_the_tree_is_gone() -> Patches:
    def on_rank_exited(course: Any, event: ev.RankExited) -> list[act.Action]:
        course.state = State.CHOOSING
        return [act.Kill("a rank was lost"), act.Choose()]

    return [(run.TABLE[State.RUNNING], ev.RankExited, run.Transition(on_rank_exited))]


def _no_back_off() -> Patches:
    def decide(self: Any, failures: Any, now_ns: int) -> Any:
        return restart.Restart(0), "at once"

    return [(restart.BackOff, "decide", decide)]


def _budget_is_one_too_large() -> Patches:
    real = restart.Budget.decide

    def decide(self: restart.Budget, failures: Any, now_ns: int) -> Any:
        return real(replace(self, failures=self.failures + 1), failures, now_ns)

    return [(restart.Budget, "decide", decide)]


def _the_fastest_rank_is_progress() -> Patches:
    return [(Saving, "slowest_step", Saving.fastest_step)]


def _a_wish_is_granted_twice() -> Patches:
    def settle(self: Any) -> Any:
        standing = self.standing
        found = real(self)
        self.standing = standing
        return found

    real = run_course.rollback.Rollbacks.settle
    return [(run_course.rollback.Rollbacks, "settle", settle)]


def _a_late_answer_is_a_bug() -> Patches:
    return [(run, "LATE", run.LATE - {ev.Heard, ev.Joined, ev.BuffersReady})]


def _a_branch_comes_back() -> Patches:
    """What an attempt on the lineage made after the line forked counts again."""

    def on_chain(chain: Chain, attempt: int, step: int) -> bool:
        return attempt in {one for one, _ in chain}

    return [(choose, "on_chain", on_chain)]


# --- hosts, ledger, journal ----------------------------------------------------------------------


def _an_end_is_forgotten() -> Patches:
    return [(virtual_store, "training_end", lambda *_: None)]


def _who_goes_back_is_told_it_is_over() -> Patches:
    def choose_set(seen: Any, wish: Any, *more: Any) -> Any:
        chosen, words = real(seen, wish, *more)
        end = seen.training_end
        if end is not None and isinstance(chosen, choose.Resume) and chosen.step == end.step:
            chosen = replace(chosen, ended_until=end.until)
        return chosen, words

    real = before.choose_set
    return [(before, "choose_set", choose_set)]


def _an_attempt_ends_too_late() -> Patches:
    real = records.attempt_end
    late = lambda attempt, at_ns, cause: real(attempt, at_ns + 10**9, cause)  # noqa: E731
    return [(records, "attempt_end", late)]


def _the_journal_forgets() -> Patches:
    def encode(event: ev.Event) -> dict[str, Any]:
        told = real(event)
        if "exit" in told:
            told["exit"]["finished"] = False
        return told

    real = event_json.encode
    return [(watch, "encode", encode)]


def _decides_by_something_else() -> Patches:
    numbers = count()
    real = restart.AllOf.decide

    def decide(self: Any, failures: Any, now_ns: int) -> Any:
        decision, why = real(self, failures, now_ns)
        return decision, f"{why} ({next(numbers)})"

    return [(restart.AllOf, "decide", decide)]


# --- hosts ----------------------------------------------------------------------------------------


def _hosts_without_a_part_are_asked() -> Patches:
    def begin(reader: Any, launch: Any) -> None:
        real(reader, launch)
        reader._to_launch = reader._to_go = len(reader._hosts)

    real = ReportReader.begin
    return [(ReportReader, "begin", begin)]


def _a_host_that_was_lost_is_waited_for() -> Patches:
    return [(ReportReader, "_speak_for_the_lost", lambda _: None)]


PLANTED: dict[str, Callable[[], Patches]] = {
    make.__name__.strip("_").replace("_", " "): make
    for make in (
        _steps_are_not_compared, _commits_when_the_first_is_durable,
        _ranks_leave_before_the_commit, _never_orders_again, _an_epoch_is_used_twice,
        _what_is_taken_counts_as_copied, _what_is_taken_counts_as_missed,
        _a_copy_under_way_is_overwritten, _an_order_forgets_who_copies,
        _a_copy_that_failed_is_waited_for,
        _overwrites_what_is_sealed, _overwrites_what_is_flushed, _gives_the_newest_away,
        _flushes_another_branch, _manifest_after_one_shard, _ends_with_memory_ahead,
        _restarts_before_the_tree_is_gone, _no_back_off, _budget_is_one_too_large,
        _the_fastest_rank_is_progress, _a_wish_is_granted_twice, _a_late_answer_is_a_bug,
        _a_branch_comes_back, _an_attempt_ends_too_late, _the_journal_forgets,
        _decides_by_something_else, _hosts_without_a_part_are_asked,
        _a_host_that_was_lost_is_waited_for, _an_end_is_forgotten,
        _who_goes_back_is_told_it_is_over,
    )
}  # fmt: skip
