"""Disks that fill up or become read-only under a run: it trains on, what is saved stays good."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import (
    EXIT_DONE,
    EXIT_SAVED,
    EXIT_UNAVAILABLE,
    FAR,
    LIMIT_S,
    House,
    Process,
    expected_digest,
    go_on_until,
    step_of,
)

from holdfast.journal.layout import CHUNK_RECORDS as RECORDS_OF_A_CHUNK

NOT_SAVED = re.compile("could not be (saved|written to the run store)|does not count yet")

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small tmpfs takes root"),
]


class Disk:
    """A small file system of its own."""

    def __init__(self, folder: Path, size: str) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        if why := self._mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs"):
            pytest.skip(f"no file system can be mounted here: {why}")

    def fill(self) -> None:
        """Until nothing fits any more."""
        ballast = (self.folder / "ballast").open("wb", buffering=0)
        with ballast, contextlib.suppress(OSError):
            while True:
                ballast.write(bytes(4096))

    def empty(self) -> None:
        """Make room again."""
        (self.folder / "ballast").unlink()

    def writable(self, yes: bool) -> None:
        """Mount it anew, for reading alone or for both.

        Not for reading alone while somebody has a file there open for writing: it is busy then,
        for the moment that a copy of a journal or a save takes.
        """
        give_up = time.monotonic() + LIMIT_S
        while why := self._mount("-o", f"remount,{'rw' if yes else 'ro'}"):
            assert time.monotonic() < give_up, why

    def unmount(self) -> None:
        subprocess.run(["umount", "-l", str(self.folder)], check=True)

    def _mount(self, *words: str) -> str:
        """Why it could not be done; empty: it was."""
        done = subprocess.run(
            ["mount", *words, str(self.folder)], capture_output=True, text=True, check=False
        )
        return done.stderr.strip() or "mount does not say why" if done.returncode else ""


@pytest.fixture
def store_disk(store: Path) -> Iterator[Disk]:
    disk = Disk(store, "4m")
    yield disk
    disk.unmount()


@pytest.fixture
def scratch_disk(store: Path) -> Iterator[Disk]:
    disk = Disk(Path(os.environ["HOLDFAST_SCRATCH"]), "6m")
    yield disk
    disk.unmount()


def started(house: House, *options: object, steps: int = FAR) -> tuple[Process, int]:
    """A run that has saved something and waits at a step; that step."""
    house.allow(1)
    run = house.run("--save-every", 1, *options, steps=steps)
    return run, go_on_until(house, run, 1, house.saved_step)


def test_a_store_that_is_full_for_a_while(store_disk: Disk, house: House) -> None:
    run, step = started(house)
    store_disk.fill()
    before = house.saved_step()
    step = go_on_until(house, run, step, lambda: NOT_SAVED.search(run.text))
    assert len([one for one in house.sets() if step_of(one) > before]) <= 2
    assert "every byte" in house.holdfast("ckpt", "verify", "r").wait(EXIT_DONE)
    store_disk.empty()
    full = house.saved_step()
    go_on_until(house, run, step, lambda: house.saved_step() > full)
    run.send(signal.SIGTERM)
    house.allow(FAR)
    run.wait(EXIT_SAVED)
    house.finishes()


LAST = 2000  # many more than pass until the first is saved, on a slow disk too
HELD = "finished, not yet durable"


def test_a_store_that_is_full_at_the_end(store_disk: Disk, house: House) -> None:
    """The run is held, and told to be; with room it is done, and no step is done again."""
    run, _ = started(house, steps=LAST)
    store_disk.fill()
    house.allow(FAR)
    run.saw(f"{HELD}: the last step, {LAST}, .*make room in the run store")
    run.saw("final")  # its process leaves, and the device with it
    house.eventually(lambda: HELD in house.holdfast("ls").wait(EXIT_DONE))
    assert json.loads(house.holdfast("report", "r", "--json").wait(EXIT_DONE))["run"]["why"] == HELD
    store_disk.empty()
    out = run.wait(EXIT_DONE)
    assert f"final {expected_digest(LAST)}" in out
    assert out.count(f"did {LAST}\n") == 1
    assert house.saved_step() == LAST
    report = json.loads(house.holdfast("report", "r", "--json").wait(EXIT_DONE))
    assert report["run"]["state"] == "done"
    assert HELD not in (report["saving"] or "")


def test_a_store_that_is_full_at_the_end_of_a_bare_run(store_disk: Disk, house: House) -> None:
    house.allow(1)
    run = house.alone(steps=LAST, HOLDFAST_SAVE_EVERY_STEPS=1)
    go_on_until(house, run, 1, house.saved_step)
    store_disk.fill()
    house.allow(FAR)
    run.saw(f"{HELD}: the last step, {LAST}, ")
    store_disk.empty()
    assert f"final {expected_digest(LAST)}" in run.wait(EXIT_DONE)
    assert house.saved_step() == LAST


def test_room_for_the_last_step_is_made_as_retention_allows(store_disk: Disk, house: House) -> None:
    """With `--keep 2` the older set goes before the last is written, and never the newest."""
    script = house.script(
        """
import os
import numpy as np
import holdfast as hf

run = hf.start()
state = run.restore(init=lambda: {"w": np.zeros(160_000)})  # 1.2 MB: three do not fit
for step in run.steps(3):
    run.save(wait=True)
    run.done(step, state)
"""
    )
    words = ("--name", "r", "--keep", 2, "--memory", "off", "--save-every", FAR)
    run = house.holdfast("run", *words, "--", sys.executable, script)
    run.wait(EXIT_DONE)
    assert [step_of(one) for one in house.sets()] == [2, 3]


def test_a_store_with_room_for_what_is_kept_alone(store_disk: Disk, house: House) -> None:
    """A save fails; from then on the oldest goes before the next one, which is told once."""
    script = house.script(
        """
import numpy as np
import holdfast as hf

run = hf.start()
state = run.restore(init=lambda: {"w": np.zeros(180_000)})  # 1.4 MB: three do not fit
for step in run.steps(8):
    run.save(wait=True)
    run.done(step, state)
"""
    )
    words = ("--name", "r", "--keep", 2, "--memory", "off", "--save-every", FAR)
    out = house.holdfast("run", *words, "--", sys.executable, script).wait(EXIT_DONE)
    assert NOT_SAVED.search(out)
    assert [step_of(one) for one in house.sets()] == [8]
    assert out.count("from now on the oldest is deleted before a save") == 1


def test_a_store_that_becomes_read_only(store_disk: Disk, house: House) -> None:
    run, step = started(house)
    store_disk.writable(False)
    step = go_on_until(house, run, step, lambda: NOT_SAVED.search(run.text))
    assert "every byte" in house.holdfast("ckpt", "verify", "r").wait(EXIT_DONE)
    assert "read-only" in house.holdfast("stop", "r").wait(EXIT_UNAVAILABLE)
    store_disk.writable(True)
    before = house.saved_step()
    go_on_until(house, run, step, lambda: house.saved_step() > before)
    run.send(signal.SIGTERM)
    house.allow(FAR)
    run.wait(EXIT_SAVED)
    house.finishes()


def test_a_store_that_is_read_only_to_the_end(store_disk: Disk, house: House) -> None:
    """What this host has kept goes home with the next start: nothing is lost, nothing left."""
    run, step = started(house)
    store_disk.writable(False)
    go_on_until(house, run, step, lambda: NOT_SAVED.search(run.text))
    run.send(signal.SIGTERM)
    house.allow(FAR)
    run.wait(EXIT_SAVED)
    scratch = Path(os.environ["HOLDFAST_SCRATCH"])
    kept = {path.stem for path in scratch.rglob("*.hfj")}
    assert kept == {"controller-000001", "rank-00000"}
    store_disk.writable(True)
    house.finishes()
    (end, _) = (json.loads(path.read_text()) for path in sorted(house.store.rglob("end.json")))
    assert end["cause"] == "preempted"
    assert house.recorded_steps() == house.saved_step()


def test_a_read_only_store(store_disk: Disk, house: House) -> None:
    house.run(steps=2).wait(EXIT_DONE)
    store_disk.writable(False)
    for words in (["run", "--name", "r", "--", "true"], ["run", "--name", "new", "--", "true"]):
        out = house.holdfast(*words).wait(EXIT_UNAVAILABLE)
        assert "read-only" in out
        assert len(out.splitlines()) == 1
    for words in (["report", "r"], ["ls"], ["logs", "r"], ["ckpt", "verify", "r"]):
        house.holdfast(*words).wait(EXIT_DONE)
    assert "read-only" in house.alone(steps=5).wait(EXIT_UNAVAILABLE)
    store_disk.writable(True)
    house.finishes()


def test_a_scratch_disk_that_fills_up(scratch_disk: Disk, house: House) -> None:
    """Records are lost and counted; steps, saves and the end are not."""
    run, _ = started(house)
    scratch_disk.fill()
    last = RECORDS_OF_A_CHUNK + 1000
    for step in (*range(4000, last, 4000), last):  # all at once, lines might be left out on screen
        house.allow(step)
        run.saw(f"did {step}$")
    scratch_disk.empty()
    run.send(signal.SIGTERM)
    house.allow(FAR)
    run.wait(EXIT_SAVED)
    assert house.saved_step() >= RECORDS_OF_A_CHUNK
    assert "not written for lack of space" in house.holdfast("report", "r").wait(EXIT_DONE)


def test_a_scratch_disk_without_room_to_begin(scratch_disk: Disk, house: House) -> None:
    scratch_disk.fill()
    out = house.run(steps=5).wait(EXIT_UNAVAILABLE)
    assert str(scratch_disk.folder) in out
    assert "Traceback" not in out
    scratch_disk.empty()
    assert f"final {expected_digest(5)}" in house.run(steps=5).wait(EXIT_DONE)


def test_what_to_keep_is_told_when_the_disk_takes_it(house: House) -> None:
    """It could not be written at the start; nothing that the script wants may be deleted for it."""
    script = house.script(
        """
import os
from pathlib import Path
import numpy as np
import holdfast as hf

run_dir = Path(os.environ["HOLDFAST_STORE"]) / os.environ["HOLDFAST_RUN"]
in_the_way = run_dir / "attempts" / "0000" / "ranks" / "keep.tmp"
in_the_way.mkdir(parents=True)
run = hf.start(keep=hf.Keep(last=100))
assert not in_the_way.with_suffix(".json").exists()
in_the_way.rmdir()
state = run.restore(init=lambda: {"w": np.zeros(10)})
for step in run.steps(8):
    run.save(wait=True)
    run.done(step, state)
"""
    )
    house.holdfast("run", "--name", "r", "--keep", 1, "--", sys.executable, script).wait(EXIT_DONE)
    assert len(house.sets()) > 1
