"""What becomes of a host's standby: prepared, woken, made anew, given up."""

from __future__ import annotations

import pytest

from holdfast.core.hosts.standby import (
    LATE_NS,
    TRIES,
    ServerStage,
    StandbyMove,
    StandbyOrder,
    StandbyRules,
    StandbySight,
    StandbyStage,
)

NOTHING = (StandbyMove.NOTHING, "")
GPU = "/dev/nvidia0"
REFUSED = f"No hot standby: the ranks have {GPU} open, which cannot be shared; standbys only import"


def rules(order: StandbyOrder = StandbyOrder.READY, *, hot: bool = False, **how) -> StandbyRules:
    return StandbyRules(hot, order, 1, **how)


def sight(stage: StandbyStage, **what) -> StandbySight:
    return StandbySight(stage, **{"is_whole": True, "restores_first": True, **what})


@pytest.mark.parametrize(
    ("order", "stage", "cold", "hot"),
    [
        ("READY", "COLD", "START_SERVER", "START_SERVER"),
        ("READY", "IMPORTING", "NOTHING", "NOTHING"),
        ("READY", "READY", "NOTHING", "WAKE_BESIDE"),
        ("READY", "AHEAD", "NOTHING", "NOTHING"),
        ("WOKEN", "COLD", "NOTHING", "NOTHING"),
        ("WOKEN", "IMPORTING", "WAKE", "WAKE"),
        ("WOKEN", "READY", "WAKE", "WAKE"),
        ("WOKEN", "HELD", "NOTHING", "NOTHING"),
        ("WOKEN", "AHEAD", "NOTHING", "NOTHING"),
        ("AS_IS", "COLD", "NOTHING", "NOTHING"),
        ("AS_IS", "READY", "NOTHING", "NOTHING"),
        ("AS_IS", "HELD", "NOTHING", "NOTHING"),
        ("NONE", "READY", "DROP", "DROP"),
        ("NONE", "AHEAD", "DROP", "DROP"),
    ],
)
def test_each_order_at_each_stage(order, stage, cold, hot):
    for is_hot, move in ((False, cold), (True, hot)):
        asked = rules(StandbyOrder[order], hot=is_hot)
        assert asked.due(sight(StandbyStage[stage])) == (StandbyMove[move], "")


@pytest.mark.parametrize("what", [{"device": GPU}, {"restores_first": False}], ids=str)
def test_where_ranks_would_be_in_each_others_way_it_is_held(what):
    woken = rules(StandbyOrder.WOKEN)
    assert woken.due(sight(StandbyStage.READY, **what)) == (StandbyMove.WAKE_HELD, "")


def test_nothing_runs_ahead_where_that_is_not_possible():
    woken = rules(StandbyOrder.WOKEN, runs_ahead=False)
    assert woken.due(sight(StandbyStage.READY)) == NOTHING
    started = (StandbyMove.START_SERVER, "")
    assert rules(runs_ahead=False).due(sight(StandbyStage.COLD)) == started


def test_one_that_lacks_an_interpreter_is_not_woken_early():
    woken = rules(StandbyOrder.WOKEN)
    assert woken.due(sight(StandbyStage.IMPORTING, is_whole=False)) == NOTHING


def test_hot_is_refused_once_and_for_the_run():
    hot = rules(hot=True)
    move, words = hot.due(sight(StandbyStage.READY, device=GPU))
    assert (move, words.startswith(REFUSED)) == (StandbyMove.NOTHING, True)
    assert hot.due(sight(StandbyStage.READY)) == NOTHING


def test_one_that_is_lost_ahead_is_said_once_and_ends_hot():
    hot = rules(hot=True)
    assert (
        hot.lost(StandbyStage.AHEAD, "rank 0 ended")
        == "rank 0 ended; it starts again with its attempt"
    )
    assert hot.lost(StandbyStage.HELD, "rank 0 ended") == ""
    assert hot.due(sight(StandbyStage.READY)) == NOTHING
    assert not hot.is_hot


def test_woken_early_it_may_be_lost_a_few_times_in_a_row():
    woken = rules(StandbyOrder.WOKEN)
    for _ in range(TRIES):
        assert woken.due(sight(StandbyStage.READY)) == (StandbyMove.WAKE, "")
        woken.lost(StandbyStage.AHEAD, "it ended")
    assert woken.due(sight(StandbyStage.READY)) == NOTHING
    woken.used(StandbyStage.READY)  # by an attempt that it was not woken ahead of
    assert woken.due(sight(StandbyStage.READY)) == NOTHING
    woken.used(StandbyStage.AHEAD)
    assert woken.due(sight(StandbyStage.READY)) == (StandbyMove.WAKE, "")


def test_interpreters_that_end_by_themselves_are_given_up():
    ready = rules()
    said = [ready.lost(StandbyStage.READY, "no room") for _ in range(TRIES)]
    words = "The standby processes ended by themselves (no room); restarts will take longer"
    assert said == ["", "", words]
    assert ready.due(sight(StandbyStage.COLD)) == NOTHING
    ready.used(StandbyStage.READY)
    assert ready.due(sight(StandbyStage.COLD)) == (StandbyMove.START_SERVER, "")


def test_a_script_that_writes_what_it_imports_is_not_made_anew_for_ever():
    hot = rules(hot=True)
    changed = sight(StandbyStage.AHEAD, changed="/home/model.py")
    assert [hot.due(changed)[1] for _ in range(TRIES - 1)] == ["", ""]
    hot.attempt = 2  # another attempt, another count
    assert [hot.due(changed)[1] for _ in range(TRIES - 1)] == ["", ""]
    words = "No hot standby any more: /home/model.py changes again and again"
    assert hot.due(changed) == (StandbyMove.RENEW, words)
    assert hot.due(changed) == NOTHING


SERVER_MOVES = [  # order, the server, asked already: what is done where there is no standby
    ("READY", "NONE", False, "START_SERVER"),
    ("READY", "IMPORTING", False, "NOTHING"),
    ("READY", "READY", False, "PREPARE"),
    ("READY", "READY", True, "NOTHING"),
    ("WOKEN", "NONE", False, "NOTHING"),
    ("WOKEN", "IMPORTING", False, "PREPARE"),
    ("WOKEN", "IMPORTING", True, "NOTHING"),
    ("WOKEN", "READY", False, "PREPARE"),
    ("WOKEN", "READY", True, "NOTHING"),
    ("AS_IS", "READY", False, "NOTHING"),
    ("NONE", "READY", False, "DROP"),
]


@pytest.mark.parametrize(("order", "server", "is_asked", "move"), SERVER_MOVES)
def test_a_standby_is_forked_as_soon_as_there_is_a_server(order, server, is_asked, move):
    seen = sight(StandbyStage.COLD, server=ServerStage[server], is_asked=is_asked)
    assert rules(StandbyOrder[order]).due(seen) == (StandbyMove[move], "")


@pytest.mark.parametrize("order", StandbyOrder)
def test_what_imports_beside_ranks_that_began_without_it_is_not_kept(order):
    asked = rules(order)
    assert asked.keeps_fork_of(ServerStage.READY)
    assert asked.keeps_fork_of(ServerStage.IMPORTING) is (order is StandbyOrder.WOKEN)


def test_a_server_that_cannot_be_is_not_tried_again():
    asked = rules()
    words = asked.server_lost("an import has started threads")
    assert words == "Standbys are not forked: an import has started threads"
    assert asked.due(sight(StandbyStage.COLD)) == (StandbyMove.PREPARE, "")


def test_a_server_that_ends_by_itself_is_tried_a_few_times():
    asked = rules()
    for _ in range(TRIES):
        assert asked.due(sight(StandbyStage.COLD)) == (StandbyMove.START_SERVER, "")
        words = asked.server_lost("", "MemoryError")
    assert words == "Standbys are not forked: MemoryError"
    assert asked.due(sight(StandbyStage.COLD)) == (StandbyMove.PREPARE, "")


def test_one_standby_that_was_used_forgives_the_servers_before_it():
    asked = rules()
    for _ in range(TRIES):
        asked.server_lost("")
        asked.used(StandbyStage.READY)
    assert asked.due(sight(StandbyStage.COLD)) == (StandbyMove.START_SERVER, "")


@pytest.mark.parametrize("stage", [StandbyStage.IMPORTING, StandbyStage.COLD], ids=str)
def test_imports_give_way_for_a_while_and_not_for_ever(stage):
    """Where there is no standby, it is the fork server that imports."""
    asked, since_ns = rules(), 3
    seen = {"idle_since_ns": since_ns, "server": ServerStage.IMPORTING}
    early = sight(stage, at_ns=since_ns + LATE_NS - 1, **seen)
    late = sight(stage, at_ns=since_ns + LATE_NS, **seen)
    lifted = sight(stage, at_ns=since_ns + LATE_NS, **{**seen, "idle_since_ns": None})
    assert [asked.due(one) for one in (early, late, lifted)] == [
        NOTHING,
        (StandbyMove.LIFT, ""),
        NOTHING,
    ]
