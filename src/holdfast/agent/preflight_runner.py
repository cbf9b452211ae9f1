"""The preflight of this host, as the run's controller orders it: a process with a time limit."""

from __future__ import annotations

import contextlib
import hmac
import json
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from holdfast.agent.preflight import PreflightJob
from holdfast.core.durations import in_words
from holdfast.core.hosts.preflight import LIMIT_NS, PreflightAnswer, PreflightOrder

MS_NS = 1_000_000


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What is tried out on this host. `argv`: the command that is to run here."""

    scratch: str
    store: str
    argv: Sequence[str]
    working_directory: str

    @property
    def script(self) -> str:
        """The Python script that the command names; "" if it names none."""
        for word in self.argv[1:]:
            if word.endswith(".py"):
                return str(Path(self.working_directory, word))
            if not word.startswith("-"):
                break
        return ""


class PreflightRunner:
    """For the agent's loop. `pid`: of the process, 0: there is none."""

    def __init__(
        self,
        facts: HostFacts,
        secret: bytes,
        answered: Callable[[PreflightAnswer], None],
        limit_ns: int = LIMIT_NS,
    ) -> None:
        """`answered(answer)` is called from another thread."""
        self._facts = facts
        self._secret = secret
        self._answered = answered
        self._limit_ns = limit_ns
        self._order: PreflightOrder | None = None  # that was begun last
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the process under way; 0: none is."""
        return 0 if self._process is None else self._process.pid

    def obey(self, order: PreflightOrder | None, address: str, port: int) -> None:
        """Do that, if it is new, and answer others there; end what was ordered before."""
        if order != self._order:
            self.close()
            self._order = order
            if order is not None:
                self._start(order, address, port)

    def _start(self, order: PreflightOrder, address: str, port: int) -> None:
        dials = tuple((one.index, one.address, one.port) for one in order.dials)
        facts, token = self._facts, self._token(order.nonce)
        at = (address, port)
        job = PreflightJob(order.checks, token, at, dials, facts.scratch, facts.store, facts.script)
        begun_ns = time.monotonic_ns()
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "holdfast.agent.preflight"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            words = f"no process can be started: {error.strerror}"
            self._answered(PreflightAnswer(order.number, words, "", 0))
            return
        self._process = process
        assert process.stdin is not None  # noqa: S101 - it is a pipe
        with contextlib.suppress(OSError):
            process.stdin.write(job.to_json())
            process.stdin.flush()
        if order.checks:
            threading.Thread(
                target=partial(self._await, process, order.number, begun_ns), daemon=True
            ).start()

    def _token(self, nonce: str) -> str:
        return hmac.digest(self._secret, b"preflight " + nonce.encode(), "sha256").hex()

    def _await(self, process: subprocess.Popen[bytes], number: int, begun_ns: int) -> None:
        """Its only line, or the limit; in a thread of its own."""
        line = b""
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        with contextlib.suppress(OSError, ValueError):  # it was closed meanwhile
            poll = select.poll()
            poll.register(process.stdout, select.POLLIN)
            if poll.poll(self._limit_ns / MS_NS):
                line = process.stdout.readline()
        took_ns = time.monotonic_ns() - begun_ns
        if process is not self._process:
            return
        try:
            found = json.loads(line)
            failure, words = str(found["failure"]), str(found["words"])
            answer = PreflightAnswer(number, failure, words, took_ns, bool(found["of_store"]))
        except (ValueError, KeyError, TypeError):
            is_late = took_ns >= self._limit_ns
            words = f"it did not end within {in_words(self._limit_ns)}" if is_late else "it crashed"
            answer = PreflightAnswer(number, words, "", took_ns)
        self._answered(answer)

    def close(self) -> None:
        """End what is under way. A process that cannot be ended is left to the kernel."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            threading.Thread(target=process.communicate, daemon=True).start()
