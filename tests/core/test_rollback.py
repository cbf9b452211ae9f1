"""Whose wish to go back counts, what stands until when, and when going back is no progress."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core import exits
from holdfast.core.event_json import decode, encode
from holdfast.core.exits import Exit, ExitCause, RankReport
from holdfast.core.run.machine import RunMachine, RunPolicy, State
from holdfast.core.run.restart import DEFAULT, Failure, GiveUp, Restart
from holdfast.core.run.rollback import (
    Rollbacks,
    Target,
    Wish,
    prevailing,
    progress_from,
    way_back,
    wish_words,
    wishes_of,
)
from holdfast.core.save import events as news
from holdfast.core.save import policy as saves

SCRATCH = ev.Resume(None, 0, None)
AT_400 = ev.Resume("0000-000000000400", 400, 0)


def script(to: Target, skip: int = 0, rank: int = 0) -> Wish:
    return Wish(f"fail-0000-{rank:05d}", to, skip, "loss is NaN", is_from_script=True)


def person(to: Target, skip: int = 0, name: str = "a") -> Wish:
    return Wish(name, to, skip, "holdfast rollback by me", is_from_script=False)


@pytest.mark.parametrize(
    ("wishes", "winner"),
    [
        ([], None),
        ([script(400)], script(400)),
        ([script(400), person(450)], person(450)),
        ([person(450), script(0)], person(450)),
        ([person(450, name="a"), person(500, name="b")], person(500, name="b")),
        ([script(400, rank=0), script(300, rank=1)], script(300, rank=1)),
        ([script(400, rank=0), script(400, 20, rank=1)], script(400, 20, rank=1)),
        ([script("best", rank=0), script(900, rank=1)], script(900, rank=1)),
        ([script(None, 5, rank=0), script("best", rank=1)], script("best", rank=1)),
        ([script(400, rank=1), script(400, rank=0)], script(400, rank=0)),
        ([script(0, rank=1), script(400, rank=0)], script(0, rank=1)),
    ],
)
def test_whose_wish_counts(wishes: list[Wish], winner: Wish | None) -> None:
    found, why = prevailing(wishes)
    assert found == winner
    distinct = {(wish.to, wish.skip_batches) for wish in wishes}
    assert bool(why) == (len(distinct) > 1)
    if not any(not wish.is_from_script for wish in wishes):
        assert all(prevailing(order)[0] == winner for order in permutations(wishes))


def test_in_words() -> None:
    assert way_back(script(400, 20)) == "back to step 400, skipping 20 batches"
    assert way_back(script(0, 1)) == "back to scratch, skipping 1 batch"
    assert way_back(script("best")) == "back to the checkpoint tagged best"
    assert wish_words(script(None, 2)) == (
        "back to the newest checkpoint, skipping 2 batches: loss is NaN"
    )


def gave_up(to: Target = None, skip: int = 0, reason: str = "loss is NaN", where: int = 9) -> Exit:
    report = RankReport("DeclaredFailure", reason, f"train.py:{where}", "", True, to, skip)
    return Exit(code=1, report=report)


def test_what_ranks_wish_for() -> None:
    ends = [
        (3, gave_up("best")),
        (0, gave_up()),  # a failure like any other
        (1, gave_up(400, 20)),
        (2, Exit(code=1, report=RankReport("ValueError", "", "", ""))),
        (4, Exit(signal=9)),
        (5, replace(gave_up(300), code=None, signal=9)),  # killed before it had left
    ]
    assert wishes_of(7, ends) == (
        Wish("fail-0007-00001", 400, 20, "loss is NaN", True),
        Wish("fail-0007-00003", "best", 0, "loss is NaN", True),
        Wish("fail-0007-00005", 300, 0, "loss is NaN", True),
    )


def test_a_declared_failure_explains_the_attempt() -> None:
    assert exits.classify(gave_up(reason="loss is NaN\nat layer 3")) == (
        ExitCause.USER_ERROR,
        "loss is NaN",
    )
    assert exits.classify(gave_up(reason="CUDA out of memory"))[0] is ExitCause.USER_ERROR
    first = Exit(code=1, report=RankReport("ValueError", "", "x.py:1", ""))
    cause, words, rank = exits.root_cause([(1, first), (2, Exit(signal=9)), (0, gave_up())])
    assert (cause, words, rank) == (ExitCause.USER_ERROR, "rank 0: loss is NaN", 0)


# --- standing -----------------------------------------------------------------------------------


def test_a_wish_stands_until_it_is_settled_and_is_heard_once() -> None:
    rollbacks = Rollbacks()
    assert rollbacks.settle() == (None, None)
    assert rollbacks.add([script(400)])
    assert not rollbacks.add([script(400)])
    assert rollbacks.take_up()[0] == script(400)
    assert not rollbacks.is_overtaken
    assert rollbacks.add([person(300)])
    assert rollbacks.is_overtaken
    assert rollbacks.asked_by_person
    assert rollbacks.take_up()[0] == person(300)
    granted, record = rollbacks.settle()
    assert granted == person(300)
    assert record is not None
    assert record.ids == ("fail-0000-00000", "a")
    assert not rollbacks.add([person(300), script(400)])  # the store still shows them for a moment
    assert rollbacks.settle() == (None, None)


# --- the machine --------------------------------------------------------------------------------


class Driven:
    """A machine with one rank; every attempt completes steps up to some step, then ends."""

    def __init__(self) -> None:
        self.machine = RunMachine(RunPolicy(ranks=1, save=saves.Never()))
        self.at_ns = 0
        self.launches: list[act.Launch] = []
        self.choices: list[act.Choose] = []
        self.finish: act.Finish | None = None
        self.said: list[str] = []

    def feed(self, kind: Any, *values: Any) -> None:
        self.at_ns += 1_000_000_000
        for action in self.machine.handle(kind(self.at_ns, *values)):
            match action:
                case act.Choose():
                    self.choices.append(action)
                case act.Launch():
                    self.launches.append(action)
                case act.Finish():
                    self.finish = action
                case act.Say(words=words):
                    self.said.append(words)

    def opened(self, *wishes: Wish) -> None:
        self.feed(ev.Opened, 0, 0, 0, 0, wishes)

    def runs(self, resume: ev.Resume, reached: int) -> None:
        """The store has chosen; the attempt completes steps."""
        if self.machine.state is State.WAITING:
            self.feed(ev.TimerFired, "restart")
        self.feed(ev.Chosen, resume, "words")
        self.feed(ev.Launched, self.machine.attempt)
        self.feed(ev.Joined, self.machine.attempt, 0)
        self.feed(ev.Heard, self.machine.attempt, news.Progress(self.at_ns, 0, reached))

    def ends(self, how: Exit) -> None:
        self.feed(ev.RankExited, self.machine.attempt, 0, self.at_ns, how)
        self.feed(ev.TreeGone, self.machine.attempt)


def test_the_same_declared_failure_at_the_same_step_gives_up() -> None:
    run = Driven()
    run.opened()
    run.runs(SCRATCH, 499)
    run.ends(gave_up(400, 20))
    assert run.choices[-1].wish == script(400, 20)
    run.runs(AT_400, 499)
    assert run.launches[-1].rollback is not None
    assert run.launches[-1].rollback.ids == ("fail-0000-00000",)
    run.ends(gave_up(400, 20))
    assert run.finish is not None
    assert run.finish.exit_code == 1
    assert "failed in the same way" in run.finish.words
    assert "none got past step 499" in run.finish.words


def test_a_declared_failure_further_on_is_progress() -> None:
    run = Driven()
    run.opened()
    run.runs(SCRATCH, 499)
    run.ends(gave_up(400))
    for reached in (510, 620, 730):
        run.runs(AT_400, reached)
        run.ends(gave_up(400))
        assert run.finish is None
        assert run.machine.state is State.CHOOSING, "at once"


def test_progress_is_counted_anew_after_a_rollback() -> None:
    """The high water lies ahead; steps on the new branch are progress all the same."""
    run = Driven()
    run.opened()
    run.runs(SCRATCH, 10_000)
    run.feed(ev.RollbackAsked, person(400))
    assert run.machine.state is State.KILLING
    run.ends(Exit(signal=9))
    assert run.machine.failures == ()
    for reached in (500, 600):
        run.runs(AT_400, reached)
        run.ends(Exit(signal=9))
        assert run.said[-1].startswith("Restarting now; attempt"), run.said
    assert run.machine.high_water == 600


def test_a_bug_on_the_new_branch_still_gives_up() -> None:
    bug = Exit(code=1, report=RankReport("ValueError", "", "train.py:41", ""))
    run = Driven()
    run.opened()
    run.runs(SCRATCH, 10_000)
    run.ends(bug)
    run.runs(AT_400, 10_000)
    run.feed(ev.RollbackAsked, person(400))
    run.ends(Exit(signal=9))
    run.runs(AT_400, 450)
    run.ends(bug)  # the one at 10,000 was another story
    assert run.finish is None
    run.runs(AT_400, 450)
    run.ends(bug)
    assert run.finish is not None


def test_a_person_overrides_giving_up() -> None:
    run = Driven()
    run.opened()
    run.runs(SCRATCH, 499)
    run.ends(gave_up(400))
    run.runs(AT_400, 499)
    run.feed(ev.RankExited, 1, 0, run.at_ns, gave_up(400))
    run.feed(ev.RollbackAsked, person(200))
    run.feed(ev.TreeGone, 1)
    assert run.finish is None
    assert run.choices[-1].wish == person(200)


def test_a_wish_while_the_store_is_asked_asks_again() -> None:
    run = Driven()
    run.opened(person(400, name="a"))
    run.feed(ev.RollbackAsked, person(400, name="a"))  # the inbox tells of it as well
    run.feed(ev.RollbackAsked, person(300, name="b"))
    run.feed(ev.Chosen, AT_400, "words")
    assert [choice.wish for choice in run.choices] == [person(400), person(300, name="b")]
    assert run.launches == []
    run.feed(ev.Chosen, ev.Resume("0000-000000000300", 300, 0), "words")
    assert run.launches[0].rollback is not None
    assert run.launches[0].rollback.ids == ("a", "b")


def test_a_wish_while_ranks_are_started_ends_them_when_they_run() -> None:
    run = Driven()
    run.opened()
    run.feed(ev.Chosen, SCRATCH, "words")
    run.feed(ev.RollbackAsked, person(0))
    run.feed(ev.Launched, 0)
    assert run.machine.state is State.KILLING
    run.ends(Exit(signal=9))
    assert run.choices[-1].wish == person(0)


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 3)), min_size=30, max_size=30))
def test_going_back_for_ever_is_no_progress(ends: list[tuple[int, int]]) -> None:
    """Whatever a script that always asks to go back reaches: new ground, or it is given up."""
    failures: list[Failure] = []
    for attempt, (reached, place) in enumerate(ends):
        before = progress_from(failures, 0, asks=True)
        signature = f"failed: DeclaredFailure at train.py:{place}"
        failures.append(Failure(attempt, ExitCause.USER_ERROR, signature, before, reached, 0, True))
        decision, _ = DEFAULT.decide(failures, 0)
        if isinstance(decision, GiveUp):
            break
        assert isinstance(decision, Restart)
    further = sum(failure.made_progress for failure in failures)
    assert len(failures) < 30 or further >= 3, "it went on without getting anywhere"


def test_an_old_journal_reads() -> None:
    chosen = encode(ev.Chosen(1, AT_400, "words"))
    del chosen["resume"]["skip_batches"]
    assert decode(chosen) == ev.Chosen(1, AT_400, "words")
    opened = encode(ev.Opened(1, 0))
    del opened["wishes"]
    assert decode(opened) == ev.Opened(1, 0)


@pytest.mark.parametrize(
    "event",
    [
        ev.Opened(1, 3, wishes=(script("best", 2), person(0))),
        ev.RollbackAsked(5, person(400, 20)),
        ev.RankExited(9, 0, 1, 8, gave_up("best", 3)),
        ev.Chosen(1, replace(AT_400, skip_batches=7), "words"),
    ],
)
def test_events_survive_the_journal(event: ev.Event) -> None:
    import json

    assert decode(json.loads(json.dumps(encode(event)))) == event
