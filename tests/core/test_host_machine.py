"""The host's machine: every Start ends in one TreeGone or HostLost, whatever is reported."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core import events as ev
from holdfast.core.exits import Exit
from holdfast.core.hosts import machine as host
from holdfast.core.hosts.machine import HostMachine, HostState

KILLED = Exit(signal=9)
START = host.Start(0, 3, (0, 1))
WAYS: dict[HostState, tuple[host.HostEvent, ...]] = {
    HostState.EMPTY: (),
    HostState.SPAWNING: (START,),
    HostState.UP: (START, host.Spawned(1)),
    HostState.ENDING: (START, host.Spawned(1), host.End(2)),
    HostState.SWEEPING: (START, host.Spawned(1), host.ReaperLost(2)),
    HostState.LOST: (START, host.Spawned(1), host.End(2), host.Stuck(3, (7,))),
}
SAMPLES: dict[type[host.HostEvent], host.HostEvent] = {
    host.Start: host.Start(9, 4, (0,)),
    host.End: host.End(9),
    host.Spawned: host.Spawned(9),
    host.SpawnFailed: host.SpawnFailed(9, "no such file"),
    host.Died: host.Died(9, 8, 0, KILLED),
    host.Empty: host.Empty(9),
    host.ReaperLost: host.ReaperLost(9),
    host.Stuck: host.Stuck(9, (7, 8)),
}


def fed(machine: HostMachine, events: Sequence[host.HostEvent]) -> list[host.HostAction]:
    return [action for event in events for action in machine.handle(event)]


def told(actions: Sequence[host.HostAction]) -> list[ev.Event]:
    return [action.event for action in actions if isinstance(action, host.PassOn)]


@pytest.mark.parametrize(
    ("state", "kind"), list(itertools.product(HostState, get_args(host.HostEvent))), ids=str
)
def test_every_pair_is_decided_or_ignored(state: HostState, kind: type[host.HostEvent]) -> None:
    machine = HostMachine()
    fed(machine, WAYS[state])
    assert machine.state is state
    answer = machine.handle(SAMPLES[kind])
    if (state, kind) not in host.TABLE:
        assert answer == ()
        assert machine.state is state


def test_the_table_speaks_of_every_state_and_event() -> None:
    assert {state for state, _ in host.TABLE} == set(HostState)
    assert {kind for _, kind in host.TABLE} == set(get_args(host.HostEvent))


def test_an_ordinary_life() -> None:
    machine = HostMachine()
    died = [host.Died(5, 4, 1, Exit(code=75)), host.Died(6, 5, 0, Exit(code=75))]
    actions = fed(machine, [START, host.Spawned(1), *died, host.Empty(7)])
    assert actions[0] == host.StartTree(3)
    assert told(actions) == [
        ev.Launched(1, 3),
        ev.RankExited(5, 3, 1, 4, Exit(code=75)),
        ev.RankExited(6, 3, 0, 5, Exit(code=75)),
        ev.TreeGone(7, 3),
    ]
    assert machine.state is HostState.EMPTY


def test_a_kill_that_crosses_the_launch() -> None:
    machine = HostMachine()
    assert fed(machine, [START, host.End(1)]) == [host.StartTree(3), host.KillTree()]
    died = [host.Died(3, 2, rank, KILLED) for rank in (0, 1)]
    assert [
        type(event) for event in told(fed(machine, [host.Spawned(2), *died, host.Empty(4)]))
    ] == [
        ev.Launched,
        ev.RankExited,
        ev.RankExited,
        ev.TreeGone,
    ]


def test_a_command_that_cannot_be_started() -> None:
    machine = HostMachine()
    actions = fed(machine, [START, host.SpawnFailed(1, "no such file"), host.Empty(2)])
    assert told(actions) == [
        ev.LaunchFailed(1, 3, 78, "no such file", is_on_record=True),
        ev.TreeGone(2, 3),
    ]


@pytest.mark.parametrize("launched", [True, False])
def test_the_reaper_is_killed(launched: bool) -> None:
    machine = HostMachine()
    before = [host.Spawned(1), host.Died(2, 2, 0, Exit(code=1))] if launched else []
    actions = fed(machine, [START, *before, host.ReaperLost(5)])
    assert actions[-1] == host.SweepOrphans()
    left = [1] if launched else [0, 1]
    assert told(actions)[-len(left) :] == [ev.RankExited(5, 3, rank, 5, KILLED) for rank in left]
    assert told(machine.handle(host.Empty(6))) == [ev.TreeGone(6, 3)]


def test_a_rank_that_nobody_reported_has_ended_all_the_same() -> None:
    machine = HostMachine()
    fed(machine, [START, host.Spawned(1), host.Died(2, 2, 0, Exit(code=0))])
    assert told(machine.handle(host.Empty(3))) == [
        ev.RankExited(3, 3, 1, 3, Exit()),
        ev.TreeGone(3, 3),
    ]


def test_a_rank_dies_once() -> None:
    machine = HostMachine()
    fed(machine, [START, host.Spawned(1), host.Died(2, 2, 0, Exit(code=0))])
    assert machine.handle(host.Died(3, 3, 0, KILLED)) == ()


@pytest.mark.parametrize("state", [HostState.SPAWNING, HostState.UP, HostState.ENDING])
def test_processes_that_survive(state: HostState) -> None:
    """Whoever began to kill them: somebody may have sent the reaper a SIGTERM."""
    machine = HostMachine()
    fed(machine, WAYS[state])
    events = told(machine.handle(host.Stuck(9, (7, 8))))
    words = "processes 7, 8 survive SIGKILL: this host is lost until it is rebooted"
    assert events[-1] == ev.HostLost(9, 3, words)
    assert machine.handle(host.Empty(10)) == ()
    failed, gone = told(machine.handle(host.Start(11, 4, (0, 1))))
    assert isinstance(failed, ev.LaunchFailed)
    assert (failed.attempt, failed.exit_code, failed.is_on_record) == (4, 69, True)
    assert gone == ev.TreeGone(11, 4)


REPORTS = st.one_of(
    st.just(host.Spawned(1)),
    st.just(host.SpawnFailed(1, "no such file")),
    st.builds(host.Died, st.just(1), st.just(1), st.integers(0, 2), st.just(KILLED)),
    st.just(host.Empty(1)),
    st.just(host.ReaperLost(1)),
    st.just(host.Stuck(1, (7,))),
    st.just(host.End(1)),
)


@given(lives=st.lists(st.lists(REPORTS, max_size=12), min_size=1, max_size=4))
def test_every_start_ends_once_and_in_order(lives: list[list[host.HostEvent]]) -> None:
    machine = HostMachine()
    for attempt, reports in enumerate(lives):
        if machine.state not in (HostState.EMPTY, HostState.LOST):
            break
        # Then the worst is over: whatever was reported, the reaper's end or the sweep's answer is.
        finally_ = [host.ReaperLost(2), host.Empty(3)]
        events = told(fed(machine, [host.Start(0, attempt, (0, 1, 2)), *reports, *finally_]))
        kinds = [type(event) for event in events]
        ends = [kind for kind in kinds if kind in (ev.TreeGone, ev.HostLost)]
        assert len(ends) == 1, events
        assert kinds[-1] is ends[0], "something was told after the end"
        assert kinds[0] in (ev.Launched, ev.LaunchFailed)
        assert kinds.count(ev.Launched) + kinds.count(ev.LaunchFailed) == 1
        ranks = [event.rank for event in events if isinstance(event, ev.RankExited)]
        assert len(ranks) == len(set(ranks))
        if kinds[0] is ev.Launched and ends == [ev.TreeGone]:
            assert sorted(ranks) == [0, 1, 2], "an end was not told"
        assert all(event.attempt == attempt for event in events)  # type: ignore[union-attr]
