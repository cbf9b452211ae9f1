"""Sets in memory: what a restart finds there, and what becomes of them. Real processes, real kills.

The trainer takes a step only when it may, and every step is wanted in memory, so what is there when
somebody is killed is known. To disk goes next to nothing, unless a test wants it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_SAVED,
    FAR,
    House,
    Process,
    children,
    command_line,
    expected_digest,
    is_alive,
    kill,
    ranks_of,
    said_by,
)

from holdfast.errors import JournalError
from holdfast.journal.layout import Word
from holdfast.journal.rank_page import RankPage
from holdfast.snapshot.ram_folder import SealedBuffer, sealed_buffers

pytestmark = pytest.mark.real

SELDOM = ("--save-every", FAR)
EVERY = 4  # steps, to disk where it is wanted there
SELDOM_ENOUGH = 60  # the same, where a flush is to last
IN_MEMORY = ("--snapshot-every", 1, *SELDOM)


def buffers(house: House) -> list[SealedBuffer]:
    """The sets in memory, oldest first."""
    found: list[SealedBuffer] = []
    for place in (house.folder.parent / "memory").glob("holdfast-*/*/ram"):
        found += sealed_buffers(place)[0]
    return found


def newest(house: House) -> int:
    """The newest step that is in memory; 0: none is."""
    return max((one.info.step for one in buffers(house)), default=0)


def all_ready(house: House, ranks: int) -> bool:
    """Whether so many ranks have made their buffers."""
    ready = 0
    for live in (house.folder.parent / "scratch").rglob("rank-*.hfj"):
        with contextlib.suppress(JournalError):  # it is being made, or was brought home
            page = RankPage.open(live)
            ready += page.load(Word.BUFFERS) > 0
            page.detach()
    return ready >= ranks


def train(house: House, run: Process, step: int = 1, ranks: int = 1) -> int:
    """Let it train from that step on until a newer one is in memory; the last that was taken."""
    beyond = newest(house)
    while True:
        house.allow(step)
        if step == 2:  # the first boundary makes room
            house.eventually(lambda: all_ready(house, ranks))
        for rank in range(ranks):
            run.saw(rf"{said_by(rank, ranks)}did {step}$")
        if newest(house) > beyond:
            return step
        step += 1


def start(house: House, *options: object, ranks: int = 1, **env: object) -> Process:
    house.allow(1)
    return house.run("--ranks", ranks, *IN_MEMORY, *options, steps=FAR, **env)


def flushers_of(supervisor: Process) -> list[int]:
    """The pids of the flush processes."""
    return [pid for pid in children(supervisor.pid) if "agent.flusher" in command_line(pid)]


@pytest.mark.parametrize(
    "ranks", [1, pytest.param(2, marks=pytest.mark.contract("seal: back from memory"))]
)
def test_a_killed_rank_costs_a_few_steps(house: House, ranks: int) -> None:
    run = start(house, ranks=ranks)
    step = train(house, run, train(house, run, ranks=ranks), ranks=ranks)
    known = newest(house)
    kill(ranks_of(run)[-1])
    back = int(run.saw(r"^(?:\[\d\] )?from (\d+)", count=ranks + 1).group(1))
    assert known <= back <= step
    run.saw(f"step {back} of attempt 0, .*it is read from memory")
    assert house.sets() == []
    house.allow(step + 5)
    run.saw(f"did {step + 5}$", count=ranks)
    run.send(signal.SIGTERM)
    run.saw("saving, then stopping")
    house.allow(FAR)
    run.wait(EXIT_SAVED)
    house.finishes("--ranks", ranks)


def test_nothing_is_left_in_memory_when_it_is_done(house: House) -> None:
    run = start(house)
    train(house, run)
    run.send(signal.SIGTERM)
    run.saw("saving, then stopping")
    house.allow(FAR)
    run.wait(EXIT_SAVED)
    assert buffers(house) == []
    house.finishes(*IN_MEMORY)
    assert buffers(house) == []


def test_a_last_step_that_is_only_in_memory_is_made_durable_before_the_run_is_done(
    house: House,
) -> None:
    """Restored there, a rank has no step to do and ends at once: that alone is not done."""
    run = start(house)
    train(house, run)
    kill(run.pid)
    run.wait(-signal.SIGKILL)
    last = newest(house)
    assert house.sets() == []
    out = house.run(*IN_MEMORY, steps=last).wait(EXIT_DONE)
    assert f"from {last}" in out
    assert f"step {last} was saved from memory" in out
    assert f"final {expected_digest(last)}" in out
    assert house.saved_step() == last
    assert buffers(house) == []


def test_a_killed_supervisor_is_succeeded_from_memory(house: House) -> None:
    run = start(house)
    train(house, run)
    step = newest(house)
    kill(run.pid)
    run.wait(-signal.SIGKILL)
    assert house.sets() == []
    newest_step = newest(house)
    assert newest_step >= step
    house.allow(FAR)
    out = house.run(*IN_MEMORY, steps=newest_step + 5).wait(EXIT_DONE)
    assert re.search(rf"step {newest_step} of attempt 0, .*read from memory", out), out
    assert f"from {newest_step}" in out
    assert f"final {expected_digest(newest_step + 5)}" in out


def test_ckpt_ls_shows_what_is_in_memory(house: House) -> None:
    run = start(house)
    train(house, run)
    house.eventually(lambda: all_sealed(house))
    kept = {(one.info.attempt, one.info.step) for one in buffers(house)}
    told = json.loads(house.holdfast("ckpt", "ls", "r", "--json").wait(EXIT_DONE))["checkpoints"]
    assert {(one["attempt"], one["step"]) for one in told} == kept
    assert {(one["tier"], one["state"]) for one in told} == {("memory", "good")}
    kill(run.pid)
    run.wait(-signal.SIGKILL)  # what it has left is there for its next start
    out = house.holdfast("ckpt", "ls", "r").wait(EXIT_DONE)
    rows = [line for line in out.splitlines() if line.startswith("0")]
    assert len(rows) == len(kept)
    assert all(re.search(r"\bmemory +good", row) for row in rows)
    assert "no checkpoints" in house.holdfast("ckpt", "ls", "r", "--memory-dir", house.folder).wait(
        EXIT_DONE
    )
    house.allow(FAR)
    house.run(*IN_MEMORY, steps=newest(house) + 3).wait(EXIT_DONE)
    told = json.loads(house.holdfast("ckpt", "ls", "r", "--json").wait(EXIT_DONE))["checkpoints"]
    assert {one["tier"] for one in told} == {"store"}


def test_what_is_only_in_memory_is_taken_to_disk_before_the_run_gives_up(house: House) -> None:
    run = start(house, "--max-failures", 1)
    train(house, run)
    house.allow(0)  # no further than where it comes back to
    kill(ranks_of(run)[0])
    back = int(run.saw(r"^(?:\[\d\] )?from (\d+)$", count=2).group(1))
    assert house.sets() == []
    kill(ranks_of(run)[0])
    out = run.wait(EXIT_FAILED)
    assert "Writing the newest snapshot from memory to the run store" in out
    assert house.saved_step() == back
    assert buffers(house) == []


def test_a_flipped_bit_in_memory_is_noticed_and_another_copy_is_used(house: House) -> None:
    run, step = house_with_disk(house)
    train(house, run, step)
    spoil(house)
    kill(ranks_of(run)[0])
    run.saw("cannot be trusted")
    run.saw("passed over in memory")
    house.allow(FAR)
    run.send(signal.SIGTERM)
    run.wait(EXIT_SAVED)
    house.finishes()


def house_with_disk(house: House, every: int = EVERY) -> tuple[Process, int]:
    """A run with a set in the store; and its next step."""
    house.allow(1)
    to_disk = ("--save-every", every, "--keep", 100)
    run = house.run("--snapshot-every", 1, *to_disk, steps=FAR)
    step = train_to(house, run, 1, every)
    house.eventually(house.sets)
    return run, step


def train_to(house: House, run: Process, step: int, goal: int) -> int:
    """Train from that step on until step `goal`, or one soon after it, is in memory; the next."""
    while newest(house) < goal:
        house.allow(step)
        run.saw(rf"^(?:\[\d\] )?did {step}$")
        house.eventually(lambda: all_sealed(house) or not written(house))
        step += 1
    return step


def spoil(house: House) -> None:
    """Flip one bit in each set in memory; the rank waits for leave to take its next step."""
    house.eventually(lambda: all_sealed(house))
    for one in buffers(house):
        shard = one.info.path / "rank-00000.safetensors"
        with shard.open("r+b") as file:
            file.seek(-20, os.SEEK_END)
            byte = file.read(1)[0]
            file.seek(-20, os.SEEK_END)
            file.write(bytes([byte ^ 1]))


def all_sealed(house: House) -> bool:
    """Whether every set that was copied to memory whole has its checksums."""
    places = written(house)
    return places != [] and all((place / "manifest.json").exists() for place in places)


def written(house: House) -> list[Path]:
    """The buffers that rank 0 has copied something into."""
    shards = (house.folder.parent / "memory").rglob("rank-00000.safetensors")
    return [shard.parent for shard in shards if any(shard.read_bytes()[:8])]


def test_where_memory_is_short_the_disk_is_enough(house: House, small_memory: Path) -> None:
    house.allow(FAR)
    out = house.run(
        "--memory-dir", small_memory, "--save-every", 3, steps=10, HOLDFAST_SNAPSHOT_EVERY=1
    ).wait(EXIT_DONE)
    assert f"final {expected_digest(10)}" in out
    assert house.saved_step() == 10


@pytest.fixture
def small_memory(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory with room for next to nothing."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_without_a_memory_folder_the_disk_is_enough(house: House) -> None:
    house.allow(FAR)
    away = house.folder / "nowhere"
    out = house.run("--memory-dir", away, "--save-every", 3, steps=10).wait(EXIT_DONE)
    assert f"{away} is not there; what is saved is saved to the run store alone" in out
    assert house.saved_step() == 10


def test_memory_can_be_turned_off(house: House) -> None:
    house.allow(FAR)
    run = house.run("--memory", "off", "--save-every", 3, steps=10)
    run.wait(EXIT_DONE)
    assert not any((house.folder.parent / "memory").iterdir())


def test_two_runs_share_a_host(house: House) -> None:
    house.allow(1)
    first, second = (house.run(*IN_MEMORY, steps=FAR, name=name) for name in ("a", "b"))
    step = 1
    while len({one.info.path.parent for one in buffers(house)}) < 2:
        house.allow(step)
        if step == 2:  # the first boundary makes room
            house.eventually(lambda: all_ready(house, 2))
        first.saw(f"did {step}$")
        second.saw(f"did {step}$")
        step += 1
    kill(ranks_of(first)[0])
    first.saw(r"^(?:\[\d\] )?from [1-9]")
    for run in (first, second):
        run.send(signal.SIGTERM)
    house.allow(FAR)
    for run in (first, second):
        run.wait(EXIT_SAVED)
    for name in ("a", "b"):
        house.finishes(name=name)


def test_the_flush_processes_end_with_the_supervisor(house: House) -> None:
    run = start(house)
    train(house, run)
    pids = flushers_of(run)
    assert pids
    kill(run.pid)
    run.wait(-signal.SIGKILL)
    house.eventually(lambda: not any(map(is_alive, pids)))
    house.allow(FAR)
    house.run(steps=newest(house) + 1).wait(EXIT_DONE)


def test_a_killed_flush_process_is_started_again(house: House) -> None:
    run = start(house)
    step = train(house, run)
    for pid in flushers_of(run):
        kill(pid)
    train(house, run, step + 1)
    run.send(signal.SIGTERM)
    run.saw("saving, then stopping")
    house.allow(FAR)
    run.wait(EXIT_SAVED)
    house.finishes()


def held_flush(house: House) -> tuple[Process, int, int]:
    """A run with a flush under way that does not end, the flush process, and the next step.

    One is due as long as it does not end; the one after it is far away, or it would be hurried.
    """
    run, step = house_with_disk(house, SELDOM_ENOUGH)
    house.eventually(lambda: giving_way(run))
    (pid,) = giving_way(run)
    kill(pid, signal.SIGSTOP)
    due = (newest(house) // SELDOM_ENOUGH + 1) * SELDOM_ENOUGH
    return run, pid, train_to(house, run, step, due)


def giving_way(supervisor: Process) -> list[int]:
    """The flush process that gives way to the training; the other one seals."""
    return [pid for pid in flushers_of(supervisor) if command_line(pid).split()[-1] != "0"]


def test_a_flush_is_finished_though_its_trainer_is_dead(house: House) -> None:
    run, pid, step = held_flush(house)
    before = house.saved_step()
    kill(ranks_of(run)[0])
    run.saw(r"^(?:\[\d\] )?from [1-9]")
    kill(pid, signal.SIGCONT)
    house.eventually(lambda: house.saved_step() > before)
    assert house.sets()[-1].name.startswith("0000-")  # the dead trainer's
    house.allow(step + 1)
    run.saw(rf"^(?:\[\d\] )?did {step + 1}$")
    run.send(signal.SIGTERM)
    house.allow(FAR)
    run.wait(EXIT_SAVED)
    house.finishes()


def test_a_flush_that_gets_nowhere_is_hurried_when_the_next_one_is_due(house: House) -> None:
    """On a host that is busy all the time, what gives way to the training waits for ever."""
    run, pid, step = held_flush(house)
    before = house.saved_step()
    while house.saved_step() == before:
        house.allow(step)
        run.saw(rf"^(?:\[\d\] )?did {step}$")
        step += 1
    run.saw("to disk at full speed: the next checkpoint is due")
    house.eventually(lambda: not is_alive(pid))
    run.send(signal.SIGTERM)
    house.allow(FAR)
    run.wait(EXIT_SAVED)
    house.finishes()


def test_a_flush_that_was_cut_off_with_its_supervisor_is_done_anew(house: House) -> None:
    run, pid, step = held_flush(house)
    kill(run.pid)
    run.wait(-signal.SIGKILL)
    house.eventually(lambda: not is_alive(pid))
    back = newest(house)
    assert back > house.saved_step()
    house.allow(FAR)
    to_disk = ("--snapshot-every", 1, "--save-every", SELDOM_ENOUGH)
    out = house.run(*to_disk, steps=step + 20).wait(EXIT_DONE)
    assert f"from {back}" in out
    assert f"final {expected_digest(step + 20)}" in out
    assert house.saved_step() == step + 20
    for place in (house.store / "r" / "ckpt").glob("*-*"):
        assert place.is_file() or (place / "manifest.json").exists(), f"{place} is half a set"


ODD = """
import os, signal, subprocess, sys, time
import numpy as np
import holdfast as hf

run = hf.start()
state = run.restore(init=lambda: {"w": np.zeros(64)})
print("from", run.resume_step, flush=True)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen(["sleep", "1000"], start_new_session=True)
if os.fork() == 0:
    time.sleep(1000)
os.closerange(3, 1 << 16)
for step in run.steps(1_000_000):
    state["w"] += 1
    run.done(step, state)
    print("did", step, flush=True)
    time.sleep(0.01)  # it cannot say so: room in memory for what the test has seen
"""


def test_a_script_of_bad_manners(house: House) -> None:
    """It ignores SIGTERM, leaves children that hold its memory, and closes every descriptor."""
    script = house.script(ODD)
    run = house.holdfast("run", "--name", "r", *IN_MEMORY, "--", sys.executable, script)
    run.saw("did 1$")
    house.eventually(lambda: newest(house) > 0)
    known = newest(house)
    kill(ranks_of(run)[0])
    back = int(run.saw(r"^(?:\[\d\] )?from ([1-9]\d*)").group(1))
    assert back >= known
    run.saw(f"did {back + 1}$")
    run.send(signal.SIGINT)
    run.saw("stopping")
    run.send(signal.SIGINT)
    run.wait()
    for folder in (house.folder.parent / "memory").glob("holdfast-*"):
        shutil.rmtree(folder)  # told to stop now, it leaves what is only there


def test_memory_that_is_emptied_under_a_run_is_filled_again(house: House) -> None:
    """Until then more goes to disk; the run's folder is held anew, so that no other takes it."""

    def go_on_until(step: int, happened) -> int:
        while not happened():
            step += 1
            house.allow(step)
            run.saw(rf"did {step}$")
        return step

    house.allow(1)
    run = house.run("--snapshot-every", 1, "--save-every", FAR, steps=FAR)
    step = go_on_until(1, lambda: newest(house))
    (ram,) = Path(os.environ["HOLDFAST_MEMORY_DIR"]).glob("holdfast-*/*/ram")
    shutil.rmtree(ram.parents[1])
    step = go_on_until(step, lambda: "no snapshots in memory now: saving " in run.text)
    step = go_on_until(step, lambda: newest(house))
    run.saw("saving every step to memory", 2)
    house.eventually((ram / "owner.lock").exists)
    house.eventually((ram / "owner.json").exists)
    back = newest(house)
    kill(ranks_of(run)[0])
    assert int(run.saw(r"from (\d+)$", 2)[1]) >= back
    run.send(signal.SIGTERM)
    run.saw("saving, then stopping")
    house.allow(FAR)
    run.wait(EXIT_SAVED)
    house.finishes()
