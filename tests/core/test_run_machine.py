"""The run's machine as a table: every pair is decided, late news is harmless, bugs tell a story."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any, get_args

import pytest

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core import exits
from holdfast.core.hang.events import RankLook
from holdfast.core.hosts.standby import StandbyOrder
from holdfast.core.notices.board import Notice, NoticeAction
from holdfast.core.run import restart
from holdfast.core.run.machine import (
    LATE,
    TABLE,
    InvalidTransition,
    RunMachine,
    RunPolicy,
    State,
    Timer,
)
from holdfast.core.run.rollback import Wish
from holdfast.core.save import events as news
from holdfast.core.save import policy as saves
from holdfast.core.save.choose import SealedSet, SeenSets, StoredSet
from holdfast.core.save.word import Order

SCRATCH = ev.Resume(None, 0, None)
EVENTS: tuple[type[ev.Event], ...] = get_args(ev.Event)
# What the edges only ever say once, in answer to an action: at any other time it is a bug of ours.
ANSWERS = {ev.Opened, ev.Launched, ev.LaunchFailed}


def machine(ranks: int = 2, save: saves.SavePolicy | None = None) -> RunMachine:
    return RunMachine(RunPolicy(ranks=ranks, save=save or saves.Never()))


def rank_exit(rank: int = 0, at_ns: int = 9, **how: Any) -> ev.RankExited:
    return ev.RankExited(at_ns, 0, rank, at_ns - 1, exits.Exit(**how))


SAMPLES: dict[type[ev.Event], ev.Event] = {
    ev.Opened: ev.Opened(0, 0),
    ev.SetsSeen: ev.SetsSeen(1, SeenSets("r", -1)),
    ev.Chosen: ev.Chosen(1, SCRATCH, "starting from scratch (no checkpoint yet)"),
    ev.ChoiceFailed: ev.ChoiceFailed(1, 69, "the store is away"),
    ev.SetRefused: ev.SetRefused(2, 0, "a flipped bit"),
    ev.OnRecord: ev.OnRecord(2, 0),
    ev.Adopted: ev.Adopted(2, 0, 5, 0, 0),
    ev.NotAdopted: ev.NotAdopted(2, 0, "a rank on host 1 has ended"),
    ev.Launched: ev.Launched(2, 0),
    ev.LaunchFailed: ev.LaunchFailed(2, 0, 78, "no such file"),
    ev.Joined: ev.Joined(3, 0, 0),
    ev.StepsRecorded: ev.StepsRecorded(3, 0, 0, 5),
    ev.Heard: ev.Heard(4, 0, news.Progress(4, 0, 1)),
    ev.SaveTook: ev.SaveTook(5, 0, 1000),
    ev.RankExited: rank_exit(code=1),
    ev.TreeGone: ev.TreeGone(10, 0),
    ev.HostLost: ev.HostLost(10, 0, "processes survive"),
    ev.StopAsked: ev.StopAsked(6, "SIGTERM", 100, notice=True),
    ev.StopNowAsked: ev.StopNowAsked(6, "SIGQUIT"),
    ev.Interrupted: ev.Interrupted(6, "Ctrl-C"),
    ev.Noticed: ev.Noticed(6, Notice("gce", NoticeAction.TERMINATE, 6, deadline_ns=100)),
    ev.SaveAsked: ev.SaveAsked(6, "holdfast save"),
    ev.ProfileAsked: ev.ProfileAsked(6, "holdfast profile", "p1", 0, 5, 10**10),
    ev.HostsAnswered: ev.HostsAnswered(6, 30, 5),
    ev.Placed: ev.Placed(1, (0,)),
    ev.RestartAsked: ev.RestartAsked(6, "a host is back"),
    ev.RollbackAsked: ev.RollbackAsked(6, Wish("r1", 400, 20, "holdfast rollback by me", False)),
    ev.TimerFired: ev.TimerFired(7, Timer.SAVES),
    ev.Examined: ev.Examined(8, 0, (RankLook(0), RankLook(1))),
    ev.StacksCollected: ev.StacksCollected(8, 0, ()),
    ev.Suspended: ev.Suspended(8, 5),
    ev.BuffersReady: ev.BuffersReady(8, 0, 0, 3),
    ev.Sealed: ev.Sealed(8, 0, 1, 1, 0),
    ev.Compared: ev.Compared(8, 0, 1),
    ev.SealFailed: ev.SealFailed(8, 0, 1, 1, 0, "no manifest: disk full"),
    ev.Replicated: ev.Replicated(8, 0, 1, 1),
    ev.NotReplicated: ev.NotReplicated(8, 0, 1, 1, "no room"),
    ev.Flushing: ev.Flushing(8, 0, 1, 1, 1000),
    ev.Flushed: ev.Flushed(8, 0, 0, 1, 1, 1),
    ev.FlushFailed: ev.FlushFailed(8, 0, 1, 1, "disk full"),
    ev.FlushCommitted: ev.FlushCommitted(8, 0, 1, 1),
    ev.FlushCommitFailed: ev.FlushCommitFailed(8, 0, 1, 1, "disk full"),
}


def in_state(state: State) -> RunMachine:
    """A machine that has come there in the ordinary way."""
    run = machine()
    ways: dict[State, tuple[ev.Event, ...]] = {
        State.NEW: (),
        State.CHOOSING: (SAMPLES[ev.Opened],),
        State.LAUNCHING: (SAMPLES[ev.Chosen],),
        State.RUNNING: (SAMPLES[ev.Launched],),
        State.KILLING: (rank_exit(0, code=1),),
        State.WAITING: (rank_exit(1, signal=9), SAMPLES[ev.TreeGone]),
    }
    if state is State.FLUSHING:
        in_memory = ev.Resume("0000-000005", 5, 0, buffer=1, committed_step=3)
        for event in (SAMPLES[ev.Opened], ev.Chosen(1, in_memory, "from memory")):
            run.handle(event)
        for event in (SAMPLES[ev.Launched], rank_exit(0, code=1), rank_exit(1, signal=9)):
            run.handle(event)
        run.handle(SAMPLES[ev.TreeGone])
        run.handle(SAMPLES[ev.StopAsked])
    if state is State.OVER:
        run.handle(SAMPLES[ev.Opened])
        run.handle(SAMPLES[ev.StopNowAsked])
    for reached, events in ways.items():
        if state in (State.OVER, State.FLUSHING):
            break
        for event in events:
            run.handle(event)
        if reached is state:
            break
    assert run.state is state
    return run


def records(answer: tuple[act.Action, ...]) -> list[Any]:
    return [action.fact for action in answer if isinstance(action, act.Record)]


def only(answer: tuple[act.Action, ...], kind: type[act.Action]) -> Any:
    found = [action for action in answer if isinstance(action, kind)]
    assert len(found) == 1, answer
    return found[0]


@pytest.mark.parametrize(("state", "kind"), list(itertools.product(State, EVENTS)), ids=str)
def test_every_pair_is_decided(state: State, kind: type[ev.Event]) -> None:
    run = in_state(state)
    event = SAMPLES[kind]
    if (state, kind) == (State.RUNNING, ev.TreeGone):  # a host tells of every rank's end before
        run.handle(rank_exit(0, code=0, finished=True))
        run.handle(rank_exit(1, code=0, finished=True))
    if kind in TABLE[state]:
        assert isinstance(run.handle(event), tuple)
        assert run.state in (state, *TABLE[state][kind].to)
    elif kind in LATE and state is not State.NEW:
        assert run.handle(event) == ()
        assert run.state is state
    else:
        with pytest.raises(InvalidTransition):
            run.handle(event)


def test_the_table_speaks_of_every_state_and_event() -> None:
    assert {state for state, rows in TABLE.items() if rows} == set(State) - {State.OVER}
    assert {kind for rows in TABLE.values() for kind in rows} == set(EVENTS)
    assert set(EVENTS) - LATE == ANSWERS


def test_an_impossible_event_tells_the_story() -> None:
    run = in_state(State.RUNNING)
    with pytest.raises(InvalidTransition) as error:
        run.handle(ev.Launched(5, 0))
    assert str(error.value) == (
        "Launched in state running; "
        "before it: Opened (new) → Chosen (choosing) → Launched (launching)"
    )


@pytest.mark.parametrize(
    "event",
    [
        ev.Heard(4, 7, news.Progress(4, 0, 1)),
        ev.Joined(4, 7, 0),
        ev.TreeGone(4, 7),
        ev.SaveTook(4, 7, 5),
        ev.RankExited(4, 7, 0, 3, exits.Exit(code=1)),
        ev.HostLost(4, 7, "stuck"),
    ],
    ids=lambda event: type(event).__name__,
)
def test_a_dead_attempts_last_words_count_for_nothing(event: ev.Event) -> None:
    run = in_state(State.RUNNING)
    assert run.handle(event) == ()
    assert run.state is State.RUNNING
    assert run.saving.joined == set()
    assert run.saving.fastest_step == 0


# --- what scenarios cannot easily bring about ----------------------------------------------------


def test_a_rank_that_shows_itself_before_the_last_is_started_is_not_forgotten() -> None:
    run = in_state(State.LAUNCHING)
    run.handle(ev.Joined(2, 0, 0))
    run.handle(ev.Heard(2, 0, news.LoopEnded(2, 0, 0)))
    run.handle(ev.Launched(3, 0))
    assert run.saving.joined == {0}
    assert run.saving.agreement.ranks.ended == {0}
    answer = run.handle(ev.StopAsked(5, "SIGTERM", None, notice=True))
    assert not [action for action in answer if isinstance(action, act.Relay)]


# Else a run that is started again with other chips would count its past with those.
@pytest.mark.parametrize(
    ("chips", "told", "counted"),
    [(0, None, None), (8, None, (8, 8)), (8, (4, 12), (4, 12)), (0, (4, 12), (4, 12))],
)
def test_each_launch_tells_how_many_chips_it_has(
    chips: int, told: tuple[int, int] | None, counted: tuple[int, int] | None
) -> None:
    run = RunMachine(RunPolicy(ranks=1, save=saves.Never(), chips=chips))
    for event in (SAMPLES[ev.Opened], SAMPLES[ev.SetsSeen], SAMPLES[ev.Chosen]):
        run.handle(event)
    launched = ev.Launched(2, 0, chips=None if told is None else ev.CountedChips(*told))
    facts = [one for one in records(run.handle(launched)) if one["fact"] == "capacity"]
    assert [(one["at_ns"], one["chips"], one["of"]) for one in facts] == (
        [(2, *counted)] if counted else []
    )


@pytest.mark.parametrize(
    "ask", [SAMPLES[ev.StopAsked], SAMPLES[ev.StopNowAsked], SAMPLES[ev.Interrupted]]
)
def test_a_stop_before_anything_is_opened_starts_nothing(ask: ev.Event) -> None:
    run = machine()
    assert only(run.handle(ask), act.Say)
    answer = run.handle(ev.Opened(1, 0))
    assert only(answer, act.Finish).exit_code == 75
    assert run.state is State.OVER


def test_a_stop_while_the_store_is_asked_does_not_wait_for_the_store() -> None:
    run = in_state(State.CHOOSING)
    assert only(run.handle(SAMPLES[ev.StopAsked]), act.Finish).exit_code == 75
    assert run.handle(SAMPLES[ev.Chosen]) == ()


SETS = SeenSets("r", 0, ((0, None),), (StoredSet(0, 10), StoredSet(0, 20)))


def test_the_machine_chooses_of_what_is_seen() -> None:
    run = in_state(State.CHOOSING)
    answer = run.handle(ev.SetsSeen(1, SETS))
    assert only(answer, act.Launch).resume == ev.Resume("0000-000000000020", 20, 0)
    assert run.state is State.LAUNCHING


def test_what_a_rank_could_not_read_is_not_chosen_again() -> None:
    run = in_state(State.CHOOSING)
    run.handle(ev.SetsSeen(1, SETS))
    run.handle(SAMPLES[ev.Launched])
    report = exits.RankReport("CorruptCheckpoint", "a bit is flipped", "restore.py:1", "")
    run.handle(rank_exit(0, code=1, report=report))
    run.handle(rank_exit(1, signal=9))
    run.handle(SAMPLES[ev.TreeGone])
    run.handle(ev.TimerFired(10**10, Timer.RESTART))
    answer = run.handle(ev.SetsSeen(10**10, replace(SETS, newest_attempt=1)))
    assert only(answer, act.Launch).resume == ev.Resume("0000-000000000010", 10, 0)
    assert "a bit is flipped" in only(answer, act.Say).words


def test_a_part_that_does_not_come_twice_ends_neither_the_run_nor_the_trust_in_its_set() -> None:
    run = machine()
    run.handle(SAMPLES[ev.Opened])
    chain = ((0, None),)
    seen = SeenSets("r", 0, chain, (StoredSet(0, 3),), (SealedSet(0, 5, 1),))
    steps, at_ns = [], 10
    why = exits.RankReport("holdfast.errors.PartNotFetched", "0000-000000000005: no", "f:1", "")
    for attempt in range(1, 4):
        seen = replace(seen, newest_attempt=attempt - 1)
        launch = only(run.handle(ev.SetsSeen(at_ns, seen)), act.Launch)
        steps.append(launch.resume.step)
        run.handle(ev.Launched(at_ns, launch.attempt))
        run.handle(ev.RankExited(at_ns, launch.attempt, 0, at_ns, exits.Exit(code=1, report=why)))
        run.handle(ev.RankExited(at_ns, launch.attempt, 1, at_ns, exits.Exit(signal=9)))
        answer = run.handle(ev.TreeGone(at_ns, launch.attempt))
        assert only(answer, act.EndAttempt).cause == "not_fetched"
        if run.state is State.WAITING:
            timer = only(answer, act.SetTimer)
            at_ns = timer.at_ns
            run.handle(ev.TimerFired(at_ns, timer.timer))
        at_ns += 1
    assert steps == [5, 5, 3]
    assert run.state is State.CHOOSING


def test_nothing_that_can_be_trusted_ends_the_run() -> None:
    run = in_state(State.CHOOSING)
    seen = replace(SETS, stored=(), bad=(("0000-000000000020", "torn"),))
    answer = run.handle(ev.SetsSeen(1, seen))
    assert only(answer, act.Finish).exit_code == 69
    assert "none can be trusted" in only(answer, act.Finish).words


def test_a_stop_while_launching_is_relayed_when_the_ranks_are_there() -> None:
    run = in_state(State.LAUNCHING)
    run.handle(ev.StopAsked(2, "SIGTERM", 10**10, notice=True))
    answer = run.handle(ev.Launched(3, 0))
    assert only(answer, act.Relay) == act.Relay("SIGTERM")
    assert only(answer, act.SetTimer) == act.SetTimer(Timer.DEADLINE, 10**10)


def test_a_relayed_stop_without_deadline_loses_its_limit_when_a_session_can_be_asked() -> None:
    run = in_state(State.RUNNING)
    answer = run.handle(ev.StopAsked(5, "Ctrl-C", None, notice=False))
    assert only(answer, act.SetTimer) == act.SetTimer(Timer.DEADLINE, 5 + 30 * 10**9)
    run.handle(ev.Heard(6, 0, news.Progress(6, 0, 3)))  # read together with its page
    answer = run.handle(ev.Joined(6, 0, 0))
    assert only(answer, act.CancelTimer) == act.CancelTimer(Timer.DEADLINE)
    order = only(answer, act.CarryOut).what
    assert (order.step, order.flags) == (4, Order.STOP | Order.EARLY)


def test_the_exit_code_of_a_stop_now_is_its_senders() -> None:
    run = in_state(State.RUNNING)
    run.handle(ev.StopNowAsked(5, "the lease is lost", 69))
    run.handle(ev.StopNowAsked(5, "second Ctrl-C"))
    answer = run.handle(ev.TreeGone(6, 0))
    assert only(answer, act.Finish).exit_code == 69
    assert only(answer, act.Finish).words.startswith("the lease is lost; stopped")


@pytest.mark.parametrize("state", [one for one in State if one is not State.OVER])
def test_one_ctrl_c_is_a_stop_and_the_second_is_a_stop_now(state: State) -> None:
    asked, pressed = in_state(state), in_state(state)
    ways = (
        (ev.StopAsked(11, "Ctrl-C", None, notice=False), ev.Interrupted(11, "Ctrl-C")),
        (ev.StopNowAsked(12, "second Ctrl-C"), ev.Interrupted(12, "Ctrl-C")),
    )
    for stop, interrupt in ways:
        assert pressed.handle(interrupt) == asked.handle(stop)
        assert pressed.state is asked.state


def test_a_ctrl_c_after_another_stop_is_the_first_one() -> None:
    run = in_state(State.RUNNING)
    run.handle(SAMPLES[ev.StopAsked])
    assert not [one for one in run.handle(SAMPLES[ev.Interrupted]) if isinstance(one, act.Kill)]
    run.handle(SAMPLES[ev.Suspended])
    assert only(run.handle(SAMPLES[ev.Interrupted]), act.Kill) == act.Kill("second Ctrl-C")


def test_an_attempt_that_could_not_start_is_closed_if_it_was_ours() -> None:
    for is_on_record in (True, False):
        run = in_state(State.LAUNCHING)
        run.handle(ev.LaunchFailed(2, 0, 78, "no such file", is_on_record))
        answer = run.handle(ev.TreeGone(3, 0))
        ends = [action for action in answer if isinstance(action, act.EndAttempt)]
        assert [end.cause for end in ends] == (["configuration"] if is_on_record else [])
        assert only(answer, act.Finish).exit_code == 78
        assert records(answer) == [{"fact": "run_end", "at_ns": 3}]  # it never ran


def test_a_rank_that_could_not_be_started_beside_one_that_cannot_be_ended() -> None:
    run = in_state(State.LAUNCHING)
    run.handle(ev.LaunchFailed(2, 0, 78, "no such file", True))
    answer = run.handle(ev.HostLost(20, 0, "processes 7 survive SIGKILL"))
    assert only(answer, act.Finish).exit_code == 78
    assert only(answer, act.EndAttempt).attempt == 0
    assert records(answer) == [{"fact": "run_end", "at_ns": 20}]


def test_a_lost_host_is_the_cause_even_when_a_stop_was_asked() -> None:
    run = in_state(State.RUNNING)
    run.handle(SAMPLES[ev.StopNowAsked])
    answer = run.handle(ev.HostLost(20, 0, "processes 7 survive SIGKILL"))
    assert only(answer, act.EndAttempt).cause == "host_lost"
    assert only(answer, act.Finish).exit_code == 75
    assert run.handle(ev.TreeGone(30, 0)) == ()


@pytest.mark.parametrize(
    ("step", "is_stopped", "buffer", "state"),
    [
        (1, False, None, State.CHOOSING),
        (0, False, None, State.WAITING),
        (0, True, None, State.OVER),
        (0, True, 1, State.FLUSHING),
    ],
)
def test_a_host_is_lost_after_its_ranks_have_left(
    step: int, is_stopped: bool, buffer: int | None, state: State
) -> None:
    """What they had started survives SIGKILL."""
    run = machine()
    run.handle(SAMPLES[ev.Opened])
    started = ev.Resume("0000-000005", 5, 0, buffer=buffer, committed_step=3) if buffer else SCRATCH
    run.handle(ev.Chosen(1, started, "from there"))
    run.handle(SAMPLES[ev.Launched])
    for rank in (0, 1):
        run.handle(ev.Heard(4, 0, news.Progress(4, rank, step)))
    if is_stopped:
        run.handle(SAMPLES[ev.StopAsked])
    for rank in (0, 1):
        run.handle(rank_exit(rank, code=0, finished=True))
    assert run.state is State.RUNNING
    assert only(run.handle(SAMPLES[ev.HostLost]), act.EndAttempt).cause == "host_lost"
    assert run.state is state


@pytest.mark.parametrize(("is_notice", "cause"), [(True, "preempted"), (False, "stopped")])
def test_a_host_that_gives_up_its_part_is_no_lost_host(is_notice: bool, cause: str) -> None:
    run = in_state(State.RUNNING)
    words = "host 1 gives up its part (terminate announced by gce)"
    answer = run.handle(ev.RestartAsked(8, words, is_notice))
    assert only(answer, act.Kill)
    answer += run.handle(rank_exit(1, 9, host_lost=True))  # it has no part from now on
    answer += run.handle(rank_exit(0, 9, signal=9))
    answer += run.handle(SAMPLES[ev.TreeGone])
    end = only(answer, act.EndAttempt)
    assert (end.cause, end.words, end.rank) == (cause, words, None)
    assert "fault" not in [one["fact"] for one in records(answer)]
    assert only(answer, act.Choose)  # at once: it counts as no failure
    assert run.state is State.CHOOSING


def test_a_host_that_gives_up_its_part_while_it_is_launched_is_no_lost_host() -> None:
    run = in_state(State.LAUNCHING)
    words = "host 1 gives up its part (terminate announced by gce)"
    assert not run.handle(ev.RestartAsked(2, words, is_notice=True))  # another one starts its ranks
    run.handle(SAMPLES[ev.OnRecord])
    answer = run.handle(ev.RestartAsked(2, words, is_notice=True))
    assert run.state is State.LAUNCHING
    answer += run.handle(SAMPLES[ev.Launched])
    answer += run.handle(rank_exit(1, 9, host_lost=True))
    answer += run.handle(rank_exit(0, 9, signal=9))
    answer += run.handle(SAMPLES[ev.TreeGone])
    end = only(answer, act.EndAttempt)
    assert (end.cause, end.words) == ("preempted", words)
    assert only(answer, act.Kill)
    assert "fault" not in [one["fact"] for one in records(answer)]
    assert only(answer, act.Choose)


def test_a_rank_that_fails_before_its_host_gives_up_its_part_is_the_cause() -> None:
    run = in_state(State.KILLING)
    run.handle(ev.RestartAsked(8, "host 1 gives up its part (slow)"))
    answer = run.handle(SAMPLES[ev.TreeGone])
    assert only(answer, act.EndAttempt).cause == "failed"


def test_who_asks_without_a_deadline_does_not_wait_for_the_next_try() -> None:
    run = machine()
    run.handle(SAMPLES[ev.Opened])
    in_memory = ev.Resume("0000-000005", 5, 0, buffer=1, committed_step=3)
    run.handle(ev.Chosen(1, in_memory, "from memory"))
    run.handle(SAMPLES[ev.Launched])
    for rank in (0, 1):
        run.handle(rank_exit(rank, code=0, finished=True))
    flush = only(run.handle(SAMPLES[ev.TreeGone]), act.Flush)
    run.handle(ev.FlushFailed(11, flush.attempt, flush.epoch, flush.step, "disk full"))
    assert run.state is State.FLUSHING
    asked = ev.StopAsked(12, "holdfast stop by me", None, notice=False)
    assert only(run.handle(asked), act.Finish).leaves_memory
    assert run.state is State.OVER


def test_a_notice_is_recorded_once() -> None:
    run = in_state(State.RUNNING)
    asks = [
        ev.StopAsked(5, "Ctrl-C", None, notice=False),
        ev.StopAsked(6, "SIGTERM", 10**10, notice=True),
        ev.StopAsked(7, "SIGTERM", 10**9, notice=True),
    ]
    found = [fact for ask in asks for fact in records(run.handle(ask))]
    assert found == [
        {"fact": "notice", "at_ns": 6, "deadline_ns": 10**10, "source": "SIGTERM"},
    ]
    assert run.stop is not None
    assert (run.stop.source, run.stop.deadline_ns) == ("Ctrl-C", 10**9)


def test_an_older_supervisors_time_and_failures_count() -> None:
    run = machine(ranks=1)
    run.handle(ev.Opened(0, 4, high_water=50, failures_seen=3, observed_ns=1000))
    run.handle(ev.Chosen(10, ev.Resume("0003-000000000050", 50, 3), "step 50"))
    run.handle(ev.Launched(12, 4))
    assert run.attempt == 4
    assert (run.saving.failures.seen, run.saving.failures.observed_ns) == (3, 1000)
    run.handle(ev.RankExited(100, 4, 0, 99, exits.Exit(signal=9)))
    run.handle(ev.TreeGone(110, 4))
    run.handle(ev.TimerFired(200, Timer.RESTART))
    run.handle(ev.Chosen(210, ev.Resume("0003-000000000050", 50, 3), "step 50"))
    assert (run.saving.failures.seen, run.saving.failures.observed_ns) == (4, 1100)
    assert run.failures[0].completed_after == 50  # nothing new since the set


def test_a_crash_loop_counts_failures_under_older_supervisors_and_nothing_else_does() -> None:
    """Four times it got on by a step; started again it fails in the same way with none."""
    failed = exits.Exit(code=1)
    signature = exits.signature(exits.ExitCause.USER_ERROR, failed)
    own = tuple(ev.OwnFailure(n, n, signature) for n in range(4))
    run = machine(ranks=1)
    run.handle(ev.Opened(10, 4, high_water=4, failures_seen=6, own_failures=own))
    run.handle(ev.Chosen(10, ev.Resume("0003-000000000004", 4, 3), "step 4"))
    run.handle(ev.Launched(12, 4))
    run.handle(ev.RankExited(100, 4, 0, 99, failed))
    (end,) = (one for one in run.handle(ev.TreeGone(110, 4)) if isinstance(one, act.EndAttempt))
    assert end.restart == restart.Restart(15 * restart.SECOND_NS, alike=5)
    assert end.own_signature == signature
    assert run.failures_seen == 7


def test_a_stray_timer_does_nothing() -> None:
    assert in_state(State.RUNNING).handle(ev.TimerFired(5, Timer.RESTART)) == ()
    assert in_state(State.WAITING).handle(ev.TimerFired(20, Timer.SAVES)) == ()


@pytest.mark.parametrize(
    ("cause", "code"),
    [
        ({"code": 78}, 78),
        ({"code": 127}, 78),
        ({"code": 69}, 69),
        ({"code": 1}, 1),
        ({"signal": 11}, 1),
    ],
)
def test_the_exit_code_of_a_run_that_is_given_up(cause: dict[str, int], code: int) -> None:
    policy = RunPolicy(ranks=1, restart=restart.HopelessCauses() | restart.Budget(1))
    run = RunMachine(policy)
    for event in (SAMPLES[ev.Opened], SAMPLES[ev.Chosen], SAMPLES[ev.Launched]):
        run.handle(event)
    run.handle(rank_exit(**cause))
    assert only(run.handle(ev.TreeGone(10, 0)), act.Finish).exit_code == code


def test_steps_that_a_recorder_tells_are_progress_and_ask_for_no_save() -> None:
    run = in_state(State.RUNNING)
    assert run.handle(ev.StepsRecorded(4 * 10**12, 0, 0, 7)) == ()
    assert run.saving.reason == ""
    run.handle(rank_exit(0, signal=9))
    run.handle(ev.StepsRecorded(9, 0, 0, 8))  # read once more when it was gone
    answer = run.handle(ev.TreeGone(10, 0))
    said = [one.words for one in answer if isinstance(one, act.Say)]
    assert "Restarting now; attempt 0 made 8 new steps" in said


def test_a_command_whose_steps_were_recorded_is_told_so() -> None:
    run = in_state(State.RUNNING)
    run.handle(ev.StepsRecorded(4, 0, 0, 7))
    for rank in (0, 1):
        run.handle(rank_exit(rank, code=0, has_session=False))
    words = only(run.handle(ev.TreeGone(10, 0)), act.Finish).words
    assert words.startswith("done; its steps were recorded, and nothing was saved")


def test_words_of_one_and_of_several_lost_steps() -> None:
    def last_words(steps: int) -> str:
        run = in_state(State.RUNNING)
        run.handle(ev.Joined(3, 0, 0))
        for rank in (0, 1):
            run.handle(ev.Heard(4, 0, news.Progress(4, rank, steps)))
        run.handle(ev.StopNowAsked(5, "SIGQUIT"))
        words: str = only(run.handle(ev.TreeGone(6, 0)), act.Finish).words
        return words

    assert last_words(0) == "SIGQUIT; stopped; no step was done yet"
    assert last_words(1) == "SIGQUIT; stopped; nothing is saved of the one step done"
    assert last_words(2) == "SIGQUIT; stopped; nothing is saved of the 2 steps done"


def test_a_set_that_becomes_durable_while_its_writers_die_is_committed() -> None:
    run = in_state(State.RUNNING)

    def hear(item: news.Event) -> tuple[act.Action, ...]:
        return run.handle(ev.Heard(item.at_ns, 0, item))

    for rank in (0, 1):
        run.handle(ev.Joined(3, 0, rank))
        hear(news.Progress(4, rank, 1))
    run.handle(ev.SaveAsked(5, "holdfast save"))
    for rank in (0, 1):
        hear(news.Snapped(6, rank, 1, 2))
    run.handle(rank_exit(0, at_ns=7, signal=9))
    assert run.state is State.KILLING
    assert hear(news.Progress(8, 1, 3)) == ()
    assert hear(news.Durable(8, 0, 1, 2)) == ()
    assert only(hear(news.Durable(8, 1, 1, 2)), act.CarryOut).what == news.Commit(1, 2)
    hear(news.Committed(9, 1, 2))
    assert run.saving.committed_step == 2


@pytest.mark.parametrize(("until", "told"), [(9, [act.EndTraining(0, 5, 9)]), (5, []), (0, [])])
@pytest.mark.parametrize("dies", [False, True])
def test_an_end_before_the_last_step_is_put_on_record_once(
    until: int, told: list[act.Action], dies: bool
) -> None:
    """The last step is durable by then; one rank may be gone before the others tell their end."""
    run = in_state(State.RUNNING)

    def hear(item: news.Event) -> tuple[act.Action, ...]:
        return run.handle(ev.Heard(item.at_ns, 0, item))

    for rank in (0, 1):
        run.handle(ev.Joined(3, 0, rank))
        hear(news.Progress(4, rank, 4))
    run.handle(ev.SaveAsked(5, "holdfast save"))
    for rank in (0, 1):
        hear(news.Snapped(6, rank, 1, 5))
        hear(news.Durable(6, rank, 1, 5))
        hear(news.Progress(6, rank, 5))
    hear(news.Committed(7, 1, 5))
    assert run.saving.committed_step == 5
    if dies:
        run.handle(rank_exit(1, code=1))
    found = [one for rank in (0, 1) for one in hear(news.LoopEnded(8, rank, 5, until))]
    assert [one for one in found if isinstance(one, act.EndTraining)] == told


def test_ranks_that_were_told_to_leave_are_not_hurried_by_a_second_request() -> None:
    run = in_state(State.RUNNING)
    for rank in (0, 1):
        run.handle(ev.Joined(3, 0, rank))
        run.handle(ev.Heard(4, 0, news.Progress(4, rank, 1)))
    run.handle(ev.StopAsked(5, "SIGTERM", None, notice=True))
    for rank in (0, 1):
        run.handle(ev.Heard(6, 0, news.Durable(6, rank, 1, 2)))
    run.handle(ev.Heard(7, 0, news.LoopEnded(7, 0, 2)))  # 2 was its last step; rank 1 is slower
    run.handle(ev.Heard(8, 0, news.Committed(8, 1, 2)))
    assert run.saving.agreement.is_over
    assert run.handle(ev.StopAsked(9, "SIGTERM", None, notice=True)) == ()
    assert run.state is State.RUNNING


def ended(*events: ev.Event, policy: RunPolicy | None = None, step: int = 0) -> RunMachine:
    """A machine whose attempt has reached a step on both ranks; then comes this."""
    run = RunMachine(policy or RunPolicy(ranks=2, save=saves.Never()))
    for event in (SAMPLES[ev.Opened], SAMPLES[ev.Chosen], SAMPLES[ev.Launched]):
        run.handle(event)
    if step:
        for rank in (0, 1):
            run.handle(ev.Joined(3, 0, rank))
            run.handle(ev.Heard(4, 0, news.Progress(4, rank, step)))
    for event in events:
        run.handle(event)
    return run


WISH = ev.RollbackAsked(6, Wish("r1", 0, 0, "holdfast rollback by me", False))


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (ended(), False),  # nothing has ended
        (ended(step=5), False),
        (ended(rank_exit(1, signal=9), step=5), True),
        (ended(rank_exit(1, code=1), step=5), True),
        (ended(rank_exit(1, signal=9)), False),  # no new step: it backs off
        (ended(rank_exit(1, code=78), step=5), False),  # hopeless
        (ended(rank_exit(1, signal=9), SAMPLES[ev.StopAsked], step=5), False),
        (ended(SAMPLES[ev.StopNowAsked], step=5), False),
        (ended(WISH, step=5), True),
        (ended(WISH), True),  # a person does not back off
        (ended(rank_exit(1, signal=9), ev.TreeGone(10, 0), step=5), False),  # it is being chosen
    ],
)
def test_what_is_woken_ahead_is_woken_for_a_restart_at_once(
    run: RunMachine, expected: bool
) -> None:
    assert (run.course.standby is StandbyOrder.WOKEN) is expected


def test_one_failure_too_many_is_no_restart() -> None:
    policy = RunPolicy(ranks=2, save=saves.Never(), restart=restart.Budget(1))
    run = ended(rank_exit(1, signal=9), policy=policy)
    assert run.course.standby is not StandbyOrder.WOKEN


def test_without_standbys_nothing_is_decided_about_any() -> None:
    policy = RunPolicy(ranks=2, save=saves.Never(), has_standbys=False)
    run = RunMachine(policy)
    told = [SAMPLES[ev.Opened], SAMPLES[ev.Chosen], SAMPLES[ev.Launched]]
    told += [ev.Joined(3, 0, rank) for rank in (0, 1)]
    told += [ev.Heard(4, 0, news.Progress(4, rank, 5)) for rank in (0, 1)]
    told += [rank_exit(1, signal=9), SAMPLES[ev.StopAsked]]
    answers = [action for event in told for action in run.handle(event)]
    assert not any(isinstance(action, act.StandBy) for action in answers)
    assert run.course.standby is StandbyOrder.AS_IS


@pytest.mark.parametrize(
    ("since_ns", "waits"),
    [
        (50, [("backoff", 10, 50), ("hosts", 50, 80), ("backoff", 80, 90)]),  # after the pause
        (10, [("hosts", 10, 80), ("backoff", 80, 90)]),  # there was none
        (None, [("hosts", 10, 80), ("backoff", 80, 90)]),
    ],
)
def test_only_what_is_longer_than_the_pause_is_a_wait_for_hosts(
    since_ns: int | None, waits: list[tuple[str, int, int]]
) -> None:
    run = in_state(State.WAITING)
    assert run.course.ended_ns == 10
    run.handle(ev.TimerFired(50, Timer.RESTART))
    run.handle(ev.Chosen(80, SCRATCH, "starting from scratch (no checkpoint yet)"))
    waited = ev.Waited("hosts", 80, since_ns)
    actions = run.handle(ev.Launched(91, 1, waited, began_ns=90))
    facts = [action.fact for action in actions if isinstance(action, act.Record)]
    told = [one for one in facts if one["fact"] == "wait"]
    assert [(one["kind"], one["start_ns"], one["end_ns"]) for one in told] == waits
