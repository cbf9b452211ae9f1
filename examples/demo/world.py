"""The world around a training run: it starts commands, watches their progress, and strikes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.rule import Rule
from rich.text import Text

STEP = re.compile(r"\bstep (\d+)/\d+: loss ")
SIGKILL_WORDS = "SIGKILL to the training process: no time for anything"
LAST_WORDS_S = 10.0


@dataclass
class Fault:
    """Something that happens once, when the run has come so far. `strike` says what it did."""

    at_step: int
    strike: Callable[[subprocess.Popen], str]
    struck: bool = False


def notice(process: subprocess.Popen) -> str:
    """A maintenance notice, as schedulers and clouds give it: SIGTERM to what they started."""
    process.terminate()
    return "MAINTENANCE NOTICE: SIGTERM, this machine goes away"


def kill(process: subprocess.Popen) -> str:
    """SIGKILL to the training process itself."""
    process.kill()
    return SIGKILL_WORDS


def kill_rank(command: list[str]) -> Callable[[subprocess.Popen], str]:
    """SIGKILL to the training process, which runs `command` somewhere below the one started.

    So does a standby that waits; the training is what has computed the most.
    """

    def strike(process: subprocess.Popen) -> str:
        found = [pid for pid in descendants(process.pid) if command_of(pid) == command]
        if not found:
            return ""  # between two attempts: at the next step, then
        os.kill(max(found, key=processor_time), signal.SIGKILL)
        return SIGKILL_WORDS

    return strike


class World:
    """Runs commands one after the other, shows what they print, and lets the faults happen."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def title(self, words: str) -> None:
        self.console.print()
        self.console.print(Rule(Text(words, "bold"), align="left"))

    def say(self, words: str) -> None:
        self.console.print(Text(f"▶ {words}", "bold yellow"))

    def away(self, seconds: float) -> None:
        """The time that a scheduler takes to find a machine."""
        self.say(f"the scheduler looks for another machine ({seconds:g} s) and starts it again")
        time.sleep(seconds)

    def launch(self, command, environment=None, faults=()) -> int:
        """Run the command to its end, striking each fault as soon as its step is seen."""
        with started(command, {**os.environ, **(environment or {})}) as process:
            for line in process.stdout:
                self.console.print(Text(f"  {line.rstrip()}", "dim"), soft_wrap=True)
                seen = STEP.search(line)
                for fault in faults:
                    if seen and not fault.struck and int(seen[1]) >= fault.at_step:
                        words = fault.strike(process)
                        if words:
                            fault.struck = True
                            self.say(words)
                        break  # one at a time: the next needs progress of its own
            return process.wait()


@contextmanager
def started(command, environment):
    """The command's process; whatever happens, neither it nor its children outlive the block."""
    process = subprocess.Popen(
        command,
        env={**environment, "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,  # Ctrl-C is for us; we pass it on
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            end(process)
        process.stdout.close()


def end(process) -> None:
    """Now: `holdfast run` takes its ranks along on SIGQUIT; what is still there then is killed."""
    family = [process.pid, *descendants(process.pid)]
    process.send_signal(signal.SIGQUIT)
    try:
        process.wait(LAST_WORDS_S)
    except subprocess.TimeoutExpired:
        for pid in family:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def descendants(pid: int) -> list[int]:
    """Children, their children, and so on, by /proc."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has just ended
    found, frontier = [], {pid}
    while frontier:
        frontier = {child for child, parent in parents.items() if parent in frontier}
        found += sorted(frontier)
    return found


def processor_time(pid: int) -> int:
    """In ticks, by proc(5); 0 where the process has just ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])


def command_of(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1]
    except OSError:
        return []


class History:
    """What happened to the plain loop, in the lines that `holdfast report --history` reads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.requested = self.now()

    @staticmethod
    def now() -> float:
        return time.monotonic()

    def attempt(self, attempt: int, start: float, code: int) -> None:
        end = self.now()
        cause = {0: "done", -signal.SIGTERM: "preempted"}.get(code, "failed")
        self._write(event="attempt", attempt=attempt, start=start, end=end, cause=cause)

    def close(self) -> None:
        self._write(event="run", name="plain", requested=self.requested, ended=self.now(), chips=1)

    def _write(self, **facts) -> None:
        with self.path.open("a") as lines:
            lines.write(json.dumps(facts) + "\n")


def checksum(result: Path) -> str:
    """What train.py has written: the final parameters' checksum."""
    return json.loads(result.read_text())["params_sha256"]
