"""From journal files, written by the real writer, to the facts of the run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from holdfast.core.history.line import to_lines
from holdfast.core.history.text import parse_text
from holdfast.core.ledger.facts import (
    AttemptFact,
    CapacityFact,
    FaultFact,
    NoticeFact,
    RestoreFact,
    RunFact,
    SeenFact,
    SpanFact,
    StepsFact,
    WaitFact,
)
from holdfast.core.ledger.incremental import Ledger
from holdfast.errors import JournalError
from holdfast.journal.attempts import AttemptEnd, create_attempt, end_attempt
from holdfast.journal.facts.attempts import SUPERVISOR_LOST
from holdfast.journal.facts.lines import AnnouncedEvent
from holdfast.journal.facts.run import RunFacts
from holdfast.journal.layout import CONTROLLER_RANK, Flag, Kind, NoteType, Word
from holdfast.journal.recorded import export_facts, load_run
from holdfast.journal.store import RunStore

S = 1_000_000_000


class Told:
    """A sink: everything told, steps written out; of an attempt or the run the last counts."""

    def __init__(self) -> None:
        self.facts = []
        self.open = {}

    def add(self, facts) -> None:
        self.facts += facts

    def add_steps(self, attempt, first, last, start_ns, end_ns) -> None:
        columns = (first.tolist(), last.tolist(), start_ns.tolist(), end_ns.tolist())
        self.facts += (StepsFact(attempt, *row) for row in zip(*columns, strict=True))

    def add_spans(self, attempt, kinds, kind, start_ns, end_ns) -> None:
        columns = (kind.tolist(), start_ns.tolist(), end_ns.tolist())
        self.facts += (SpanFact(attempt, kinds[k], s, e) for k, s, e in zip(*columns, strict=True))

    def set_open(self, attempt, spans, step) -> None:
        self.open[attempt] = (list(spans), step)

    def of(self, kind) -> list:
        facts = [fact for fact in self.facts if isinstance(fact, kind)]
        if kind is RunFact:
            return facts[-1:]
        if kind is AttemptFact:
            return list({fact.attempt: fact for fact in facts}.values())
        return facts


def rank_file(attempt, rank=0) -> str:
    return f"attempts/{attempt:04d}/journal/rank-{rank:05d}.hfj"


def steps(writer, first, last, start, each) -> int:
    for step in range(first, last + 1):
        writer.append(start + each, Kind.STEP, Flag.CONTINUES, 0, step, start)
        start += each
    return start


def fact(writer, what, /, **payload) -> None:
    writer.note(NoteType.FACT, {"fact": what, **payload})


@pytest.fixture
def controller(make_writer):
    return make_writer("journal/controller-1.hfj", rank=CONTROLLER_RANK, clock=(0, 1000 * S))


def told_of(tmp_path) -> Told:
    told = Told()
    RunFacts(tmp_path, told).refresh()
    return told


def test_a_supervised_run_from_end_to_end(make_writer, controller, tmp_path):
    at = 1000 * S  # boottime 0 on the run-wide clock
    fact(controller, "run", name="demo", requested_ns=1 * S, chips=4)
    fact(controller, "attempt_start", attempt=0, at_ns=2 * S)
    first = make_writer(rank_file(0), clock=(3 * S, 1003 * S))
    first.record_restore(3 * S, 4 * S, 0)
    first.append(4 * S, Kind.STEP_BEGIN, 0, 0, 1, 0)
    end = steps(first, 1, 10, 4 * S, S)
    first.record_span("data", 5 * S, 6 * S)
    first.record_span("evaluation", 7 * S, 8 * S)
    controller.append(15 * S, Kind.SEEN, 0, 0, 0, 0)
    fact(controller, "notice", at_ns=13 * S, deadline_ns=None, source="SIGTERM")
    fact(controller, "fault", attempt=0, at_ns=end, detected_ns=end + S, cause="failed")
    fact(controller, "attempt_end", attempt=0, at_ns=16 * S, cause="failed")
    fact(controller, "wait", kind="backoff", start_ns=16 * S, end_ns=20 * S)
    fact(controller, "attempt_start", attempt=1, at_ns=20 * S)
    second = make_writer(rank_file(1), attempt=1, clock=(21 * S, 1021 * S))
    second.record_restore(21 * S, 22 * S, 8, 0)
    end = steps(second, 9, 12, 22 * S, S)
    second.append(end, Kind.LOOP_END, 0, 0, 12, 0)
    fact(controller, "attempt_end", attempt=1, at_ns=27 * S, cause="done")
    fact(controller, "run_end", at_ns=27 * S)
    fact(controller, "capacity", at_ns=20 * S, chips=3)
    told = told_of(tmp_path)
    assert told.of(RunFact) == [RunFact("demo", at + S, at + 27 * S, 4)]
    assert told.of(AttemptFact) == [
        AttemptFact(0, at + 2 * S, at + 16 * S, "failed"),
        AttemptFact(1, at + 20 * S, at + 27 * S, "done"),
    ]
    assert told.of(RestoreFact) == [
        RestoreFact(0, at + 3 * S, at + 4 * S, 0, None),
        RestoreFact(1, at + 21 * S, at + 22 * S, 8, 0),
    ]
    assert told.of(SpanFact) == [
        SpanFact(0, "data", at + 5 * S, at + 6 * S),
        SpanFact(0, "custom:evaluation", at + 7 * S, at + 8 * S),
    ]
    assert told.of(WaitFact) == [WaitFact("backoff", at + 16 * S, at + 20 * S)]
    assert told.of(FaultFact) == [FaultFact(0, at + 14 * S, at + 15 * S, "failed")]
    assert told.of(NoticeFact) == [NoticeFact(at + 13 * S, None, "SIGTERM")]
    assert told.of(CapacityFact) == [CapacityFact(at + 20 * S, 3)]
    assert told.of(SeenFact) == [SeenFact(at + 15 * S)]
    completed = told.of(StepsFact)
    assert [(f.attempt, f.first) for f in completed] == [
        *((0, n) for n in range(1, 11)),
        *((1, n) for n in range(9, 13)),
    ]
    assert completed[0] == StepsFact(0, 1, 1, at + 4 * S, at + 5 * S)
    assert told.open == {0: ([], (11, at + 14 * S))}


def test_a_bare_session_says_everything_in_its_own_file(make_writer, tmp_path):
    writer = make_writer(rank_file(0), clock=(5, 105))
    fact(writer, "run", name="bare", requested_ns=1, chips=1)
    fact(writer, "attempt_start", attempt=0, at_ns=2)
    steps(writer, 1, 3, 10, 10)
    fact(writer, "attempt_end", attempt=0, at_ns=45, cause="preempted")
    told = told_of(tmp_path)
    assert told.of(RunFact) == [RunFact("bare", 101, None, 1)]
    assert told.of(AttemptFact) == [AttemptFact(0, 102, 145, "preempted")]


def test_wall_clock_steps_within_a_boot_move_nothing(make_writer, tmp_path):
    first = make_writer(rank_file(0), clock=(100, 10_100))
    steps(first, 1, 2, 200, 50)
    second = make_writer(rank_file(1), attempt=1, clock=(1000, 999_999_000))  # set, hours ahead
    steps(second, 3, 4, 2000, 50)
    told = told_of(tmp_path)
    ends = [f.end_ns for f in told.of(StepsFact)]
    assert ends == [10_250, 10_300, 12_050, 12_100]


def test_two_boots_meet_on_one_clock(make_writer, tmp_path):
    first = make_writer(rank_file(0), boot="monday", clock=(5_000 * S, 1_000_000 * S))
    steps(first, 1, 2, 5_001 * S, S)
    second = make_writer(rank_file(1), attempt=1, boot="tuesday", clock=(7 * S, 1_000_100 * S))
    steps(second, 3, 4, 8 * S, S)
    told = told_of(tmp_path)
    ends = [f.end_ns // S for f in told.of(StepsFact)]
    assert ends == [1_000_002, 1_000_003, 1_000_102, 1_000_103]


def test_an_attempt_whose_supervisor_was_lost_ends_with_its_last_sign_of_life(
    make_writer, controller, tmp_path
):
    at = 1000 * S
    fact(controller, "run", name="r", requested_ns=0, chips=1)
    fact(controller, "attempt_start", attempt=0, at_ns=1 * S)
    first = make_writer(rank_file(0), clock=(2 * S, 1002 * S))
    end = steps(first, 1, 5, 3 * S, S)
    first.page.store(Word.OWNER_ALIVE_AT, end + S)
    fact(controller, "attempt_start", attempt=1, at_ns=500 * S)
    told = told_of(tmp_path)
    assert told.of(AttemptFact) == [
        AttemptFact(0, at + 1 * S, at + end + S, SUPERVISOR_LOST),
        AttemptFact(1, at + 500 * S, None, None),
    ]


@pytest.mark.parametrize("is_launched", [True, False])
def test_a_controller_that_comes_days_later_is_no_sign_of_life_of_what_died_before(
    make_writer, tmp_path, *, is_launched
):
    """It shows life before it launches, and waits for its hosts perhaps. The time is nobody's."""
    day = 86_400 * S
    folder = RunStore(tmp_path).create("r")
    create_attempt(folder, 0, parent=None, resume_step=0, restore_set=None)
    where = f"r/attempts/0000/journal/{Path(rank_file(0)).name}"
    known = {"rank": CONTROLLER_RANK, "attempt": 1, "clock": (0, 1000 * S)}
    first = make_writer("r/journal/controller-000001.hfj", **known)
    fact(first, "run", name="r", requested_ns=0, chips=1)
    fact(first, "attempt_start", attempt=0, at_ns=1 * S)
    ranks = make_writer(where, clock=(2 * S, 1002 * S))
    end = steps(ranks, 1, 5, 3 * S, S)
    for at_ns in range(0, end + 3 * S, S):
        first.append(at_ns, Kind.SEEN, 0, 0, 0, 0)
    late = {"rank": CONTROLLER_RANK, "attempt": 2, "clock": (3 * day, 1000 * S + 3 * day)}
    second = make_writer("r/journal/controller-000002.hfj", **late)
    end_attempt(folder, 0, AttemptEnd("killed", "it died", (None,), 1000 * S + 3 * day))
    second.append(3 * day + S, Kind.SEEN, 0, 0, 0, 0)
    if is_launched:
        fact(second, "attempt_start", attempt=1, at_ns=3 * day + 2 * S)
    found = told_of(folder.path).of(AttemptFact)
    died_ns = 1000 * S + end + 2 * S
    assert found[0] == AttemptFact(0, 1001 * S, died_ns, SUPERVISOR_LOST)
    assert len(found) == 1 + is_launched


def test_what_an_attempt_was_lost_to_is_told_by_whoever_found_it_first(
    make_writer, controller, tmp_path
):
    at = 1000 * S
    fact(controller, "run", name="r", requested_ns=0, chips=1)
    fact(controller, "attempt_start", attempt=0, at_ns=1 * S)
    first = make_writer(rank_file(0), clock=(2 * S, 1002 * S))
    end = steps(first, 1, 5, 3 * S, S)
    laptop = {"rank": CONTROLLER_RANK, "boot": "boot-b", "clock": (0, 2000 * S)}
    second, third = (make_writer(f"journal/machines-{n}.hfj", **laptop) for n in "ab")
    fact(second, "attempt_lost", attempt=0, at_ns=-600 * S, cause="machine_preempted")
    fact(third, "attempt_lost", attempt=0, at_ns=-500 * S, cause="host_lost")
    facts = [AttemptFact(0, at + 1 * S, at + end, "machine_preempted")]
    assert told_of(tmp_path).of(AttemptFact) == facts  # though no other has begun
    fact(controller, "attempt_start", attempt=1, at_ns=500 * S)
    facts.append(AttemptFact(1, at + 500 * S, None, None))
    assert told_of(tmp_path).of(AttemptFact) == facts
    fact(controller, "attempt_end", attempt=0, at_ns=20 * S, cause="stopped")  # it knew better
    assert told_of(tmp_path).of(AttemptFact)[0].cause == "stopped"


def test_why_a_host_fell_silent_is_found_out_afterwards(make_writer, controller, tmp_path):
    fact(controller, "run", name="r", requested_ns=0, chips=1)
    for number in range(2):
        fact(controller, "attempt_start", attempt=number, at_ns=(100 * number + 1) * S)
        cause = ("host_lost", "hang")[number]
        fact(controller, "attempt_end", attempt=number, at_ns=(100 * number + 20) * S, cause=cause)
    assert [one.cause for one in told_of(tmp_path).of(AttemptFact)] == ["host_lost", "hang"]
    laptop = {"rank": CONTROLLER_RANK, "boot": "boot-b", "clock": (0, 2000 * S)}
    found = make_writer("journal/machines-a.hfj", **laptop)
    for number in range(2):
        fact(found, "attempt_lost", attempt=number, at_ns=0, cause="machine_maintenance")
    told = [one.cause for one in told_of(tmp_path).of(AttemptFact)]
    assert told == ["machine_maintenance", "hang"]


def test_waits_for_machines_before_the_run_has_said_anything(make_writer, controller, tmp_path):
    laptop = make_writer("journal/machines-a.hfj", rank=CONTROLLER_RANK, clock=(0, 1000 * S))
    fact(laptop, "wait", kind="queue", start_ns=3 * S, end_ns=7 * S)
    run = load_run(tmp_path)
    with pytest.raises(JournalError, match="nothing was recorded yet"):
        run.account()
    fact(controller, "run", name="r", requested_ns=1 * S, chips=2)
    fact(controller, "attempt_start", attempt=0, at_ns=9 * S)
    run.refresh()
    kinds = run.account(now_ns=1010 * S).kinds
    assert (kinds["queued:queue"], kinds["queued"]) == (2 * 4 * S, 2 * 4 * S)


def test_journals_about_machines_keep_no_controller_from_being_followed(
    make_writer, controller, tmp_path
):
    for name in "abc":
        make_writer(f"journal/machines-{name}.hfj", rank=CONTROLLER_RANK, clock=(0, 1000 * S))
    told = Told()
    facts = RunFacts(tmp_path, told)
    facts.refresh()
    fact(controller, "run", name="r", requested_ns=0, chips=1)
    facts.refresh()
    assert told.of(RunFact) == [RunFact("r", 1000 * S, None, 1)]


def test_an_attempt_that_left_no_journal_counts_by_its_record(tmp_path):
    """Killed between its record and its first process's first word: a start that failed."""
    store = tmp_path / "store"
    folder = RunStore(store).create("r")
    nothing = {"parent": None, "resume_step": 0, "restore_set": None}
    first = create_attempt(folder, 0, **nothing)
    told = told_of(folder.path)
    assert told.of(AttemptFact) == []  # it may yet be launched
    end_attempt(folder, 0, AttemptEnd("killed", "", (None,), first.created_unix_ns + S))
    second = create_attempt(folder, 1, **nothing)
    create_attempt(folder, 2, **nothing)
    told = told_of(folder.path)
    at, then = first.created_unix_ns, second.created_unix_ns
    assert told.of(AttemptFact) == [
        AttemptFact(0, at, at, "killed"),
        AttemptFact(1, then, then, SUPERVISOR_LOST),
    ]


def test_a_journal_before_one_that_is_missing_ends_where_it_did(make_writer, tmp_path):
    folder = RunStore(tmp_path).create("r")
    nothing = {"parent": None, "resume_step": 0, "restore_set": None}
    writer = make_writer(f"r/{rank_file(0)}", clock=(2 * S, 1002 * S))
    end = steps(writer, 1, 5, 3 * S, S)
    writer.page.store(Word.OWNER_ALIVE_AT, end)
    create_attempt(folder, 0, **nothing)
    create_attempt(folder, 1, **nothing)
    create_attempt(folder, 2, **nothing)
    told = told_of(folder.path)
    assert told.of(AttemptFact)[0] == AttemptFact(0, 1002 * S, 1000 * S + end, SUPERVISOR_LOST)


def test_a_run_end_is_void_if_an_attempt_starts_later(controller, tmp_path):
    fact(controller, "run", name="r", requested_ns=0, chips=1)
    fact(controller, "attempt_start", attempt=0, at_ns=1 * S)
    fact(controller, "attempt_end", attempt=0, at_ns=2 * S, cause="done")
    fact(controller, "run_end", at_ns=2 * S)
    told = Told()
    facts = RunFacts(tmp_path, told)
    facts.refresh()
    assert told.of(RunFact)[0].ended_ns == 1002 * S
    fact(controller, "attempt_start", attempt=1, at_ns=9 * S)
    facts.refresh()
    assert told.of(RunFact)[0].ended_ns is None


def controller_of(make_writer, epoch):
    name = f"journal/controller-{epoch:06d}.hfj"
    return make_writer(name, attempt=epoch, rank=CONTROLLER_RANK, clock=(0, 1000 * S))


def an_attempt(writer, number, start, end):
    fact(writer, "attempt_start", attempt=number, at_ns=start * S)
    fact(writer, "attempt_end", attempt=number, at_ns=end * S, cause="failed")


def kinds_of(run, now):
    return {kind: ns // S for kind, ns in run.account(1000 * S + now * S).kinds.items() if ns}


def test_a_back_off_under_way_is_one_at_once_and_ends_with_the_next_attempt(make_writer, tmp_path):
    first = controller_of(make_writer, 1)
    fact(first, "run", name="r", requested_ns=0, chips=1)
    an_attempt(first, 0, 1, 10)
    run = load_run(tmp_path)
    fact(first, "wait", kind="backoff", start_ns=10 * S, end_ns=None)
    run.refresh()
    assert kinds_of(run, 40) == {"queued": 1, "startup": 9, "backoff": 30}
    fact(first, "wait", kind="backoff", start_ns=10 * S, end_ns=42 * S)
    an_attempt(first, 1, 42, 50)
    run.refresh()
    assert kinds_of(run, 60) == {"queued": 1, "startup": 17, "backoff": 32, "reschedule": 10}


def test_a_supervisor_that_dies_in_a_back_off_waits_no_longer(make_writer, tmp_path):
    first = controller_of(make_writer, 1)
    fact(first, "run", name="r", requested_ns=0, chips=1)
    an_attempt(first, 0, 1, 10)
    fact(first, "wait", kind="backoff", start_ns=10 * S, end_ns=None)
    first.append(20 * S, Kind.SEEN, 0, 0, 0, 0)
    run = load_run(tmp_path)
    second = controller_of(make_writer, 2)
    fact(second, "run", name="r", requested_ns=0, chips=1)
    an_attempt(second, 1, 90, 100)
    run.refresh()
    wanted = {"queued": 1, "startup": 19, "backoff": 10, "reschedule": 70}
    assert kinds_of(run, 100) == kinds_of(load_run(tmp_path), 100) == wanted


def test_a_back_off_is_as_long_as_planned_or_as_its_supervisor_lived(make_writer, tmp_path):
    first = controller_of(make_writer, 1)
    fact(first, "run", name="r", requested_ns=0, chips=1)
    an_attempt(first, 0, 1, 10)
    fact(first, "wait", kind="backoff", start_ns=10 * S, end_ns=None, until_ns=40 * S)
    run = load_run(tmp_path)
    planned = {"queued": 1, "startup": 9, "backoff": 30}
    assert kinds_of(run, 40) == planned
    assert kinds_of(run, 100) == planned | {"reschedule": 60}  # it was killed
    first.append(45 * S, Kind.SEEN, 0, 0, 0, 0)
    run.refresh()
    late = planned | {"backoff": 35, "reschedule": 55}
    assert kinds_of(run, 100) == kinds_of(load_run(tmp_path), 100) == late
    second = controller_of(make_writer, 2)
    an_attempt(second, 1, 90, 100)
    run.refresh()
    late = {"queued": 1, "startup": 19, "backoff": 35, "reschedule": 45}
    assert kinds_of(run, 100) == kinds_of(load_run(tmp_path), 100) == late


def test_stopped_by_a_person_lasts_until_the_next_start_and_ends_the_run_at_once(
    make_writer, tmp_path
):
    first = controller_of(make_writer, 1)
    fact(first, "run", name="r", requested_ns=0, chips=1)
    first.append(9 * S, Kind.SEEN, 0, 0, 0, 0)
    an_attempt(first, 0, 1, 10)
    fact(first, "run_end", at_ns=10 * S)
    fact(first, "wait", kind="stopped", start_ns=10 * S, end_ns=None)
    run = load_run(tmp_path)
    assert kinds_of(run, 30) == {"queued": 1, "startup": 9}  # not one second later
    second = controller_of(make_writer, 2)
    an_attempt(second, 1, 90, 100)
    run.refresh()
    assert kinds_of(run, 100) == {"queued": 1, "startup": 19, "stopped": 80}


def test_what_is_announced_is_what_was_stated_last(controller, tmp_path):
    for at, deadline in ((1, 90), (5, None), (3, 60)):
        event = {"words": f"gce at {at}", "since_ns": at * S, "deadline_ns": deadline}
        controller.note(NoteType.FACT, {"fact": "announced", "at_ns": at * S, "events": [event]})
    for damage in ({}, {"events": 7}, {"events": ["gce"]}, {"events": [{"words": "no time"}]}):
        controller.note(NoteType.FACT, {"fact": "announced", "at_ns": 9 * S, **damage})
    facts = RunFacts(tmp_path, Told())
    facts.refresh()
    assert facts.controllers.announced == (AnnouncedEvent("gce at 5", 1005 * S, None),)
    assert facts.notes() == ["4 facts in the journals' text files are damaged and left out"]


def test_the_last_word_on_how_often_is_saved_counts(controller, tmp_path):
    for at, words in ((1, "every step"), (5, "every 14 steps"), (3, "every 2 steps")):
        fact = {"fact": "saving", "at_ns": at * S, "words": f"saving {words} to memory"}
        controller.note(NoteType.FACT, fact)
    facts = RunFacts(tmp_path, Told())
    assert facts.controllers.saving is None
    facts.refresh()
    assert facts.controllers.saving == "saving every 14 steps to memory"
    assert facts.notes() == []


def test_what_is_open_is_told_until_it_is_closed(make_writer, tmp_path):
    writer = make_writer(rank_file(0), clock=(0, 1000 * S))
    writer.append(1 * S, Kind.STEP_BEGIN, 0, 0, 1, 0)
    token = writer.open_span("compile")
    (slot,) = writer.page.snapshot().open_spans
    told = Told()
    facts = RunFacts(tmp_path, told)
    facts.refresh()
    assert told.open == {0: ([("compile", slot.start_ns + 1000 * S)], (1, 1001 * S))}
    writer.close_span(token)
    writer.append(2 * S, Kind.LOOP_END, 0, 0, 0, 0)
    facts.refresh()
    assert told.open == {0: ([], None)}
    assert [(f.kind, f.start_ns) for f in told.of(SpanFact)] == [
        ("compile", slot.start_ns + 1000 * S)
    ]


def test_a_compilation_of_any_thread_is_open_until_it_is_recorded(make_writer, tmp_path):
    writer = make_writer(rank_file(0), clock=(0, 1000 * S))
    writer.append(1 * S, Kind.STEP_BEGIN, 0, 0, 1, 0)
    writer.page.store(Word.COMPILING_AT, 2 * S)
    told = Told()
    facts = RunFacts(tmp_path, told)
    facts.refresh()
    under_way = (1, 1001 * S)
    assert told.open == {0: ([("compile", 1002 * S)], under_way)}
    writer.record_span("compile", 2 * S, 3 * S)  # and then taken out of the words: not twice
    facts.refresh()
    assert told.open == {0: ([], under_way)}
    writer.page.store(Word.COMPILING_AT, 0)
    facts.refresh()
    assert told.of(SpanFact) == [SpanFact(0, "compile", 1002 * S, 1003 * S)]


def test_refreshing_tells_only_what_is_new(make_writer, tmp_path):
    writer = make_writer(rank_file(0), clock=(0, 0))
    end = steps(writer, 1, 100, 1, 10)
    told = Told()
    facts = RunFacts(tmp_path, told)
    assert facts.refresh() == 100
    before = len(told.facts)
    steps(writer, 101, 110, end, 10)
    assert facts.refresh() == 10
    assert [f.first for f in told.facts[before:]] == list(range(101, 111))
    assert facts.refresh() == 0
    assert len(told.facts) == before + 10
    assert not facts.superseded


def test_a_rank_that_turns_up_late_supersedes_what_was_told(make_writer, tmp_path):
    steps(make_writer(rank_file(0), clock=(0, 0)), 1, 5, 1, 10)
    facts = RunFacts(tmp_path, Told())
    facts.refresh()
    assert not facts.superseded
    steps(make_writer(rank_file(0, 1), rank=1, clock=(0, 0)), 1, 3, 1, 20)
    facts.refresh()
    assert facts.superseded
    anew = Told()
    RunFacts(tmp_path, anew).refresh()
    assert [f.end_ns for f in anew.of(StepsFact)] == [21, 41, 61]


def test_growth_after_an_attempt_was_over_is_told(make_writer, tmp_path):
    writer = make_writer(rank_file(0), clock=(0, 0))
    fact(writer, "attempt_start", attempt=0, at_ns=1)
    end = steps(writer, 1, 5, 1, 10)
    fact(writer, "attempt_end", attempt=0, at_ns=end, cause="failed")
    told = Told()
    facts = RunFacts(tmp_path, told)
    facts.refresh()
    steps(writer, 6, 6, end, 10)
    facts.refresh()
    assert [f.first for f in told.of(StepsFact)] == [1, 2, 3, 4, 5, 6]
    assert told.of(AttemptFact) == [AttemptFact(0, 1, end + 10, "failed")]


def test_many_signs_of_life_are_thinned_but_a_pause_stays(controller, tmp_path):
    times = [*range(1, 100), 400, 401, 402]
    for at in times:
        controller.append(at * S, Kind.SEEN, 0, 0, 0, 0)
    seen = [(f.at_ns - 1000 * S) // S for f in told_of(tmp_path).of(SeenFact)]
    assert len(seen) < 15
    for now in range(1, 500):
        truly = max((at for at in times if at <= now), default=None)
        kept = max((at for at in seen if at <= now), default=None)
        assert (truly is not None and now - truly > 60) == (kept is not None and now - kept > 60)


def test_damage_is_left_out_and_said(make_writer, controller, tmp_path):
    fact(controller, "run", name="r", requested_ns=0, chips=1)
    fact(controller, "attempt_start", attempt=0, at_ns="soon")
    fact(controller, "a fact of a later version", at_ns=3)
    (tmp_path / "attempts/0003/journal").mkdir(parents=True)
    (tmp_path / "attempts/0003/journal/rank-00000.hfj").write_bytes(b"torn")
    (tmp_path / "attempts/not-a-number").mkdir()
    facts = RunFacts(tmp_path, Told())
    facts.refresh()
    notes = facts.notes()
    assert any("2 facts" in note for note in notes)
    assert any("cut short at 4 bytes" in note for note in notes)
    shutil.rmtree(tmp_path / "attempts/0003")
    make_writer("attempts/0003/journal/rank-00000.hfj", attempt=3, clock=(0, 0))
    facts.refresh()
    assert not any("cut short" in note for note in facts.notes())


def test_a_live_file_that_is_brought_home_is_followed_there(make_writer, tmp_path):
    """Its last records were read before it was removed, their lines were not."""
    live = make_writer("live/controller-000001.hfj", rank=CONTROLLER_RANK, clock=(0, 0))
    stored = tmp_path / "journal" / live.path.name
    stored.parent.mkdir()
    shutil.copy(live.path, stored)
    told = Told()
    facts = RunFacts(tmp_path, told, {stored: live.path})
    facts.refresh()
    fact(live, "run", requested_ns=0, chips=1, name="r")
    fact(live, "attempt_start", attempt=0, at_ns=5)
    fact(live, "attempt_end", attempt=0, at_ns=90, cause="done")
    fact(live, "run_end", at_ns=90)
    text = live.path.with_suffix(".jsonl")
    for path in (live.path, text):
        shutil.copy(path, stored.with_suffix(path.suffix))
    text.unlink()
    facts.refresh()  # all records, and no line
    assert told.of(RunFact) == []
    live.path.unlink()
    facts.refresh()
    assert facts.notes() == []
    assert told.of(RunFact) == [RunFact("r", 0, 90, 1)]
    facts.refresh()
    assert told.of(AttemptFact) == [AttemptFact(0, 5, 90, "done")]


def test_a_live_file_is_read_instead_of_its_copy(make_writer, tmp_path):
    live = make_writer("live/rank-00000.hfj", clock=(0, 0))
    steps(live, 1, 3, 1, 10)
    stored = tmp_path / rank_file(0)
    stored.parent.mkdir(parents=True)
    shutil.copy(live.path, stored)
    steps(live, 4, 5, 31, 10)
    told = Told()
    RunFacts(tmp_path, told, {stored: live.path}).refresh()
    assert len(told.of(StepsFact)) == 5


def test_a_folder_without_journals_tells_nothing(tmp_path):
    assert told_of(tmp_path).facts == []
    assert told_of(tmp_path / "missing").facts == []


def test_files_of_old_attempts_are_not_kept_open(make_writer, tmp_path):
    for attempt in range(30):
        writer = make_writer(rank_file(attempt), attempt=attempt, clock=(attempt, attempt))
        steps(writer, 1, 2, attempt * 100 + 1, 1)
        writer.close()
    before = len(list(Path("/proc/self/fd").iterdir()))
    facts = RunFacts(tmp_path, Told())
    facts.refresh()
    assert (
        len(list(Path("/proc/self/fd").iterdir())) <= before + 4
    )  # the last two; a mapping holds one too


def test_what_a_rank_did_ahead_of_its_attempt_is_no_time_of_that_attempt(
    make_writer, controller, tmp_path
):
    at = 1000 * S
    fact(controller, "run", name="demo", requested_ns=1 * S, chips=1)
    fact(controller, "attempt_start", attempt=0, at_ns=2 * S)
    make_writer(rank_file(0), clock=(3 * S, 1003 * S))
    ahead = make_writer(rank_file(1), attempt=1, clock=(5 * S, 1005 * S))
    fact(controller, "attempt_end", attempt=0, at_ns=16 * S, cause="failed")
    assert told_of(tmp_path).of(AttemptFact)[1].start_ns == at + 16 * S  # killed before the launch
    fact(controller, "attempt_start", attempt=1, at_ns=20 * S)
    ahead.open_span("startup")
    ahead.page.store(Word.OPEN_SPANS + 1, 6 * S)  # since before the attempt
    told = told_of(tmp_path)
    first, second = told.of(AttemptFact)
    assert (first.start_ns, first.end_ns) == (at + 2 * S, at + 16 * S)
    assert second.start_ns == at + 20 * S
    assert told.open[1] == ([("startup", at + 20 * S)], None)


def test_a_host_that_trains_on_when_its_attempt_is_over_spoils_no_history(
    make_writer, controller, tmp_path
):
    fact(controller, "run", name="demo", requested_ns=1 * S, chips=2)
    fact(controller, "attempt_start", attempt=0, at_ns=2 * S)
    steps(make_writer(rank_file(0), clock=(3 * S, 1003 * S)), 1, 10, 4 * S, S)
    steps(make_writer(rank_file(0, 1), rank=1, clock=(3 * S, 1003 * S)), 1, 10, 4 * S, 2 * S)
    fact(controller, "attempt_end", attempt=0, at_ns=16 * S, cause="host_lost")
    fact(controller, "attempt_start", attempt=1, at_ns=17 * S)
    steps(make_writer(rank_file(1), attempt=1, clock=(17 * S, 1017 * S)), 1, 4, 18 * S, S)
    fact(controller, "attempt_end", attempt=1, at_ns=23 * S, cause="done")
    fact(controller, "run_end", at_ns=23 * S)
    recorded = load_run(tmp_path)
    again = Ledger()
    again.add_history(parse_text("".join(to_lines(export_facts(recorded)))))
    was, found = recorded.account(), again.account()
    assert (found.kinds, found.steps_kept, found.lost_steps) == (was.kinds, 4, 10)
