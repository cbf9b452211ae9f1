"""Real processes for the tests: started, waited for by what they print, and ended for certain."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import dropwhile
from pathlib import Path

import numpy as np
import own_process
import pytest

TRAINER = Path(__file__).with_name("trainer.py")
LIMIT_S = 600.0  # generous: only a hang comes near it, even where twenty others want the cores
FAR = 1_000_000  # a number of steps that no test lives to see

EXIT_DONE, EXIT_FAILED, EXIT_UNAVAILABLE, EXIT_SAVED, EXIT_CONFIGURATION = 0, 1, 69, 75, 78


def said_by(rank: int, ranks: int) -> str:
    """How `holdfast run` begins a rank's line, as a pattern; a single rank's has no prefix."""
    return rf"^\[{rank}\] " if ranks > 1 else "^"


class Process:
    """A command with its output; `saw` waits for a line, `wait` for the end."""

    def __init__(self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str] | None = None):
        self.argv = [str(word) for word in argv]
        self._follow(
            subprocess.Popen(
                self.argv,
                cwd=cwd,
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        )

    def _follow(self, popen: subprocess.Popen[bytes]) -> None:
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._popen = popen
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def _read(self) -> None:
        for line in self._popen.stdout:
            with self._changed:
                self.lines.append(line.decode(errors="replace").rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def saw(self, pattern: str, count: int = 1) -> re.Match[str]:
        """The `count`-th printed line in which the pattern is found; waits for it."""
        found: list[re.Match[str]] = []
        end = time.monotonic() + LIMIT_S
        looked = 0
        with self._changed:
            while True:
                for line in self.lines[looked:]:
                    match = re.search(pattern, line)
                    if match:
                        found.append(match)
                looked = len(self.lines)
                if len(found) >= count:
                    return found[count - 1]
                left_s = end - time.monotonic()
                ended = not self._reader.is_alive() or left_s <= 0
                assert not ended, f"no {pattern!r} (×{count}) in:\n{self.text}"
                self._changed.wait(min(left_s, 0.5))

    def code(self) -> int | None:
        """Its exit code; None: it runs."""
        return self._popen.poll()

    def send(self, number: int) -> None:
        """A signal to this process alone."""
        self._popen.send_signal(number)

    def wait(self, code: int | None = None) -> str:
        """All output, once it has ended; with `code`, that must be its exit code."""
        try:
            got = self._popen.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running: {self.argv}\n{self.text}") from None
        self._reader.join(LIMIT_S)
        if code is not None:
            assert got == code, f"exit code {got}, not {code}:\n{self.text}"
        return self.text

    def close(self) -> None:
        """End it, whatever it does."""
        with contextlib.suppress(ProcessLookupError):
            self._popen.kill()
        self._popen.wait()
        self._reader.join(5.0)
        self._popen.stdout.close()


class House:
    """A test's working folder, store and processes."""

    def __init__(self, folder: Path, store: Path) -> None:
        self.folder = folder
        self.store = store
        self.allow_file = folder / "allow"
        self.go_file = folder / "go"
        self._processes: list[Process] = []

    def start(self, *argv: object, **env: object) -> Process:
        """Any command."""
        variables = {name: str(value) for name, value in env.items()}
        process = Process([str(word) for word in argv], cwd=self.folder, env=variables)
        self._processes.append(process)
        return process

    def holdfast(self, *words: object, **env: object) -> Process:
        """The command line tool."""
        return self.start(sys.executable, "-m", "holdfast.cli.main", *words, **env)

    def run(
        self,
        *options: object,
        steps: int = 10,
        name: str = "r",
        trainer: Path = TRAINER,
        **env: object,
    ) -> Process:
        """The trainer under `holdfast run`."""
        command = (sys.executable, trainer, steps)
        return self.holdfast("run", "--name", name, *options, "--", *command, **self._gates(env))

    def alone(self, steps: int = 10, name: str = "r", **env: object) -> Process:
        """The trainer without a supervisor."""
        gates = self._gates({"HOLDFAST_NAME": name, **env})
        return self.start(sys.executable, TRAINER, steps, **gates)

    def script(self, text: str, name: str = "script.py") -> Path:
        """A script of the test's own."""
        path = self.folder / name
        path.write_text(text)
        return path

    def allow(self, *steps: int) -> Path:
        """Let steps up to this one (or one for each rank) begin; the trainer waits at the next."""
        draft = self.allow_file.with_suffix(".new")
        draft.write_text(" ".join(map(str, steps)))
        draft.replace(self.allow_file)
        return self.allow_file

    def eventually(self, predicate: Callable[[], object], within_s: float = LIMIT_S) -> None:
        """Wait until the predicate is true."""
        end = time.monotonic() + within_s
        while not predicate():
            assert time.monotonic() < end, f"not true within {within_s} s: {predicate}"
            time.sleep(0.005)

    def go(self) -> None:
        """Release what is held."""
        self.go_file.touch()

    # --- in the test's own process ----------------------------------------------------------

    def here(self, script: Path, *words: object, code: int = EXIT_DONE, **env: object) -> str:
        """A script without a supervisor: all that it printed."""
        ended_with, out = own_process.run_script(script, *words, **env)
        assert ended_with == code, out
        return out

    def alone_here(
        self, steps: int = 10, name: str = "r", code: int = EXIT_DONE, **env: object
    ) -> str:
        """The trainer without a supervisor: all that it printed."""
        gates = self._gates({"HOLDFAST_NAME": name, **env})
        return self.here(TRAINER, steps, code=code, **gates)

    def command(self, *words: object, code: int = EXIT_DONE) -> str:
        """The command line tool: all that it printed."""
        ended_with, out = own_process.run_command(*words)
        assert ended_with == code, out
        return out

    def finishes_here(self, name: str = "r", **env: object) -> str:
        """The run goes on from what is saved and ends as if nothing had happened; its output."""
        until = self.saved_step(name) + 5
        out = self.alone_here(until, name, **env)
        assert f"final {expected_digest(until)}" in out, out
        return out

    def _gates(self, env: dict[str, object]) -> dict[str, object]:
        if self.allow_file.exists():
            env.setdefault("ALLOW", self.allow_file)
        if "HOLD" in env:
            env.setdefault("GO", self.go_file)
        return env

    def sets(self, name: str = "r") -> list[Path]:
        """The folders of the committed sets, oldest first."""
        return sorted(path.parent for path in (self.store / name / "ckpt").glob("*/manifest.json"))

    def saved_step(self, name: str = "r") -> int:
        """The step of the newest committed set; 0: there is none."""
        return max((step_of(folder) for folder in self.sets(name)), default=0)

    def recorded_steps(self, name: str = "r") -> int:
        """The kept steps that the journals tell of."""
        report = self.holdfast("report", name, "--json").wait(EXIT_DONE)
        return json.loads(report)["steps_kept"]

    def step_in_memory(self) -> int:
        """The step of the newest set in this host's memory; 0: there is none."""
        place = Path(os.environ["HOLDFAST_MEMORY_DIR"])
        sealed = [
            path.read_text() for path in place.glob("holdfast-*/*/ram/buffer-*/manifest.json")
        ]
        steps = [int(match[1]) for text in sealed if (match := re.search(r'"step":(\d+)', text))]
        return max(steps, default=0)

    def trained(self, *options: object, sets: int = 3, name: str = "r") -> int:
        """A run stopped by SIGTERM with at least so many sets; the step that it saved last."""
        self.allow(1)
        every = ("--save-every", 1, "--keep", 100, *options)
        run = self.run(*every, steps=FAR, name=name)
        step = 1
        while len(self.sets(name)) < sets:
            run.saw(f"did {step}$")
            step += 1
            self.allow(step)
        run.send(signal.SIGTERM)
        run.saw("saving, then stopping")
        self.allow(FAR)
        run.wait(EXIT_SAVED)
        return self.saved_step(name)

    def finishes(self, *options: object, name: str = "r") -> str:
        """The run goes on from what is saved and ends as if nothing had happened; its output."""
        until = max(self.saved_step(name), self.step_in_memory()) + 5
        self.allow(FAR)
        out = self.run(*options, steps=until, name=name).wait(EXIT_DONE)
        assert f"final {expected_digest(until)}" in out, out
        return out

    def close(self) -> None:
        for process in self._processes:
            process.close()


def expected_digest(steps: int, skips: Mapping[int, int] | None = None) -> str:
    """What the trainer prints at its end: the same arithmetic, with no Holdfast near it.

    `skips`: after which steps so many batches are passed over.
    """
    noise, numpy_noise = random.Random(1), np.random.RandomState(2)
    weights, average = np.zeros(256), 0.0
    number = -1
    for step in range(steps):
        number += 1 + (skips or {}).get(step, 0)
        amount = noise.random() + numpy_noise.random_sample()
        weights *= 0.99
        weights += np.full(256, float(number)) * amount
        average = 0.9 * average + 0.1 * float(weights[0])
    return hashlib.sha256(weights.tobytes() + repr(average).encode()).hexdigest()[:16]


def step_of(folder: Path) -> int:
    """The step of a set, from its folder's name."""
    return int(folder.name.split("-")[1])


def children(pid: int) -> list[int]:
    """Pids of the direct children of a process."""
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(word) for word in path.read_text().split()]
    return found


def command_line(pid: int) -> str:
    """What a process was started as; '' when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def short_name(pid: int) -> str:
    """What ps and top show; '' when it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def is_alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


def await_dead(*pids: int) -> None:
    """Until none of these processes is alive."""
    end_s = time.monotonic() + LIMIT_S
    while left := [pid for pid in pids if is_alive(pid)]:
        assert time.monotonic() < end_s, f"processes {left} are still there"
        time.sleep(0.002)


def go_on_until(house: House, run: Process, step: int, happened: Callable[[], object]) -> int:
    """Allow step after step until something has happened; the last step allowed."""
    give_up = time.monotonic() + LIMIT_S
    while not happened():
        assert time.monotonic() < give_up, run.text
        run.saw(f"did {step}$")
        step += 1
        house.allow(step)
    return step


def guard_of(supervisor: Process) -> int:
    """The pid of the guard, the reaper's parent, of the attempt that runs."""
    return guards_of(supervisor)[0]


def guards_of(supervisor: Process) -> list[int]:
    """The same, and after it that of the tree which is prepared for the next attempt.

    The guard of an attempt that is over may be there for a moment more: nobody is below it.
    """
    guards = [pid for pid in children(supervisor.pid) if short_name(pid) == "hf-guard"]
    return list(dropwhile(lambda guard: not any(map(children, children(guard))), guards))


def reaper_of(supervisor: Process) -> int:
    """The pid of the supervisor's reaper."""
    (pid,) = children(guard_of(supervisor))
    return pid


def ranks_of(supervisor: Process) -> list[int]:
    """The pids of the ranks, in their order."""

    def rank(pid: int) -> int:
        environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return next(int(word[14:]) for word in environ if word.startswith(b"HOLDFAST_RANK="))

    return sorted(children(reaper_of(supervisor)), key=rank)


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Send a signal to any process."""
    os.kill(pid, number)


@contextlib.contextmanager
def house_in(folder: Path) -> Iterator[House]:
    """A house for several tests: its store, scratch and memory lie in `folder`, which is there."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("work", "store", "scratch", "memory"):
            (folder / name).mkdir()
        patch.setenv("HOLDFAST_STORE", str(folder / "store"))
        patch.setenv("HOLDFAST_SCRATCH", str(folder / "scratch"))
        patch.setenv("HOLDFAST_MEMORY_DIR", str(folder / "memory"))
        patch.setenv("HOLDFAST_NOTICE", "off")  # the machine that tests run on may have some
        house = House(folder / "work", folder / "store")
        try:
            yield house
        finally:
            house.close()
