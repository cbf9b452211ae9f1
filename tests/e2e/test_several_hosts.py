"""`holdfast run --hosts`: agents of one machine, as hosts of one run, with real processes."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from processes import (
    EXIT_CONFIGURATION,
    EXIT_DONE,
    EXIT_SAVED,
    EXIT_UNAVAILABLE,
    FAR,
    House,
    Process,
    expected_digest,
    kill,
    ranks_of,
)

pytestmark = pytest.mark.real

FEW = ("--host-lost", 1, "--save-every", 3)


def hosts(
    house: House, *options: object, of: int = 2, spares: int = 0, steps: int
) -> list[Process]:
    count = ("--hosts", of, "--spares", spares)
    return [
        house.run(*count, "--host-index", index, *options, steps=steps)
        for index in range(of + spares)
    ]


def controller_of(agent: Process) -> int:
    """Who was started by that agent and is the controller."""
    words = ["pgrep", "-P", str(agent.pid), "-f", "as-controller"]
    return int(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


def meeting_of(rank: int) -> list[bytes]:
    """Where that process was told to meet the others."""
    variables = Path(f"/proc/{rank}/environ").read_bytes().split(b"\0")
    ports = (b"MASTER_PORT=", b"HOLDFAST_COORDINATOR_PORT=")
    return sorted(one for one in variables if one.startswith(ports))


@pytest.mark.contract("hosts: two agents, one stop, one step")
def test_a_sigterm_on_one_host_saves_one_step_on_both(house: House) -> None:
    house.allow(5)
    both = hosts(house, steps=FAR)
    for rank, agent in enumerate(both):
        agent.saw(rf"\[{rank}\] did 5")
    both[1].send(signal.SIGTERM)
    house.allow(FAR)
    words = "\n".join(agent.wait(EXIT_SAVED) for agent in both)
    assert "SIGTERM on host 1" in words  # by the host that has started the controller
    saved = re.findall(r"step (\d+) is saved", words)
    assert len(set(saved)) == 1
    step = int(saved[0])
    both = hosts(house, steps=step + 5)
    for rank, agent in enumerate(both):
        out = agent.wait(EXIT_DONE)
        assert f"[{rank}] from {step}" in out
        assert f"[{rank}] final {expected_digest(step + 5)}" in out


def test_a_rank_that_dies_takes_the_others_back_with_it(house: House) -> None:
    """Without standbys, whose variables are those of the attempt only within the process."""
    house.allow(7)
    both = hosts(house, "--save-every", 3, "--standby", "off", steps=12)
    for rank, agent in enumerate(both):
        agent.saw(rf"\[{rank}\] did 7")
    (first,), (victim,) = map(ranks_of, both)
    before = meeting_of(first)
    assert meeting_of(victim) == before
    kill(victim)
    for rank, agent in enumerate(both):
        agent.saw(rf"\[{rank}\] from", count=2)
    house.allow(9)
    for rank, agent in enumerate(both):
        agent.saw(rf"\[{rank}\] did 9")
    (first,), (second,) = map(ranks_of, both)
    assert meeting_of(first) == meeting_of(second)
    assert not set(meeting_of(first)) & set(before)  # nobody meets those of the last attempt
    house.allow(FAR)
    for rank, agent in enumerate(both):
        out = agent.wait(EXIT_DONE)
        assert len(re.findall(r"\[\d\] from (\d+)", out)) == 2
        assert f"[{rank}] final {expected_digest(12)}" in out
    assert "rank 1: killed by SIGKILL" in both[0].text + both[1].text


def test_a_spare_takes_the_place_of_a_host_that_is_gone(house: House) -> None:
    house.allow(7)
    agents = hosts(house, "--host-lost", 1, "--save-every", 3, spares=1, steps=12)
    for rank, agent in enumerate(agents[:2]):
        agent.saw(rf"\[{rank}\] did 7")
    kill(agents[1].pid)
    agents[2].saw("This is host 2 of 3 in the place of host 1")
    house.allow(FAR)
    assert f"[0] final {expected_digest(12)}" in agents[0].wait(EXIT_DONE)
    assert f"[1] final {expected_digest(12)}" in agents[2].wait(EXIT_DONE)
    for left in ("HOLDFAST_SCRATCH", "HOLDFAST_MEMORY_DIR"):
        (folder,) = Path(os.environ[left]).glob("*/*-host1")
        shutil.rmtree(folder)  # the machine went with its agent


def test_a_host_that_is_announced_to_go_leaves_its_part_to_a_spare(house: House) -> None:
    """The run saves, and goes on without it; with nobody to take its part all hosts stop."""
    house.allow(7)
    noticed = [house.folder / f"notice-{index}" for index in range(3)]
    agents = [
        house.run(
            *("--hosts", 2, "--spares", 1, "--host-index", index, "--save-every", 1000),
            *("--notice", f"file:{noticed[index]}"),
            steps=FAR,
        )
        for index in range(3)
    ]
    for rank in (0, 1):
        agents[rank].saw(rf"\[{rank}\] did 7$")
    noticed[1].write_text("600")
    house.allow(FAR)
    agents[0].saw("Host 1 gives up its part: it is in quarantine .terminate announced by file")
    agents[2].saw(r"\[1\] from ([1-9]\d*)")
    noticed[0].write_text("10")  # time for a save on a machine that has other work
    agents[0].saw("saving, then stopping")
    words = [agent.wait(EXIT_SAVED) for agent in agents]
    assert len(set(re.findall(r"stopped; step (\d+) is saved", "\n".join(words)))) == 1
    report = json.loads(house.holdfast("report", "r", "--json").wait(EXIT_DONE))
    moved, stopped = report["disruptions"]
    assert (moved["cause"], stopped["cause"]) == ("preempted", "preempted")
    assert "host 1 gives up its part (terminate announced by file)" in json.dumps(report)
    history = house.holdfast("export", "r", "--history").wait(EXIT_DONE)
    assert "file: terminate of host 1" in history


@pytest.mark.contract("hosts: a controller is killed, and another one goes on")
def test_a_controller_that_is_killed_is_followed_by_one_that_goes_on(house: House) -> None:
    house.allow(7)
    both = hosts(house, "--save-every", 3, steps=FAR)
    for rank, agent in enumerate(both):
        agent.saw(rf"\[{rank}\] did 7")
    ranks = [ranks_of(agent) for agent in both]
    kill(controller_of(both[0]))
    house.allow(9)  # they train on meanwhile
    for rank, agent in enumerate(both):
        agent.saw(rf"\[{rank}\] did 9")
    both[0].saw("Attempt 0 goes on: all its hosts are there")
    assert [ranks_of(agent) for agent in both] == ranks
    both[1].send(signal.SIGTERM)
    both[0].saw("SIGTERM on host 1")
    house.allow(FAR)
    words = [agent.wait(EXIT_SAVED) for agent in both]
    (step,) = set(re.findall(r"step (\d+) is saved", "\n".join(words)))
    end = int(step) + 5
    both = hosts(house, steps=end)
    for rank, agent in enumerate(both):
        out = agent.wait(EXIT_DONE)
        assert f"[{rank}] from {step}" in out
        assert f"[{rank}] final {expected_digest(end)}" in out


def test_an_agent_that_is_started_again_brings_home_what_its_ranks_had_done(house: House) -> None:
    house.allow(7)
    both = hosts(house, "--host-lost", 1, "--save-every", 3, steps=12)
    for rank, agent in enumerate(both):
        agent.saw(rf"\[{rank}\] did 7")
    kill(both[1].pid)
    house.allow(FAR)
    again = house.run(
        "--hosts", 2, "--host-index", 1, "--host-lost", 1, "--save-every", 3, steps=12
    )
    for agent in (both[0], again):
        agent.wait(EXIT_DONE)
    assert json.loads(house.command("report", "r", "--json"))["steps_kept"] == 12
    assert not list(Path(os.environ["HOLDFAST_SCRATCH"]).glob("*/*-host1/attempt-*"))


@pytest.mark.parametrize("scratch", ["same", "other"])
def test_one_index_twice_on_one_machine_is_refused(house: House, scratch: str) -> None:
    house.allow(3)
    both = hosts(house, "--host-lost", 1, steps=FAR)
    both[1].saw(r"\[1\] did 3")
    ranks = [ranks_of(agent) for agent in both]
    own = ("--scratch", house.folder / "scratch") if scratch == "other" else ()
    again = house.run("--hosts", 2, "--host-index", 1, "--host-lost", 1, *own, steps=FAR)
    assert "another process runs as host 1" in again.wait(EXIT_UNAVAILABLE)
    assert [ranks_of(agent) for agent in both] == ranks
    both[0].send(signal.SIGTERM)
    house.allow(FAR)
    for agent in both:
        agent.wait(EXIT_SAVED)


def test_a_host_with_another_command_is_refused_and_the_run_goes_on(house: House) -> None:
    first = house.run("--hosts", 2, "--host-index", 0, "--ranks", 2, steps=3)
    first.saw("Waiting for host 1")
    other = house.run("--hosts", 2, "--host-index", 1, steps=3)
    assert "it has --ranks '1', not '2': start the same" in other.wait(EXIT_CONFIGURATION)
    other = house.run("--hosts", 2, "--host-index", 1, "--ranks", 2, steps=4)
    assert "it has another command (word 3 of 3): start the same" in other.wait(EXIT_CONFIGURATION)
    house.run("--hosts", 2, "--host-index", 1, "--ranks", 2, steps=3).wait(EXIT_DONE)
    assert "Host 1 is refused" in first.wait(EXIT_DONE)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--hosts", 2), "which of the hosts 0 to 1 is this? Give each its own --host-index"),
        (("--hosts", 2, "--host-index", 2), "host 2, by --host-index, cannot be"),
        (("--hosts", 2, "--host-index", 0, "--fresh"), "--fresh is for a run of one host"),
        (("--hosts", 2, "--host-index", 0, "--secret-file", "/nowhere"), "cannot be read"),
    ],
)
def test_what_cannot_be_meant_is_one_sentence(
    house: House, options: tuple[object, ...], words: str
) -> None:
    out = house.run(*options, steps=1).wait(EXIT_CONFIGURATION)
    assert words in out
    assert len(out.splitlines()) == 1


def test_a_stop_before_the_run_has_begun_ends_the_agent(house: House) -> None:
    alone = house.run("--hosts", 2, "--host-index", 0, steps=1)
    alone.saw("Waiting for host 1")
    alone.send(signal.SIGTERM)
    alone.wait(EXIT_SAVED)


def test_a_host_that_fails_again_and_again_leaves_its_part_to_the_spare(house: House) -> None:
    """It is tried out before its third attempt; the quarantine is on record, and can be undone."""
    house.allow(7)
    agents = hosts(house, "--save-every", 3, "--quarantine-after", 3, spares=1, steps=FAR)

    def one_says(words: str) -> None:  # whoever has started the controller
        house.eventually(lambda: any(re.search(words, agent.text) for agent in agents))

    step = 7
    for count in range(1, 4):
        for rank in (0, 1):
            agents[rank].saw(rf"\[{rank}\] did {step}$")
        (victim,) = ranks_of(agents[1])
        kill(victim)
        if count == 2:
            one_says(r"Host 1 has passed its preflight \(memory and disks, matmul .* host 0 at")
        if count < 3:
            step += 2
            house.allow(step)
    one_says("Host 1 goes into quarantine: lost or failed 3 times within")
    agents[2].saw("This is host 2 of 3 in the place of host 1")
    house.allow(FAR)
    agents[2].saw(r"\[1\] did")
    house.eventually(lambda: "killed by SIGKILL), by the run itself" in house.command("hosts", "r"))
    house.command("hosts", "r", "--release", 1)
    one_says("Host 1 is in quarantine no more")
    agents[0].send(signal.SIGTERM)
    for agent in agents:
        agent.wait(EXIT_SAVED)


def pods(house: House, *, steps: int) -> list[Process]:
    """As an Indexed Job of Kubernetes starts them: the index stands in the environment."""
    return [house.run("--hosts", 2, steps=steps, JOB_COMPLETION_INDEX=index) for index in (0, 1)]


def test_pods_that_leave_together_go_on_together(house: House) -> None:
    """Kubernetes ends one of them; the Job makes all of them again after exit code 75."""
    house.allow(5)
    both = pods(house, steps=FAR)
    for rank, agent in enumerate(both):
        agent.saw(rf"\[{rank}\] did 5")
    both[0].send(signal.SIGTERM)
    house.allow(FAR)
    words = [agent.wait(EXIT_SAVED) for agent in both]
    (step,) = set(re.findall(r"step (\d+) is saved", "\n".join(words)))
    end = int(step) + 5
    for rank, agent in enumerate(pods(house, steps=end)):
        out = agent.wait(EXIT_DONE)
        assert f"[{rank}] from {step}" in out
        assert f"[{rank}] final {expected_digest(end)}" in out


def test_a_pod_that_is_made_again_is_the_host_of_its_index(house: House) -> None:
    """Its node was lost, with all that was on it; nobody is a spare."""
    house.allow(7)
    both = [house.run("--hosts", 2, *FEW, steps=12, JOB_COMPLETION_INDEX=index) for index in (0, 1)]
    for rank, agent in enumerate(both):
        agent.saw(rf"\[{rank}\] did 7")
    kill(both[1].pid)
    (scratch,) = Path(os.environ["HOLDFAST_SCRATCH"]).glob("*/*-host1")
    shutil.rmtree(scratch)
    house.allow(FAR)
    again = house.run("--hosts", 2, *FEW, steps=12, JOB_COMPLETION_INDEX=1)
    assert f"[0] final {expected_digest(12)}" in both[0].wait(EXIT_DONE)
    assert f"[1] final {expected_digest(12)}" in again.wait(EXIT_DONE)
