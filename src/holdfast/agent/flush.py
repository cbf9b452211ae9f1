"""The flush processes as the agent sees them: what is asked of them, and what came of it.

Two of one program (`agent.flusher`): one at hand, for what somebody waits for (seals, the save
before a stop), and one that gives way to the training, for everything else. Each is started when
there is something for it to do. One that dies is started again and asked the same again: what it
had done is still there. All methods return at once, and are called by the loop's thread alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.core.save.corruption import Replica, ReplicaDifference
from holdfast.core.save.tier_events import AlikeDigests
from holdfast.core.value import value

SOURCES = Path(__file__).parents[2]
TRIES = 3
CLOSE_LIMIT_S = 5.0
STEADY_S = 60.0  # what listens is never over: once it has for so long, earlier deaths are past
STOP_LIMIT_S = 0.5  # for a process that is told to stop, and may not be given the time to
AT_HAND_NICE = 0
GIVING_WAY_NICE = 15


TOLD = {
    "why": "why", "is_gone": "is_gone", "ranks": "ranks", "world_size": "world_size",
    "bytes": "nbytes", "took_ns": "took_ns", "differing": "differing", "alike": "alike",
    "is_compared": "is_compared", "taken_ns": "taken_ns",
}  # fmt: skip


@value
class FlushResult:
    """What came of a job; `why` is the sentence for one that failed."""

    why: str | None = None
    is_gone: bool = False  # what is in memory is not what was sealed
    ranks: Sequence[int] = ()  # whose shards were here
    world_size: int = 0  # so many wrote the set
    nbytes: int = 0
    took_ns: int = 0
    taken_ns: int = 0  # of processors' time, from the training
    differing: Sequence[Any] = ()  # arrays: `core.save.corruption.ReplicaDifference`, as JSON
    alike: Sequence[Any] = ()  # what the ranks here hold alike: `AlikeDigests`, as JSON
    is_compared: bool = False  # the ranks of the one host, in what the framework keeps equal


def differences(said: Sequence[Any]) -> tuple[ReplicaDifference, ...]:
    """The inverse of that JSON."""
    return tuple(
        ReplicaDifference(array, tuple(Replica(rank, digest) for rank, digest in replicas))
        for array, replicas in said
    )


@dataclass(slots=True)
class _Job:
    command: Mapping[str, Any]
    done: Callable[[FlushResult], None]
    tries: int = 0
    heir: FlushProcess | None = None  # does it instead, when it is given up here
    stop_by_s: float = 0.0  # it is given up by then, or its process ended
    nbytes: int = 0  # that it has written by now
    listens_s: float = 0.0  # since then, or since it did last


class FlushProcess:
    """One process, and what it has been asked for. `port`: where it listens, if it does."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        environment: Mapping[str, str],
        nice: int,
        program: str = "holdfast.agent.flusher",
        purpose: str = "writes it to disk",
    ) -> None:
        """`purpose`: what it does, in words that follow 'the process that'."""
        self._selector = selector
        paths = [str(SOURCES), environment.get("PYTHONPATH", "")]
        self._environment = {**environment, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        self._nice = nice
        self._program = program
        self._purpose = purpose
        self.port = 0
        self._jobs: dict[int, _Job] = {}
        self._next = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = b""
        self._closed = False

    @property
    def pid(self) -> int | None:
        """Of the process; None: there is none now."""
        return None if self._process is None else self._process.pid

    @property
    def nbytes(self) -> int:
        """What all that is under way has written by now."""
        return sum(job.nbytes for job in self._jobs.values())

    def ask(self, do: str, done: Callable[[FlushResult], None], **fields: Any) -> int:
        """Have something done; `done` is called by a later `turn`. Returns the job's number."""
        self._next += 1
        job = _Job({"do": do, "id": self._next, **fields}, done)
        if not self._closed:
            self._jobs[self._next] = job
            self._try(self._next)
        return self._next

    def hand_over(self, number: int, heir: FlushProcess) -> None:
        """Give a job up, and have another process do it; nothing happens if it is done already."""
        job = self._jobs.get(number)
        if job is not None and job.heir is None:
            job.heir, job.stop_by_s = heir, time.monotonic() + STOP_LIMIT_S
            self._write({"do": "stop", "id": number})

    def stop(self, number: int) -> None:
        """Have a job stop soon: it fails then, unless it is done before."""
        if number in self._jobs:
            self._write({"do": "stop", "id": number})

    def abandon(self, do: str, why: str) -> None:
        """End the process over jobs of that kind, if it has any: they fail. Others are done anew.

        Its end is not waited for: what hangs in a store's file system cannot even be killed.
        """
        over = [number for number, job in self._jobs.items() if job.command["do"] == do]
        if not over:
            return
        self._let_go()
        jobs = [self._jobs.pop(number) for number in over]
        self._ask_again()
        for job in jobs:
            job.done(FlushResult(why))

    def start(self) -> None:
        """Have the process there. It dies with the thread that started it: the loop's."""
        if self._process is not None:
            return
        self._buffer = b""
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", self._program),
                *(str(os.getpid()), str(self._nice)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=self._environment,
            start_new_session=True,  # a terminal's Ctrl-C is for the agent alone
        )
        if self._process.stdin is None or self._process.stdout is None:  # for the type checker
            raise RuntimeError("Popen was asked for pipes")
        os.set_blocking(self._process.stdin.fileno(), False)
        os.set_blocking(self._process.stdout.fileno(), False)
        self._selector.register(self._process.stdout, selectors.EVENT_READ)

    def turn(self) -> None:
        """Take what it said; one that has died is started again for what it had not done."""
        process = self._process
        if process is None or process.stdout is None:
            return
        while not self._is_overdue:
            try:
                data = os.read(process.stdout.fileno(), 1 << 16)
            except BlockingIOError:
                return
            if not data:
                break
            *lines, self._buffer = (self._buffer + data).split(b"\n")
            for line in lines:
                self._hear(json.loads(line))
        self._let_go()
        self._ask_again()

    @property
    def _is_overdue(self) -> bool:
        """Whether it was told to stop something and does not, as when it is never scheduled."""
        return any(0 < job.stop_by_s < time.monotonic() for job in self._jobs.values())

    def _ask_again(self) -> None:
        for number in list(self._jobs):
            self._try(number)

    def close(self, limit_s: float = CLOSE_LIMIT_S) -> None:
        """End it, whatever it does: nothing more is heard of what it was asked for."""
        self._closed = True
        self._jobs.clear()
        ending = self._let_go()
        if ending is not None:
            ending.join(limit_s)

    def _hear(self, said: dict[str, Any]) -> None:
        job = self._jobs.get(said["id"])
        if job is not None and said["event"] == "wrote":
            job.nbytes = said["bytes"]
        elif job is not None and said["event"] == "listening":
            self.port, job.listens_s = said["port"], time.monotonic()
        elif job is not None:
            values = {name: said[key] for key, name in TOLD.items() if key in said}
            self._settle(said["id"], FlushResult(**values))

    def _settle(self, number: int, outcome: FlushResult) -> None:
        job = self._jobs.pop(number)
        if outcome.why is not None and job.heir is not None:
            fields = {key: value for key, value in job.command.items() if key not in ("do", "id")}
            job.heir.ask(job.command["do"], job.done, **fields)
        else:
            job.done(outcome)

    def _try(self, number: int) -> None:
        """Ask for it, in a new process if there is none; again, if one has died over it."""
        job = self._jobs[number]
        if job.listens_s and time.monotonic() - job.listens_s > STEADY_S:
            job.tries = 0
        why = f"the process that {self._purpose} died {TRIES} times" if job.tries >= TRIES else None
        if job.heir is not None:
            why = "handed over"
        if why is None:
            try:
                self.start()
            except OSError as error:
                why = (
                    f"the process that {self._purpose} cannot be started: {error.strerror or error}"
                )
        if why is not None:
            self._settle(number, FlushResult(why))
            return
        job.tries += 1
        self._write(job.command)

    def _write(self, command: Mapping[str, Any]) -> None:
        line = json.dumps(command).encode() + b"\n"
        with contextlib.suppress(OSError):  # one that is dead is noticed by its silence
            if self._process is not None and self._process.stdin is not None:
                os.write(self._process.stdin.fileno(), line)

    def _let_go(self) -> threading.Thread | None:
        process, self._process, self.port = self._process, None, 0
        if process is None or process.stdout is None or process.stdin is None:
            return None
        self._selector.unregister(process.stdout)
        process.stdin.close()
        process.stdout.close()

        def await_end() -> None:  # a write to a store that hangs cannot even be killed
            process.kill()
            process.wait()

        ending = threading.Thread(target=await_end, name="holdfast-flush", daemon=True)
        ending.start()
        return ending


class FlushProcesses:
    """Both processes: which does what, and where it comes from and goes to."""

    def __init__(self, selector: selectors.BaseSelector, environment: Mapping[str, str]) -> None:
        self._at_hand = FlushProcess(selector, environment, AT_HAND_NICE)
        self._giving_way = FlushProcess(selector, environment, GIVING_WAY_NICE)
        self._latest: int | None = None  # of the flushes that give way

    @property
    def pids(self) -> list[int]:
        """Of the processes that are there."""
        found = (self._at_hand.pid, self._giving_way.pid)
        return [pid for pid in found if pid is not None]

    @property
    def nbytes(self) -> int:
        """What the flush under way has written by now."""
        return self._at_hand.nbytes + self._giving_way.nbytes

    def start(self) -> None:
        """Be ready for the first seal: starting takes longer than the seal of a small buffer."""
        self._at_hand.start()

    def turn(self) -> None:
        """Hear what was said; called by the loop."""
        self._at_hand.turn()
        self._giving_way.turn()

    def seal(
        self,
        buffer: Path,
        done: Callable[[FlushResult], None],
        *,
        attempt: int,
        step: int,
        ranks: Sequence[int],
        world_size: int,
    ) -> None:
        """Put checksums and a manifest to a buffer that these ranks have copied into."""
        self._at_hand.ask(
            "seal",
            done,
            buffer=str(buffer),
            attempt=attempt,
            step=step,
            ranks=list(ranks),
            world_size=world_size,
        )

    def flush(
        self,
        buffer: Path,
        set_dir: Path,
        done: Callable[[FlushResult], None],
        *,
        attempt: int,
        step: int,
        urgent: bool,
        alike: AlikeDigests = (),
    ) -> None:
        """Take a sealed buffer to the run store; the manifest is left out.

        `alike`: what all hosts have said to hold alike, with several.
        """
        process = self._at_hand if urgent else self._giving_way
        number = process.ask(
            "flush",
            done,
            buffer=str(buffer),
            set=str(set_dir),
            attempt=attempt,
            step=step,
            alike=alike,
        )
        self._latest = None if urgent else number

    def hurry(self) -> None:
        """Somebody waits for the flush under way now: it gives way to nothing any more."""
        if self._latest is not None:
            self._giving_way.hand_over(self._latest, self._at_hand)

    def abandon(self, why: str) -> None:
        """The flush under way is waited for no longer: it fails, and the reason is `why`."""
        self._at_hand.abandon("flush", why)
        self._giving_way.abandon("flush", why)

    def close(self) -> None:
        """End both."""
        self._at_hand.close()
        self._giving_way.close()
