"""A host is gone and no spare is there: the run waits for it, or goes on with fewer hosts."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from pathlib import Path

import pytest
from processes import (
    EXIT_CONFIGURATION,
    EXIT_DONE,
    FAR,
    TRAINER,
    House,
    Process,
    expected_digest,
    kill,
    ranks_of,
)

sys.path.insert(0, str(TRAINER.parent))
from elastic_trainer import final
from test_several_hosts import controller_of

sys.path.pop(0)

pytestmark = pytest.mark.real

ELASTIC_TRAINER = TRAINER.with_name("elastic_trainer.py")
MANY = 1000


def start(house: House, index: int, of: int, *options: object, **env: object) -> Process:
    words = ("--hosts", of, "--host-index", index, "--host-lost", 1, "--save-every", 3, *options)
    return house.run(*words, **{"steps": 12, **env})


@pytest.mark.parametrize("comes_back", ["as it was", "on another machine", "to a new controller"])
def test_without_a_spare_the_run_waits_for_its_host_and_says_so(
    house: House, comes_back: str
) -> None:
    house.allow(7)
    first, second = (start(house, index, 2) for index in range(2))
    for rank, agent in enumerate((first, second)):
        agent.saw(rf"\[{rank}\] did 7$")
    kill(second.pid)
    first.saw(r"Host 1 is lost")
    first.saw(r"Waiting for host 1 \(")
    if comes_back == "to a new controller":
        kill(controller_of(first))
        first.saw(r"Attempt 0 cannot go on|Waiting", count=2)
    env = {}
    if comes_back == "on another machine":
        env["HOLDFAST_SCRATCH"] = house.folder / "another"
        env["HOLDFAST_MEMORY_DIR"] = house.folder / "memory of another"
        for path in env.values():
            Path(str(path)).mkdir()
    third = start(house, 1, 2, **env)
    house.allow(FAR)
    for rank, agent in enumerate((first, third)):
        out = agent.wait(EXIT_DONE)
        assert f"[{rank}] final {expected_digest(12)}" in out
    if env:
        forget_host_1()


class ElasticRun:
    """Three hosts, of which two are enough; their steps are let through one by one."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.step = 7
        house.allow(self.step)
        self.agents = [self.start(index) for index in range(3)]
        for rank, agent in enumerate(self.agents):
            agent.saw(rf"\[{rank}\] did {self.step}$")

    def start(self, index: int) -> Process:
        env = {"trainer": ELASTIC_TRAINER, "steps": MANY, "SAVE_AT": 5}
        return start(self.house, index, 3, "--elastic", 2, **env)

    def train_until(self, who: Process, words: str) -> None:
        """Slowly, so that there is something left to train."""
        while not re.search(words, who.text):
            self.step += 1
            assert self.step < MANY, f"never {words!r} in:\n{who.text}"
            self.house.allow(self.step)
            self.agents[0].saw(rf"\[0\] did {self.step}$|Restarting")
            time.sleep(0.1)

    def ends(self) -> None:
        """All three train at the end, and their numbers are right."""
        self.house.allow(FAR)
        for rank, agent in enumerate(self.agents):
            out = agent.wait(EXIT_DONE)
            assert f"[{rank}] final {final(MANY)}" in out
            assert re.findall(r"\[\d\] from \d+ of (\d)", out)[-1] == "3"


def test_a_new_controller_goes_on_with_an_attempt_on_fewer_hosts(house: House) -> None:
    run = ElasticRun(house)
    kill(run.agents[1].pid)
    first, _, third = run.agents
    third.saw(r"\[1\] from \d+ of 2$")
    run.train_until(third, r"\[1\] did 12$")
    ranks = ranks_of(first), ranks_of(third)
    kill(controller_of(first))
    run.train_until(first, "Attempt 1 goes on: all its hosts are there")
    assert (ranks_of(first), ranks_of(third)) == ranks  # they have trained on
    run.agents[1] = run.start(1)
    run.train_until(first, "Restarting: a host is back, and the run trains on 2")
    run.ends()


def test_a_host_in_quarantine_is_done_without_and_taken_in_again(house: House) -> None:
    run = ElasticRun(house)
    first = run.agents[0]
    house.holdfast("hosts", "r", "--quarantine", 1, "--reason", "slow").wait(EXIT_DONE)
    run.train_until(first, "Host 1 gives up its part: it is in quarantine .slow")
    run.agents[2].saw(r"\[1\] from \d+ of 2$")
    house.holdfast("hosts", "r", "--release", 1).wait(EXIT_DONE)
    run.train_until(first, "Restarting: a host is back, and the run trains on 2")
    run.ends()
    report = json.loads(house.holdfast("report", "r", "--json").wait(EXIT_DONE))
    assert [one["cause"] for one in report["disruptions"]] == ["stopped", "stopped"]


def test_a_slice_of_spares_takes_the_place_of_a_broken_one(house: House) -> None:
    """Host 1 of slice a is gone: host 0, which lives, gives up its part, too."""
    house.allow(7)
    agents = [
        start(house, index, 2, "--spares", 2, "--slice", name) for index, name in enumerate("aabb")
    ]
    for rank in (0, 1):
        agents[rank].saw(rf"\[{rank}\] did 7$")
    kill(agents[1].pid)
    agents[0].saw("Slice b takes the place of slice a")
    for rank, agent in ((0, agents[2]), (1, agents[3])):
        agent.saw(rf"This is host {rank + 2} of 4 in the place of host {rank}")
    house.allow(FAR)
    for rank, agent in ((0, agents[2]), (1, agents[3])):
        assert f"[{rank}] final {expected_digest(12)}" in agent.wait(EXIT_DONE)
    agents[0].wait(EXIT_DONE)  # as a spare
    forget_host_1()


def forget_host_1() -> None:
    """The machine went with its agent."""
    for place in ("HOLDFAST_SCRATCH", "HOLDFAST_MEMORY_DIR"):
        for left in Path(os.environ[place]).glob("*/*-host1"):
            shutil.rmtree(left)


def test_more_than_all_hosts_cannot_be_the_least(house: House) -> None:
    out = start(house, 0, 2, "--elastic", 3).wait(EXIT_CONFIGURATION)
    assert "--elastic 3 is the least number of hosts, and --hosts 2 all of them" in out
