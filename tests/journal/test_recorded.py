"""A run's folder to its account: the vectorised way of files, against the plain ledger."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_ledger import account as plain_account

from holdfast.core.ledger.facts import RunFact, StepsFact
from holdfast.errors import JournalError
from holdfast.journal import writer as writer_module
from holdfast.journal.clocks import ClockPair
from holdfast.journal.layout import CONTROLLER_RANK, Flag, Identity, Kind, NoteType
from holdfast.journal.recorded import export_facts, load_run
from holdfast.journal.writer import JournalWriter

S = 1_000_000_000
UNIX = 1_700_000_000 * S


def a_run(root, rng: np.random.Generator, attempts: int, ranks: int) -> None:
    """A run with failures, saves, data waits and fallbacks, as its processes would write it."""

    def make(path, attempt, rank) -> JournalWriter:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        identity = Identity("run", attempt, f"{attempt}/{rank}", 0, "host", rank, "boot")
        return JournalWriter.create(root / path, identity)

    def fact(what, /, **payload) -> None:
        controller.note(NoteType.FACT, {"fact": what, **payload})

    def some() -> int:
        return int(rng.integers(1, 5 * S))

    controller = make("journal/controller-1.hfj", 0, CONTROLLER_RANK)
    fact("run", name="run", requested_ns=some(), chips=int(rng.integers(1, 9)))
    now, done = 10 * S, 0
    for attempt in range(attempts):
        start = now
        fact("attempt_start", attempt=attempt, at_ns=start)
        writers = [
            make(f"attempts/{attempt:04d}/journal/rank-{rank:05d}.hfj", attempt, rank)
            for rank in range(ranks)
        ]
        resume = int(rng.integers(0, done + 1))
        count = int(rng.integers(0, 7))
        ends = []
        for writer in writers:
            at = start + some()
            writer.record_restore(at, at + 5, resume, attempt - 1 if attempt and resume else None)
            at += 5
            writer.append(at, Kind.STEP_BEGIN, 0, 0, resume + 1, 0)
            for step in range(resume + 1, resume + 1 + count):
                end = at + some()
                if rng.random() < 0.5:
                    writer.record_span("data", at, at + (end - at) // 3)
                if rng.random() < 0.3:
                    writer.record_span("evaluation", at + (end - at) // 2, end)
                writer.append(end, Kind.STEP, Flag.CONTINUES, 7, step, at)
                at = end
            ends.append(at)
            writer.close()
        done = resume + count if count else done
        now = max(ends) + some()
        if rng.random() < 0.7:
            fact("fault", attempt=attempt, at_ns=now, detected_ns=now + S, cause="failed")
            now += 2 * S
        if rng.random() < 0.9 or attempt < attempts - 1:
            cause = "done" if attempt == attempts - 1 and rng.random() < 0.5 else "failed"
            fact("attempt_end", attempt=attempt, at_ns=now, cause=cause)
        if rng.random() < 0.5:
            fact("wait", kind="backoff", start_ns=now, end_ns=now + S)
        controller.append(now, Kind.SEEN, 0, 0, 0, 0)
        now += 3 * S
    controller.close()


@settings(max_examples=40)
@given(st.integers(0, 1 << 32), st.integers(1, 4), st.integers(1, 3), st.integers(0, 200))
def test_files_to_account_is_what_the_plain_ledger_says(
    tmp_path_factory, seed, attempts, ranks, now_s
):
    root = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer_module, "read_clock_pair", lambda: ClockPair(0, UNIX))
        a_run(root, np.random.default_rng(seed), attempts, ranks)
    recorded = load_run(root)
    facts = list(export_facts(recorded))
    (run,) = [fact for fact in facts if isinstance(fact, RunFact)]
    assert run.requested_ns == 0
    origin_ns = recorded.facts.requested_ns
    assert origin_ns is not None
    now_ns = now_s * S
    ours = recorded.account(origin_ns + now_ns)
    plain = plain_account(facts, now_ns)
    assert ours.kinds == plain.kinds
    assert ours.elapsed_ns == plain.elapsed_ns
    assert (ours.steps_kept, ours.lost_steps) == (plain.steps_kept, plain.lost_steps)
    assert [d.to_json() | {"at_s": 0, "resumed_s": 0} for d in ours.disruptions] == [
        d.to_json() | {"at_s": 0, "resumed_s": 0} for d in plain.disruptions
    ]


def test_refreshed_is_what_a_cold_reader_says(make_writer, tmp_path):
    writers = [
        make_writer(f"attempts/0000/journal/rank-0000{rank}.hfj", rank=rank, clock=(0, UNIX))
        for rank in range(2)
    ]
    writers[0].note(NoteType.FACT, {"fact": "run", "name": "r", "requested_ns": 0, "chips": 2})
    rng = np.random.default_rng(5)
    at = [S, S]
    recorded = load_run(tmp_path)
    for step in range(1, 60):
        for rank in rng.permutation(2):
            end = at[rank] + int(rng.integers(1, S))
            if rng.random() < 0.3:
                writers[rank].record_span("data", at[rank], end - 1)
            writers[rank].append(end, Kind.STEP, Flag.CONTINUES, 0, step, at[rank])
            at[rank] = end
            recorded.refresh()
        if step % 10 == 0:
            now_ns = UNIX + max(at)
            assert recorded.account(now_ns) == load_run(tmp_path).account(now_ns)


def test_a_rank_that_turns_up_late_is_taken_in(make_writer, tmp_path):
    first = make_writer("attempts/0000/journal/rank-00000.hfj", clock=(0, UNIX))
    for step in range(1, 11):
        first.append(step * S, Kind.STEP, Flag.CONTINUES, 0, step, (step - 1) * S + 1)
    recorded = load_run(tmp_path)
    assert recorded.account(UNIX + 20 * S).steps_kept == 10
    second = make_writer("attempts/0000/journal/rank-00001.hfj", rank=1, clock=(0, UNIX))
    for step in range(1, 4):
        second.append(step * S, Kind.STEP, Flag.CONTINUES, 0, step, (step - 1) * S + 1)
    recorded.refresh()
    assert recorded.account(UNIX + 20 * S).steps_kept == 3


def test_a_check_tells_a_reading_that_went_wrong_and_goes_on_with_a_right_one(
    make_writer, tmp_path
):
    writer = make_writer("attempts/0000/journal/rank-00000.hfj", clock=(0, UNIX))
    for step in range(1, 101):
        writer.append(step * S, Kind.STEP, Flag.CONTINUES, 0, step, (step - 1) * S + 1)
    recorded = load_run(tmp_path)
    assert recorded.check()
    right = recorded.account(UNIX + 100 * S)
    recorded.ledger.add_few(0, [], "save", [(UNIX + 5 * S, UNIX + 8 * S)])
    assert recorded.account(UNIX + 100 * S) != right
    assert not recorded.check()
    assert recorded.account(UNIX + 100 * S) == right
    assert recorded.check()


def test_exported_times_are_exact_as_seconds(make_writer, tmp_path):
    writer = make_writer("attempts/0000/journal/rank-00000.hfj", clock=(9, UNIX + 9))
    writer.note(NoteType.FACT, {"fact": "run", "name": "r", "requested_ns": 3, "chips": 1})
    writer.append(90 * 86_400 * S + 7, Kind.STEP, 0, 0, 1, 90 * 86_400 * S + 3)
    recorded = load_run(tmp_path)
    (step,) = [fact for fact in export_facts(recorded) if isinstance(fact, StepsFact)]
    assert step.end_ns == 90 * 86_400 * S + 4
    assert round(float(f"{step.end_ns / S!r}") * S) == step.end_ns


def test_an_empty_run_is_a_sentence(tmp_path):
    recorded = load_run(tmp_path)
    with pytest.raises(JournalError, match="nothing was recorded yet"):
        recorded.account()
    assert list(export_facts(recorded)) == []
