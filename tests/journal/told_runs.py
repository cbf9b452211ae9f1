"""Runs of several hosts with one rank each, as their journals tell of them: for tests to read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from holdfast.journal import writer as writer_module
from holdfast.journal.clocks import ClockPair
from holdfast.journal.layout import CONTROLLER_RANK, Flag, Identity, Kind, NoteType
from holdfast.journal.writer import JournalWriter

S = 1_000_000_000
UNIX = 1_700_000_000 * S + 123_456_789


class BootClock(NamedTuple):
    """One host's: how much later its boot's clock is than the run's, and its wall clock."""

    boot: str = "boot"
    by_ns: int = 0
    wall_by_ns: int = 0


class Written(NamedTuple):
    """One rank's record of one attempt: when it was made, and how. `at_ns`: on the boot's clock."""

    attempt: int
    rank: int
    at_ns: int
    write: Callable[[JournalWriter, int], None]  # times are so much later on that clock
    is_begin: bool = False


class ToldRun:
    """A run of several hosts with one rank each, in lockstep; `steps_kept` is the truth."""

    def __init__(self, random: Random, attempts: int, hosts: int, *, is_even: bool) -> None:
        """`is_even`: all ranks are ready, and end each step, at one moment; steps are alike."""
        self._random, self._is_even = random, is_even
        self.hosts = hosts
        self.spans: list[tuple[int, int]] = []  # of the attempts
        self.records: list[Written] = []
        self._now = 10 * S
        lineage: list[tuple[int, int]] = []  # attempt and step, by what was done for good
        for attempt in range(attempts):
            resume = random.randint(0, len(lineage))
            lineage = lineage[:resume]
            source = lineage[-1][0] if lineage else None
            done = self._attempt(attempt, resume, source)
            lineage += [(attempt, step) for step in range(resume + 1, resume + done + 1)]
        self.steps_kept = len(lineage)

    def _later(self) -> int:
        return self._random.randint(1, 5 * S)

    def _attempt(self, attempt: int, resume: int, source: int | None) -> int:
        """How many steps all ranks have completed."""
        start = self._now
        ends = [start + self._later() for _ in range(self.hosts)]
        ends = [max(ends)] * self.hosts if self._is_even else ends
        for rank, at in enumerate(ends):
            self._write(attempt, rank, at, _restore(start, at, resume, source))
            self.records.append(Written(attempt, rank, at, _begin(resume + 1, at), True))
        done = self._random.randint(0, 6)
        for step in range(resume + 1, resume + done + 1):
            # Of the even ones none is so long that a part of it would be its attempt's start.
            least = 4 * S if self._is_even else 1
            began, end = max(ends), max(ends) + self._random.randint(least, 5 * S)
            for rank in range(self.hosts):
                own = end if self._is_even else began + self._random.randint(0, end - began)
                self._write(attempt, rank, own, _step(step, ends[rank], own))
                ends[rank] = own
        if not self._is_even and self._random.random() < 0.5:  # some get one further
            for rank in range(self._random.randint(0, self.hosts - 1)):
                at = max(ends) + 1
                self._write(attempt, rank, at, _step(resume + done + 1, ends[rank], at))
        self._now = max(ends) + self._later()
        self.spans.append((start, self._now))
        self._now += self._random.randint(0, 1) * S
        return done

    def _write(self, attempt: int, rank: int, at: int, write: object) -> None:
        self.records.append(Written(attempt, rank, at, write))

    def put(
        self, root: Path, keeps: Callable[[Written], bool], clocks: Sequence[BootClock] = ()
    ) -> None:
        """As journals, of the records that it keeps.

        `clocks`: of each host; the controller is on the first, and has measured the others.
        """
        clocks = clocks or [BootClock()] * self.hosts
        own = clocks[0]

        def fact(what: str, /, **payload: object) -> None:
            controller.note(NoteType.FACT, {"fact": what, **payload})

        controller = _journal(root, "journal/controller-000001.hfj", 1, CONTROLLER_RANK, own)
        fact("run", name="r", requested_ns=5 * S + own.by_ns, chips=3)
        for host, clock in enumerate(clocks):
            stands = {"host": host, "state": "assigned", "slot": host, "slice": ""}
            offset_ns = own.by_ns - clock.by_ns
            measured = {"boot": clock.boot, "offset_ns": offset_ns, "error_ns": 1000}
            fact("host", at_ns=6 * S + own.by_ns, **stands, **measured)
        for attempt, (start, end) in enumerate(self.spans):
            name = f"attempts/{attempt:04d}/journal/rank-{{:05d}}.hfj"
            writers = [
                _journal(root, name.format(rank), attempt, rank, clocks[rank])
                for rank in range(self.hosts)
            ]
            for one in self.records:
                if one.attempt == attempt and keeps(one):
                    one.write(writers[one.rank], clocks[one.rank].by_ns)
            for writer in writers:
                writer.close()
            cause = "done" if attempt == len(self.spans) - 1 else "host_lost"
            fact("attempt_start", attempt=attempt, at_ns=start + own.by_ns)
            fact("attempt_end", attempt=attempt, at_ns=end + own.by_ns, cause=cause)
        controller.close()


def _restore(start: int, end: int, step: int, source: int | None):
    return lambda writer, by: writer.record_restore(start + by, end + by, step, source)


def _begin(step: int, at: int):
    return lambda writer, by: writer.append(at + by, Kind.STEP_BEGIN, 0, 0, step, 0)


def _step(step: int, start: int, end: int):
    return lambda writer, by: writer.append(
        end + by, Kind.STEP, Flag.CONTINUES, 0, step, start + by
    )


def _journal(root: Path, name: str, attempt: int, rank: int, clock: BootClock) -> JournalWriter:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    identity = Identity("r", attempt, f"{attempt}/{rank}", 0, f"host-{rank}", rank, clock.boot)
    with pytest.MonkeyPatch.context() as patch:
        pair = ClockPair(clock.by_ns, UNIX + clock.wall_by_ns)
        patch.setattr(writer_module, "read_clock_pair", lambda: pair)
        return JournalWriter.create(root / name, identity)
