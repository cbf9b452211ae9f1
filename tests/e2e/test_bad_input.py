"""Bad input: one clear sentence, the right exit code, nothing lost."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from processes import (
    EXIT_CONFIGURATION,
    EXIT_UNAVAILABLE,
    House,
    step_of,
)


def sentence(text: str) -> str:
    """The one line that was printed."""
    (line,) = text.splitlines()
    assert line.startswith("holdfast: ")
    assert line.isprintable()
    return line


@pytest.mark.real
def test_a_command_that_may_not_be_executed(house: House) -> None:
    script = house.script("echo hello")
    out = house.holdfast("run", "--", script).wait(EXIT_CONFIGURATION)
    assert str(script) in out.splitlines()[-1]


def flip(path: Path, offset: int = -100) -> None:
    """One bit of the file."""
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x10
    path.write_bytes(data)


def shard(folder: Path) -> Path:
    return folder / "rank-00000.safetensors"


@pytest.mark.parametrize("how", ["flipped", "truncated", "missing", "manifest torn"])
def test_the_newest_set_is_damaged(trained: House, how: str) -> None:
    *_, older, newest = trained.sets()
    if how == "flipped":
        flip(shard(newest))
    elif how == "truncated":
        shard(newest).write_bytes(shard(newest).read_bytes()[:-7])
    elif how == "missing":
        shard(newest).unlink()
    else:
        manifest = newest / "manifest.json"
        manifest.write_bytes(manifest.read_bytes()[:-20])
    out = trained.finishes_here()
    assert f"from {step_of(older)}\n" in out
    starts = f"starting from step {step_of(older)} of attempt 0, the newest checkpoint that is good"
    assert f"{starts}; skipped {newest.name} (" in out


def test_the_newest_manifest_is_missing(trained: House) -> None:
    *_, older, newest = trained.sets()
    (newest / "manifest.json").unlink()
    (newest / "rank-00000.receipt.json").unlink()
    assert f"from {step_of(older)}\n" in trained.finishes_here()


@pytest.mark.parametrize("how", ["flipped", "missing", "all gone"])
def test_no_set_can_be_trusted(trained: House, how: str) -> None:
    """Never silently from step 0, however often it is tried."""
    for folder in trained.sets():
        if how == "flipped":
            flip(shard(folder))
        else:
            shard(folder).unlink()
        if how == "all gone":
            for path in folder.iterdir():
                path.unlink()
            folder.rmdir()
    for _ in range(2):
        out = trained.alone_here(10, code=EXIT_UNAVAILABLE)
        assert "none can be trusted" in out.splitlines()[-1]
        assert "did 1" not in out


@pytest.mark.real
def test_a_supervisor_names_the_set_and_starts_nothing_without_one(trained: House) -> None:
    newest = trained.sets()[-1]
    shard(newest).unlink()
    assert newest.name in trained.finishes()
    for folder in trained.sets():
        shard(folder).unlink(missing_ok=True)
    out = trained.run(steps=20).wait(EXIT_UNAVAILABLE)
    assert "none can be trusted" in out.splitlines()[-1]
    assert "did 1" not in out


@pytest.mark.parametrize("how", ["empty", "torn", "rubbish", "missing"])
def test_journals_that_cannot_be_read(trained: House, how: str) -> None:
    """The report says what it can, the run goes on, and the checkpoints are what they were."""
    journals = list((trained.store / "r").glob("attempts/*/journal/*.hfj"))
    assert journals
    for path in journals:
        data = path.read_bytes()
        if how == "empty":
            path.write_bytes(b"")
        elif how == "torn":
            path.write_bytes(data[:5000])
        elif how == "rubbish":
            path.write_bytes(bytes(255 - byte for byte in data))
        else:
            path.unlink()
    assert "Traceback" not in trained.command("report", "r")
    trained.finishes_here()
    assert "Traceback" not in trained.command("report", "r")
    trained.command("export", "r", "--history")


def test_a_damaged_run_record_is_not_overwritten(trained: House) -> None:
    record = trained.store / "r" / "run.json"
    torn = '{"name": "r", "run_'
    record.write_text(torn)
    for words in (["report", "r"], ["run", "--name", "r", "--", "true"], ["stop", "r"]):
        assert str(record) in sentence(trained.command(*words, code=EXIT_UNAVAILABLE))
    assert record.read_text() == torn


def test_a_damaged_attempt_record(trained: House) -> None:
    (record,) = (trained.store / "r").glob("attempts/0000/attempt.json")
    good = record.read_bytes()
    record.write_bytes(good[: len(good) // 2])
    out = trained.alone_here(10, code=EXIT_UNAVAILABLE)
    assert str(record) in out.splitlines()[-1]
    record.unlink()
    trained.alone_here(10, code=EXIT_UNAVAILABLE)
    record.write_bytes(good)
    trained.finishes_here()


@pytest.mark.real
def test_a_state_that_does_not_fit_names_the_first_path(trained: House) -> None:
    script = trained.script(
        "import numpy as np, holdfast as hf\n"
        "run = hf.start()\n"
        "run.restore(init=lambda: {'weights': np.zeros(8, np.float32)})\n"
    )
    run = trained.holdfast("run", "--name", "r", "--", sys.executable, script)
    out = run.wait(EXIT_CONFIGURATION)
    last = out.splitlines()[-1]
    for word in ("state/weights", "float32[8]", "float64[256]"):
        assert word in last, last
    trained.finishes()
