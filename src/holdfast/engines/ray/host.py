"""The actor beside an agent: it starts it, warns it, and tells the foreman how it is.

Whatever happens to this actor, the agent lives on (`keeper`); the next actor on the node finds it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.config import RAY_WAITS_VARIABLE, add_variables, inherited_environment
from holdfast.core.hosts.crew import AgentState
from holdfast.core.hosts.engine import Submission
from holdfast.engines.ray import keeper
from holdfast.engines.ray.keeper import ANOTHER_IS_THERE, LOG, has_keeper, read_status
from holdfast.errors import EXIT_CONFIGURATION, EXIT_UNAVAILABLE
from holdfast.journal.scratch import scratch_dir

# By its file, and without what is installed: it needs neither, and a host waits for it.
KEEPER = [sys.executable, "-P", "-S", keeper.__file__]
LOOK_S = 0.2
START_LIMIT_S = 30.0
TAIL_BYTES = 2000
KILLED = -9  # a keeper that could not say how its agent has ended
NOTICE = "notice"
NOTICE_VARIABLE = "HOLDFAST_NOTICE"
# What Ray sets for its own tasks, and is wrong for a training process: one thread for each CPU that
# was reserved, and a debugger of its own.
OF_RAY = ("OMP_NUM_THREADS", "PYTHONBREAKPOINT")


WaitTold = tuple[str, int, int]  # for what, from when and until when, in unix nanoseconds


class AgentSight(NamedTuple):
    """How an agent is; `words`: the last that it said, once it has ended."""

    state: str
    code: int = 0
    words: str = ""


@dataclass(frozen=True, slots=True)
class HostTold:
    """What an actor of a host is told. `key`: of this order's folder for that host.

    `since_unix_ns`: from when a node was waited for; 0: it was not. `starts`: the agent begins with
    the actor.
    """

    submission: dict[str, Any]
    index: int
    key: str
    cwd: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    since_unix_ns: int = 0
    starts: bool = False


class RayHost:
    """One host of a run. All methods but `watch` return at once."""

    def __init__(self, told: HostTold) -> None:
        self._told = told
        add_variables(told.variables)
        self._waits = waits_until(time.time_ns(), told.since_unix_ns, own_start_unix_ns())
        self._folder = scratch_dir(told.key)
        self._lock = threading.Lock()  # two starts at once would be one too many
        self._failed: AgentSight | None = None
        if told.starts:
            self.start()

    def look(self) -> AgentSight:
        """How the agent is now."""
        if has_keeper(self._folder):
            return AgentSight(AgentState.RUNNING)
        if self._failed is not None:
            return self._failed
        status = read_status(self._folder)
        if not status:
            return AgentSight(AgentState.NONE)
        return AgentSight(AgentState.ENDED, int(status.get("code", KILLED)), self._last_words())

    def watch(self, known: AgentSight | None, limit_s: float) -> AgentSight:
        """How it is, as soon as that is not `known`, or after so long."""
        give_up_s = time.monotonic() + limit_s
        while (now := self.look()) == known and time.monotonic() < give_up_s:
            time.sleep(LOOK_S)
        return now

    def start(self) -> None:
        """Start the agent, unless one lives. One that cannot be started has ended, by its words."""
        with self._lock:
            if has_keeper(self._folder):
                return
            self._failed = None
            (self._folder / NOTICE).unlink(missing_ok=True)
            environment = self._environment()
            words = agent_words(self._told, self._folder / NOTICE, environment)
            niceness = str(os.getpriority(os.PRIO_PROCESS, os.getppid()))
            cwd = self._told.cwd or str(Path.cwd())
            try:
                ended = subprocess.run(
                    [*KEEPER, str(self._folder), niceness, "--", *words],
                    cwd=cwd, env=environment, timeout=START_LIMIT_S, check=False,
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE, text=True,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                self._fails(EXIT_UNAVAILABLE, f"nothing begins here within {START_LIMIT_S:g} s")
            except OSError as error:
                self._fails(
                    EXIT_CONFIGURATION, f"its agent cannot be started in {cwd}: {error.strerror}"
                )
            else:
                if ended.returncode not in (0, ANOTHER_IS_THERE):
                    self._fails(EXIT_UNAVAILABLE, f"its keeper has failed: {ended.stderr[-300:]}")

    def _environment(self) -> dict[str, str]:
        """Of the agent: that of the actor's process, and what the first one has waited for."""
        told = {RAY_WAITS_VARIABLE: json.dumps({"waits": self._waits})}
        self._waits = []
        mine = agent_environment(inherited_environment(), _of_raylet())
        return mine | dict(self._told.variables) | told

    def _fails(self, code: int, words: str) -> None:
        self._failed = AgentSight(AgentState.ENDED, code, words)

    def notice(self, drains_ms: int | None) -> None:
        """Tell the agent that its host will be taken then; 0: nobody knows when; None: never."""
        path = self._folder / NOTICE
        if drains_ms is None:
            path.unlink(missing_ok=True)
            return
        draft = path.with_suffix(".new")
        draft.write_text(notice_text(drains_ms, time.time_ns()))
        draft.replace(path)

    def end(self, now: bool) -> None:
        """The agent is to save and go; `now`: to go."""
        pid = read_status(self._folder).get("pid")
        if pid is None or not has_keeper(self._folder):
            return
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # it has ended meanwhile
            if now:
                for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
                    os.kill(int(child), signal.SIGKILL)
            else:
                os.kill(int(pid), signal.SIGTERM)

    def close(self) -> None:
        """The order is over: leave nothing behind."""
        if not has_keeper(self._folder):
            shutil.rmtree(self._folder, ignore_errors=True)

    def _last_words(self) -> str:
        with contextlib.suppress(OSError), (self._folder / LOG).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            lines = file.read().decode(errors="replace").strip().splitlines()
            return lines[-1] if lines else ""
        return ""


def agent_words(
    told: HostTold, notice: Path, environment: Mapping[str, str], program: Sequence[str] = ()
) -> list[str]:
    """The command of that host: its number, and where it is warned."""
    submission = Submission.from_json(told.submission)
    words = submission.run_words(program or (sys.executable, "-P", "-m", "holdfast.cli.main"))
    at = words.index("--", words.index("run"))
    head, command = words[:at], words[at:]
    sources = environment.get(NOTICE_VARIABLE, "auto")
    if "--notice" in head:
        given = len(head) - 1 - head[::-1].index("--notice")
        sources = head[given + 1]
        del head[given : given + 2]
    known = [] if sources == "off" else [sources]
    sources = ",".join([*known, f"file:{notice}"])
    return [*head, "--notice", sources, "--host-index", str(told.index), *command]


def waits_until(now_unix_ns: int, since_unix_ns: int, process_unix_ns: int) -> list[WaitTold]:
    """What was waited for: a place, and then Ray's process there, unless that was there before."""
    if not since_unix_ns:
        return []
    placed_unix_ns = (
        process_unix_ns if since_unix_ns < process_unix_ns < now_unix_ns else now_unix_ns
    )
    return [("queue", since_unix_ns, placed_unix_ns), ("boot", placed_unix_ns, now_unix_ns)]


def notice_text(drains_ms: int, now_unix_ns: int) -> str:
    """For the source `file`, with the time that is left: clocks of two hosts may differ little."""
    found: dict[str, Any] = {"words": "Ray drains its node", "id": "ray-drain"}
    if drains_ms:
        found["deadline"] = max(0.0, (drains_ms * 1_000_000 - now_unix_ns) / 1e9)
    return json.dumps(found)


def agent_environment(mine: Mapping[str, str], raylets: Mapping[str, str]) -> dict[str, str]:
    """That of an agent: without what Ray has set for a task of its own."""
    kept = {name: value for name, value in mine.items() if name not in OF_RAY}
    return kept | {name: raylets[name] for name in OF_RAY if name in raylets}


def own_start_unix_ns() -> int:
    """When this process was begun, to a hundredth of a second."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time_ns() - round(age_s * 1e9)


def _of_raylet() -> dict[str, str]:
    """What the raylet, which has started this process, was started with."""
    with contextlib.suppress(OSError):
        raw = Path(f"/proc/{os.getppid()}/environ").read_bytes().decode(errors="replace")
        return dict(pair.split("=", 1) for pair in raw.split("\0") if "=" in pair)
    return {}
