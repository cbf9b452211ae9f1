"""A standby as its starter sees it, and the same command started cold."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.standby.channel import VARIABLE
from holdfast.standby.command import standby_argv

LIMIT_S = 120.0  # generous: only a hang comes near it
_LEARN = """
import importlib, sys
from pathlib import Path
from holdfast.session.imports import _write
for name in sys.argv[2:]:
    importlib.import_module(name)
_write(Path(sys.argv[1]), list(sys.modules.items()))
"""


class Result(NamedTuple):
    """Everything that can be seen of a process once it has ended."""

    code: int
    stdout: str
    stderr: str


def learn(path: Path, *modules: str, env: Mapping[str, str] | None = None) -> Path:
    """The list of imports that a session would have written after these."""
    command = (sys.executable, "-c", _LEARN, path, *modules)
    subprocess.run(command, check=True, env={**os.environ, **(env or {})})
    return path


def cold(
    argv: Sequence[str],
    cwd: Path,
    env: Mapping[str, str],
    number: int | None = None,
    *,
    is_merged: bool = False,
) -> Result:
    """The command, started as ever; `number`: a signal for it once it has printed a line.

    `is_merged`: standard output and error are one pipe, as a rank's are.
    """
    process = subprocess.Popen(
        argv,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if is_merged else subprocess.PIPE,
        process_group=0,
    )
    return _ended(process, number)


def _ended(process: subprocess.Popen[bytes], number: int | None) -> Result:
    first = b""
    if number is not None:
        first = process.stdout.readline()
        process.send_signal(number)
    try:
        stdout, stderr = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return Result(process.returncode, (first + stdout).decode(), (stderr or b"").decode())


class Standing:
    """One standby: started, woken, and ended for certain by `close`."""

    def __init__(
        self,
        argv: Sequence[str],
        imports: Path,
        cwd: Path,
        env: Mapping[str, str],
        **more: Any,
    ) -> None:
        self.argv, self.cwd, self.env = list(argv), cwd, dict(env)
        wake_read, self._wake = os.pipe()
        status_read, status_write = os.pipe()
        task = {"wake_fd": wake_read, "status_fd": status_write}
        task |= {"imports": str(imports), "argv": self.argv}
        command, why = standby_argv(self.argv)
        assert command is not None, why
        self.process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**env, VARIABLE: json.dumps(task)},
            stdin=subprocess.DEVNULL,
            stdout=more.get("stdout", subprocess.PIPE),
            stderr=more.get("stderr", subprocess.PIPE),
            pass_fds=[wake_read, status_write],
            process_group=0,
        )
        os.close(wake_read)
        os.close(status_write)
        self._status = os.fdopen(status_read, "rb")

    def told(self) -> dict[str, Any]:
        """The next thing that it says."""
        line = self._status.readline()
        assert line, f"it ended without a word: {self.result()}"
        return json.loads(line)

    def wake(self, **changes: Any) -> None:
        """Have it become the command; `env`, `argv`, `cwd`, `hold` differ if they are given."""
        fields = {"argv": self.argv, "env": self.env, "cwd": str(self.cwd)} | changes
        self.say(fields)

    def say(self, fields: Mapping[str, Any]) -> None:
        """One line to it."""
        os.write(self._wake, json.dumps(fields).encode() + b"\n")

    def hang_up(self) -> None:
        """Nobody wants it any more."""
        os.close(self._wake)
        self._wake = -1

    def result(self, number: int | None = None) -> Result:
        """How it ended; see `cold`."""
        return _ended(self.process, number)

    def comm(self) -> str:
        """Its short name, as ps shows it."""
        return Path(f"/proc/{self.process.pid}/comm").read_text().strip()

    def close(self) -> None:
        """Let go of it."""
        if self._wake != -1:
            self.hang_up()
        self._status.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(LIMIT_S)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


def await_exit(process: subprocess.Popen[bytes]) -> int:
    """Its exit code, for a process whose output nobody reads."""
    return process.wait(LIMIT_S)


def now_s() -> float:
    """For what is measured, not judged."""
    return time.monotonic()
