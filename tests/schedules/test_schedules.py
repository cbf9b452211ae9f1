"""Random fault schedules, in the short form; and what they must find when it is there.

`make schedules` plays a million, and `python tests/schedules/schedule_campaign.py --seed SEED` one
again.
"""

from __future__ import annotations

import random
import sys
from copy import deepcopy
from pathlib import Path

import pytest

from holdfast.core.run.machine import RunMachine

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
from generate import schedule
from planted import PLANTED, planted
from play import play, played
from schedule_campaign import script_of

sys.path.pop(0)

SHORT = 400
# A seed that finds each; only to look there first.
FOUND_BY = {
    "steps are not compared": 47,
    "commits when the first is durable": 68,
    "ranks leave before the commit": 81,
    "never orders again": 148,
    "what is taken counts as missed": 2870,
    "a copy under way is overwritten": 178,
    "an order forgets who copies": 514,
    "a copy that failed is waited for": 514,
    "overwrites what is sealed": 11,
    "overwrites what is flushed": 299,
    "gives the newest away": 17,
    "flushes another branch": 685,
    "manifest after one shard": 11,
    "ends with memory ahead": 178,
    "no back off": 6,
    "budget is one too large": 70,
    "the fastest rank is progress": 8,
    "a wish is granted twice": 19,
    "what is taken counts as copied": 56,
    "a late answer is a bug": 18,
    "a branch comes back": 6041,
    "hosts without a part are asked": 420,
    "a host that was lost is waited for": 1434,
    "an end is forgotten": 936,
    "who goes back is told it is over": 4751,
}


@pytest.mark.parametrize("part", range(4))
def test_whatever_happens(part):
    for seed in range(part * SHORT // 4, (part + 1) * SHORT // 4):
        words = play(schedule(seed))
        assert not words, f"schedule {seed}: {words}"


@pytest.mark.parametrize("name", PLANTED)
def test_finds(name):
    with planted(name):
        first = FOUND_BY.get(name, 0)
        words = next(filter(None, (play(schedule(seed)) for seed in (first, *range(SHORT)))), "")
    assert words, "not found"
    own = ("TypeError", "AttributeError", "KeyError")
    assert not words.startswith(own), f"the mistake has one: {words}"
    assert not play(schedule(first)), "and without the mistake nothing is wrong"


def test_writes_stay_in_order_though_everything_sleeps():
    """A rank's writes are one thread's: a later one never ends before the one ahead of it."""
    lines = [
        "start ranks=2 step=25ms restore=120ms save=1 looks=60ms,100ms words=40ms,0ms,0ms "
        "together=no",
        "run until step 18",
        "suspend for 1s",
        "supervisor stalls for 1s",
        "run until over",
    ]
    assert not play(lines)


@pytest.mark.parametrize("stalls_again", [False, True])
def test_a_sleep_during_a_stall_is_told_once(stalls_again):
    """A host that is lost is missed after 10 s in which the controller ran, and no later."""
    again = ["supervisor stalls for 0ms"] if stalls_again else []
    lines = [
        "start ranks=2 hosts=2 agents=yes",
        "run until state launching",
        "sigterm grace=0s",
        "host 1 is lost, noticed in 60s, replaced in 0ms",
        "supervisor stalls for 0ms",
        "suspend for 7s",
        *again,
        "run until over",
    ]
    assert not play(lines)


def test_what_a_cut_off_host_does_after_its_attempt_is_no_step_of_that():
    lines = [
        "start ranks=2 hosts=2 agents=yes together=no step=150ms",
        "host 1 is lost, replaced in 1s",
        "run until step 1",
        "host 1 is cut off for 14s",
        "run until over",
    ]
    assert not play(lines)


def test_a_copy_that_was_ordered_twice_counts_when_it_is_heard_of():
    """It was ordered before the attempt, and again by it: the first copy is heard of first."""
    lines = [
        "start ranks=2 hosts=2 import=0ms copy=400ms save=1 buffers=2 seals=400ms peers=400ms",
        "run until attempt 1 within 2s",
        "kill rank 1",
        "run for 1s",
    ]
    assert not play(lines)


def test_a_seed_is_a_story():
    for seed in (5, 11, 28):
        one, again = played(schedule(seed)), played(schedule(seed))
        assert [w.inputs for w in one.worlds] == [w.inputs for w in again.worlds]
        assert len(one.worlds[-1].inputs) > 3


@pytest.mark.parametrize("seed", [46, 50, 73, 243])
def test_what_goes_as_text_is_the_same_story(seed):
    """As what is copied. Messages are lost, and come twice; in 243 a host has sealed its part."""
    one, other = (played(schedule(seed), as_written=as_text) for as_text in (True, False))
    assert [w.inputs for w in one.worlds] == [w.inputs for w in other.worlds]
    assert sum(len(w.inputs) for w in one.worlds) > 30


def test_what_is_found_becomes_a_short_script():
    """Of a start with two dozen settings and what follows, the failure is left, and when it was."""
    with planted("budget is one too large"):
        words, text = script_of(70)
    commands, _, trace = text.partition("----\n")
    head, *lines = commands.splitlines()
    assert head == f"# Found by schedule 70: {words}"
    assert len(lines) <= 5, text
    assert all(len(line.split()) <= 7 for line in lines), text
    assert "failures in a row, and it goes on" in words
    assert trace.splitlines()[-1] == f"!!! {words}"


def test_a_run_that_is_copied_goes_on_as_it_would_have():
    """Nothing that a machine remembers is elsewhere, or shared with its copy."""
    rng = random.Random(1)
    for world in (world for seed in range(60) for world in played(schedule(seed)).worlds):
        machine, inputs = RunMachine(world.policy), world.inputs
        cut = rng.randrange(len(inputs) + 1)
        for event in inputs[:cut]:
            machine.handle(event)
        other = deepcopy(machine)
        of_copy = [other.handle(event) for event in inputs[cut:]]
        assert [machine.handle(event) for event in inputs[cut:]] == of_copy
