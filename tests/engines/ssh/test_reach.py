"""What each host needs next, as tables and as walks through hosts that do anything."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.hosts.reach import (
    MOST_QUICK_ENDS,
    NEW_HOST_LIMIT_NS,
    SECOND_NS,
    HostAct,
    HostMemory,
    HostStep,
    HostWanted,
    JobState,
    ReachedHost,
    Unreached,
    givers,
    next_steps,
    start_waits,
    verdict,
)

WANTED = HostWanted("tree", "pip")
BARE = ReachedHost("h", "boot", (3, 11, 7), "x86_64", address="10.0.0.1")
PUSHED = replace(BARE, trees=("tree",))
READY = replace(PUSHED, installed=("tree", "pip"), install_code=0, version="1.0")
RUNS = replace(READY, job=JobState.RUNNING, job_tree="tree", job_index=0, age_ns=SECOND_NS)
FAILED = replace(READY, install_code=2, install_tail="x\nno such package\n", version="")
AWAY, REFUSES = Unreached("it does not answer"), Unreached("it refuses this key", True)


def ended(code: int | None, **fields: object) -> ReachedHost:
    return replace(RUNS, job=JobState.ENDED, job_code=code, age_ns=600 * SECOND_NS, **fields)


def of_one(told: ReachedHost | Unreached, memory: HostMemory) -> HostStep:
    return next_steps({0: told}, {0: memory}, WANTED)[0]


HAS_RUN, HAS_TRIED = {"has_run": True}, {"tried": True}
TABLE = [
    (BARE, {}, HostAct.PUSH, "does not have the tree"),
    (PUSHED, {}, HostAct.INSTALL, "nothing is installed"),
    (replace(READY, installed=("tree", "other")), {}, HostAct.INSTALL, "nothing is installed"),
    (replace(READY, installed=("old", "pip")), {}, HostAct.INSTALL, "nothing is installed"),
    (READY, {}, HostAct.START, "is to train"),
    (RUNS, {}, HostAct.REST, "it trains"),
    (replace(RUNS, job_tree="other"), {}, HostAct.REST, "with another tree (other): stop the run"),
    (replace(RUNS, job_index=3), {}, HostAct.FAIL, "trains as host 3, and is named as host 0"),
    (FAILED, {}, HostAct.INSTALL, "nothing is installed"),  # before this process looked
    (replace(FAILED, install_tail=""), HAS_TRIED, HostAct.FAIL,
     "the install ended with 2: it printed nothing"),
    (FAILED, HAS_TRIED, HostAct.FAIL, "the install ended with 2: no such package"),
    (replace(READY, version=""), {}, HostAct.INSTALL, "Holdfast was not there"),
    (replace(READY, version=""), HAS_TRIED, HostAct.FAIL, "no Holdfast after the install"),
    (replace(BARE, python=(3, 9, 2)), {}, HostAct.FAIL, "its python3 is 3.9.2, and Holdfast needs"),
    (BARE, {"refused": "the disk is full"}, HostAct.FAIL, "the disk is full"),
    (replace(RUNS), {"refused": "the disk is full"}, HostAct.REST, "it trains"),
    (AWAY, {}, HostAct.WAIT, "does not answer"),
    (REFUSES, {}, HostAct.FAIL, "refuses this key"),
    (ended(1), {}, HostAct.START, "is to train"),  # of an earlier command: it is tried again
    (ended(1, log="Traceback\nValueError: x\n"), HAS_RUN, HostAct.FAIL, "with 1: ValueError: x"),
    (ended(78), HAS_RUN, HostAct.FAIL, "the run ended with 78"),
    (ended(0), HAS_RUN, HostAct.DONE, "done"),
    (ended(75), HAS_RUN, HostAct.START, "is to train"),
    (ended(69), HAS_RUN, HostAct.START, "is to train"),
    (ended(None), HAS_RUN, HostAct.START, "is to train"),
    (ended(137), HAS_RUN | {"quick_ends": 5}, HostAct.FAIL, "ended with 137 5 times in a row"),
    (ended(75), HAS_RUN | {"quick_ends": 50}, HostAct.START, "is to train"),
    (replace(ended(75), age_ns=SECOND_NS), HAS_RUN | {"quick_ends": 3}, HostAct.WAIT, "again 8 s"),
]  # fmt: skip


@pytest.mark.parametrize(("told", "memory", "step", "words"), TABLE)
def test_what_one_host_needs(told, memory, step, words) -> None:
    found = of_one(told, HostMemory(**memory))
    assert found.step is step
    assert words in found.reason


@pytest.mark.parametrize("other", [BARE, PUSHED, AWAY, REFUSES])
def test_nothing_is_started_before_every_host_can(other) -> None:
    memory = {0: HostMemory(), 1: HostMemory()}
    steps = next_steps({0: READY, 1: other}, memory, WANTED)
    assert steps[0] == HostStep(HostAct.WAIT, "waits for host 1")


@pytest.mark.parametrize("other", [READY, replace(RUNS, job_index=1), replace(ended(75), age_ns=1)])
def test_one_that_trains_or_will_keeps_nobody_waiting(other) -> None:
    memory = {0: HostMemory(), 1: HostMemory(has_run=True, quick_ends=2)}
    assert next_steps({0: READY, 1: other}, memory, WANTED)[0].step is HostAct.START


def test_who_has_left_is_not_started_again_before_the_others_have() -> None:
    memory = {0: HostMemory(has_run=True), 1: HostMemory(has_run=True)}
    runs = replace(RUNS, job_index=1)
    left = next_steps({0: ended(75, ended_ago_ns=SECOND_NS), 1: runs}, memory, WANTED)
    assert left[0] == HostStep(HostAct.WAIT, "it has left, and the others leave too")
    for one in (ended(75, ended_ago_ns=60 * SECOND_NS), ended(None), ended(137)):
        assert next_steps({0: one, 1: runs}, memory, WANTED)[0].step is HostAct.START


def test_an_end_counts_where_others_still_run_that_began_before_it() -> None:
    """Who looks for the first time while the run ends does not begin it again."""
    runs = replace(RUNS, job_index=1, age_ns=9 * SECOND_NS)
    for ago_s, kind in ((1, HostAct.DONE), (60, HostAct.START)):
        memory = {0: HostMemory(), 1: HostMemory()}
        told = {0: ended(0, ended_ago_ns=ago_s * SECOND_NS), 1: runs}
        assert next_steps(told, memory, WANTED)[0].step is kind


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        (replace(READY, machine="aarch64"), "hosts 0, 2: x86_64 with Python 3.11; host 1: aarch64"),
        (replace(READY, python=(3, 12, 1)), "host 1: x86_64 with Python 3.12"),
    ],
)
def test_hosts_of_different_kinds_are_no_run(odd, words) -> None:
    told = {0: READY, 1: odd, 2: replace(RUNS, job_index=2)}
    steps = next_steps(told, {n: HostMemory() for n in range(3)}, WANTED)
    assert [steps[n].step for n in range(3)] == [HostAct.FAIL, HostAct.FAIL, HostAct.REST]
    assert words in steps[0].reason
    patch = {0: READY, 1: replace(READY, python=(3, 11, 9))}
    assert next_steps(patch, {0: HostMemory(), 1: HostMemory()}, WANTED)[0].step is HostAct.START


def test_hosts_with_one_home_are_no_run() -> None:
    """Each would find the others' job there, take it for its own that has ended, and start anew."""
    one, other = replace(READY, folder="ab"), replace(READY, folder="cd")
    told = {0: one, 1: other, 2: one, 3: replace(RUNS, job_index=3, folder="ab")}
    steps = next_steps(told, {n: HostMemory() for n in range(4)}, WANTED)
    assert [steps[n].step for n in range(4)] == [*[HostAct.FAIL] * 3, HostAct.REST]
    assert steps[1].reason.startswith("hosts 0, 2, 3 have one home folder")
    not_yet = {0: READY, 1: READY, 2: other}
    steps = next_steps(not_yet, {n: HostMemory() for n in range(3)}, WANTED)
    assert {step.step for step in steps.values()} == {HostAct.START}


def step(kind: HostAct, reason: str = "x", code: int | None = None) -> HostStep:
    return HostStep(kind, reason, code)


@pytest.mark.parametrize(
    ("steps", "code", "words"),
    [
        ([step(HostAct.REST), step(HostAct.WAIT)], None, ""),
        ([step(HostAct.DONE, code=0), step(HostAct.REST)], None, ""),  # it ends too, in a moment
        ([step(HostAct.DONE, code=0), step(HostAct.WAIT)], 0, "done"),
        ([step(HostAct.FAIL, "a", 1), step(HostAct.REST)], 1, "host 0: a"),
        ([step(HostAct.FAIL, "a"), step(HostAct.FAIL, "a")], 69, "hosts 0, 1: a"),
        ([step(HostAct.FAIL, "a"), step(HostAct.PUSH)], None, ""),  # what is under way comes first
        ([step(HostAct.FAIL, "a"), step(HostAct.FAIL, "b", 78)], 78, "host 0: a; host 1: b"),
    ],
)
def test_how_the_whole_stands(steps, code, words) -> None:
    assert verdict(dict(enumerate(steps))) == (code, words)


def test_a_new_machine_is_given_time_to_let_us_in() -> None:
    memory = HostMemory()
    assert memory.saw(REFUSES, 0, is_new=True) == Unreached(REFUSES.words, needs_person=False)
    assert memory.saw(BARE, 5, is_new=True) is None
    assert memory.saw(REFUSES, 10, is_new=True).needs_person is False
    late = memory.saw(REFUSES, 11 + NEW_HOST_LIMIT_NS, is_new=True)
    assert late == Unreached(REFUSES.words, needs_person=True)
    assert HostMemory().saw(REFUSES, 0, is_new=False) == REFUSES


def test_a_name_that_is_gone_needs_nobody_where_its_host_has_answered_before() -> None:
    nameless = Unreached("there is no host of that name", needs_person=True, may_be_here=True)
    memory = HostMemory()
    assert memory.saw(nameless, 0, is_new=False) == nameless
    assert memory.saw(BARE, 5, is_new=False) is None
    assert memory.saw(nameless, 10, is_new=False) == replace(nameless, needs_person=False)
    assert memory.saw(REFUSES, 20, is_new=False) == REFUSES


WAITED = replace(BARE, boot_unix_ns=5, pushed="t", push_unix_ns=20, install_unix_ns=(30, 40))


@pytest.mark.parametrize(
    ("told", "is_new", "waited"),
    [
        (WAITED, True, [("boot", 5, 20), ("pull", 20, 40)]),
        (WAITED, False, [("pull", 20, 40)]),
        (replace(WAITED, pushed="old"), True, [("boot", 5, 30), ("pull", 30, 40)]),  # it had it
        (replace(WAITED, boot_unix_ns=25), True, [("pull", 20, 40)]),  # rebooted since
        (replace(WAITED, job_unix_ns=39), False, [("pull", 20, 40)]),  # of the tree before
        (replace(WAITED, job_unix_ns=41), True, []),  # it was told
        (BARE, True, []),
    ],
)
def test_what_a_start_has_waited_for_is_told_once(
    told: ReachedHost, is_new: bool, waited: list[tuple[str, int, int]]
) -> None:
    found = start_waits(told, "t", is_new=is_new)
    assert [(one.kind, one.start_unix_ns, one.end_unix_ns) for one in found] == waited


def test_only_quick_ends_in_a_row_count() -> None:
    memory = HostMemory(has_run=True)
    for _ in range(MOST_QUICK_ENDS):
        memory.starts(replace(ended(137), age_ns=SECOND_NS))
    assert of_one(ended(137), memory).step is HostAct.FAIL
    memory.starts(ended(137))
    assert memory.quick_ends == 0


@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 4))
def test_what_leaves_here_is_one_copy(lacking: int, having: int, fan_out: int) -> None:
    """Whoever gives has it, or was told before who gets it; nobody gives to too many."""
    wants, has = list(range(100, 100 + lacking)), list(range(having))
    plan = givers(wants, has, fan_out=fan_out)
    assert list(plan) == wants
    from_here = [one for one in plan.values() if one is None]
    assert len(from_here) == (1 if lacking and not having else 0)
    known = set(has)
    for index, giver in plan.items():
        assert giver is None or giver in known
        known.add(index)
    given = [giver for giver in plan.values() if giver is not None]
    assert all(given.count(one) <= fan_out for one in given)


def test_without_a_relay_each_gets_it_from_here() -> None:
    assert givers([1, 2], [0], fan_out=0) == {1: None, 2: None}


class World:
    """Hosts that lose their power, their disk and their jobs, driven as `spread` does it."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.hosts: list[ReachedHost | Unreached] = [BARE] * self.dice.randint(1, 5)
        self.memory = {n: HostMemory() for n in range(len(self.hosts))}

    def trouble(self) -> None:
        """One thing happens to one host."""
        n = self.dice.randrange(len(self.hosts))
        one = self.hosts[n]
        if isinstance(one, Unreached):
            self.hosts[n] = BARE  # a new machine
        elif self.dice.random() < 0.3:
            self.hosts[n] = AWAY
        elif one.job is JobState.RUNNING:
            code = self.dice.choice([None, 75, 69])
            self.hosts[n] = replace(
                one,
                job=JobState.ENDED,
                job_code=code,
                age_ns=120 * SECOND_NS,
                ended_ago_ns=60 * SECOND_NS,
            )

    def turn(self) -> dict[int, HostStep]:
        told = dict(enumerate(self.hosts))
        for n, one in told.items():
            self.memory[n].saw(one, 0, is_new=True)
        steps = next_steps(told, self.memory, WANTED)
        for n, (kind, _, _) in steps.items():
            one = self.hosts[n]
            if kind is HostAct.PUSH:
                self.hosts[n] = replace(one, trees=("tree",))
            elif kind is HostAct.INSTALL:
                self.memory[n].tried = True
                done = {"installed": ("tree", "pip"), "install_code": 0, "version": "1"}
                self.hosts[n] = replace(one, **done)
            elif kind is HostAct.START:
                self.memory[n].starts(one)
                self.hosts[n] = replace(RUNS, job_index=n)
        return steps


@pytest.mark.parametrize("seed", range(200))
def test_whatever_happens_all_hosts_train_in_the_end(seed: int) -> None:
    world = World(seed)
    for _ in range(world.dice.randint(0, 30)):
        if world.dice.random() < 0.5:
            world.trouble()
        steps = world.turn()
        assert verdict(steps)[0] is None
    world.hosts = [BARE if isinstance(one, Unreached) else one for one in world.hosts]
    for _ in range(4):  # push, install, start, look
        steps = world.turn()
    assert {one.step for one in steps.values()} == {HostAct.REST}
    assert [one.job_index for one in world.hosts] == list(range(len(world.hosts)))
