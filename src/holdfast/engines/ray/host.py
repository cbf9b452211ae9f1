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
from holdfast.engines.ray.keeper import LOG, has_keeper, main, read_status
from holdfast.journal.scratch import scratch_dir

LOOK_S = 0.2
START_LIMIT_S = 30.0
TAIL_BYTES = 2000
KILLED = -9  # a keeper that could not say how its agent has ended
NOTICE = "notice"
NOTICE_VARIABLE = "HOLDFAST_NOTICE"
# What Ray sets for its own tasks, and is wrong for a training process: one thread for each CPU that
# was reserved, and a debugger of its own.
OF_RAY = ("OMP_NUM_THREADS", "PYTHONBREAKPOINT")


class AgentSight(NamedTuple):
    """How an agent is; `words`: the last that it said, once it has ended."""

    state: str
    code: int = 0
    words: str = ""


@dataclass(frozen=True, slots=True)
class HostTold:
    """What an actor of a host is told. `key`: of this order's folder for that host."""

    submission: dict[str, Any]
    index: int
    key: str
    cwd: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)


class RayHost:
    """One host of a run. All methods but `watch` return at once."""

    def __init__(self, told: HostTold) -> None:
        self._told = told
        add_variables(told.variables)
        self._began_unix_ns = time.time_ns()
        self._folder = scratch_dir(told.key)
        self._lock = threading.Lock()  # two starts at once would be one too many

    def look(self) -> AgentSight:
        """How the agent is now."""
        if has_keeper(self._folder):
            return AgentSight(AgentState.RUNNING)
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

    def start(self, waits: Sequence[tuple[str, int, int]]) -> str:
        """Start the agent, unless one lives; what went wrong, or "".

        `waits`: for which it was waited before this actor, and from when its start was waited for.
        """
        with self._lock:
            if self.look().state == AgentState.RUNNING:
                return ""
            with contextlib.suppress(FileNotFoundError):
                (self._folder / NOTICE).unlink()
            cwd = self._told.cwd or str(Path.cwd())
            boot = ("boot", waits[-1][2] if waits else self._began_unix_ns, self._began_unix_ns)
            told = {RAY_WAITS_VARIABLE: json.dumps({"waits": [*waits, boot]})}
            mine = agent_environment(inherited_environment(), _of_raylet())
            environment = mine | dict(self._told.variables) | told
            words = agent_words(self._told, self._folder / NOTICE, environment)
            niceness = str(os.getpriority(os.PRIO_PROCESS, os.getppid()))
            keeper = [sys.executable, "-m", main.__module__, str(self._folder), niceness, "--"]
            try:
                ended = subprocess.run(
                    [*keeper, *words], cwd=cwd, env=environment, timeout=START_LIMIT_S, check=False,
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE, text=True,
                )  # fmt: skip
            except (OSError, subprocess.TimeoutExpired) as error:
                return f"its agent cannot be started in {cwd}: {error}"
        return "" if ended.returncode in (0, 3) else f"its agent cannot be started: {ended.stderr}"

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
        with contextlib.suppress(ProcessLookupError):
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
    words = submission.run_words(program or (sys.executable, "-m", "holdfast.cli.main"))
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


def _of_raylet() -> dict[str, str]:
    """What the raylet, which has started this process, was started with."""
    with contextlib.suppress(OSError):
        raw = Path(f"/proc/{os.getppid()}/environ").read_bytes().decode(errors="replace")
        return dict(pair.split("=", 1) for pair in raw.split("\0") if "=" in pair)
    return {}
