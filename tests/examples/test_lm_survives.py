"""The example's promise: one seed, one set of parameters, to the bit, whatever interrupts."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

pytestmark = pytest.mark.real

pytest.importorskip("jax")
pytest.importorskip("optax")

EXAMPLES = Path(__file__).parents[2] / "examples"
TRAIN = [sys.executable, str(EXAMPLES / "lm" / "train.py")]
HOLDFAST = [sys.executable, "-m", "holdfast.cli.main"]
STEPS = 250  # the last ones leave time to strike
MODEL = ["--layers", "2", "--width", "64", "--heads", "2", "--context", "32", "--batch", "8"]
TALK = ["--log-every", "1", "--eval-every", "150"]
STEP = re.compile(r"\bstep (\d+)/\d+: loss")


@pytest.fixture(scope="module", autouse=True)
def compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Seven processes run the same program; the first compiles it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path_factory.mktemp("compiled")))
        patch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        yield


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """The result of a training that nothing interrupts."""
    folder = tmp_path_factory.mktemp("reference")
    environment = {
        **os.environ,
        "HOLDFAST_STORE": str(folder / "store"),
        "HOLDFAST_SCRATCH": str(folder / "scratch"),
    }
    subprocess.run(training(folder), env=environment, check=True, capture_output=True, timeout=300)
    return result(folder)


def training(folder: Path) -> list[str]:
    text = folder / "text"
    text.write_bytes(random.Random(7).randbytes(4000))
    sizes = ["--steps", str(STEPS), "--data", str(text), "--out", str(folder / "result.json")]
    return [*TRAIN, *MODEL, *TALK, *sizes]


def result(folder: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((folder / "result.json").read_text())
    return found


@contextmanager
def started(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield process
        process.wait(300)
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def strike_at(
    process: subprocess.Popen[str],
    step: int,
    strike: Callable[[], None],
    when: Callable[[], bool] = lambda: True,
) -> str:
    """Read the output to its end; call `strike` when that step is seen, or later, `when` it may."""
    assert process.stdout is not None
    lines, struck = [], False
    for line in process.stdout:
        lines.append(line)
        seen = STEP.search(line)
        if seen and int(seen[1]) >= step and not struck and when():
            struck = True
            strike()
    assert struck, "".join(lines)
    return "".join(lines)


def rank_pid(command: list[str]) -> int:
    """The process that runs exactly this command; a standby does so, too, and computes less."""
    wanted = "\0".join(command) + "\0"
    found: dict[int, int] = {}
    for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if cmdline.read_text() == wanted:
                times = cmdline.with_name("stat").read_text().rpartition(")")[2].split()[11:13]
                found[int(cmdline.parent.name)] = sum(map(int, times))
    assert found, f"nobody runs {command}"
    return max(found, key=found.__getitem__)


def report(name: str) -> dict[str, object]:
    out = subprocess.run(
        [*HOLDFAST, "report", name, "--json"], check=True, capture_output=True, text=True
    )
    found: dict[str, object] = json.loads(out.stdout)
    return found


def a_step() -> int:
    """Some step in the middle; printed, so that a failure can be repeated."""
    step = random.randrange(30, 100)
    print("struck at step", step)
    return step


def test_sigkill_of_the_rank(store: Path, tmp_path: Path, reference: dict[str, object]) -> None:
    command = training(tmp_path)
    supervised = [*HOLDFAST, "run", "--name", "lm", "--save-every", "7", "--", *command]
    memory = store.parent / "memory"  # a set there will do: flushes give way on a busy machine
    with started(supervised) as process:
        output = strike_at(
            process,
            a_step(),
            lambda: os.kill(rank_pid(command), signal.SIGKILL),
            when=lambda: (
                any(store.glob("lm/ckpt/*/manifest.json")) or any(memory.rglob("manifest.json"))
            ),
        )
    assert process.returncode == 0, output
    assert result(tmp_path) == reference
    seen = report("lm")
    assert seen["steps_kept"] == STEPS
    assert len(seen["disruptions"]) == 1
    resumed = re.search(r"Attempt 1: starting from step (\d+) of attempt 0", output)
    assert resumed is not None, "it started from scratch instead of a checkpoint"


def test_a_notice_to_the_supervisor(
    store: Path, tmp_path: Path, reference: dict[str, object]
) -> None:
    supervised = [*HOLDFAST, "run", "--name", "lm", "--", *training(tmp_path)]
    with started(supervised) as process:
        output = strike_at(process, a_step(), process.terminate)
    assert process.returncode == 75, output
    assert not (tmp_path / "result.json").exists()
    subprocess.run(supervised, check=True, capture_output=True, timeout=300)
    assert result(tmp_path) == reference
    seen = report("lm")
    assert (seen["steps_kept"], seen["lost_steps"], len(seen["disruptions"])) == (STEPS, 0, 1)


def test_a_notice_without_a_supervisor(
    store: Path, tmp_path: Path, reference: dict[str, object]
) -> None:
    command = training(tmp_path)
    with started(command) as process:
        output = strike_at(process, a_step(), process.terminate)
    assert process.returncode == 75, output
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    assert result(tmp_path) == reference
