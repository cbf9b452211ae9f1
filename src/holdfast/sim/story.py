"""What a simulated run leaves: facts, as a real one's journals tell them, for the same ledger."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from holdfast.core.ledger.account import Account
from holdfast.core.ledger.columns import FEW
from holdfast.core.ledger.facts import (
    AttemptFact,
    Fact,
    FaultFact,
    NoticeFact,
    RunFact,
    SpanFact,
    StepsFact,
    WaitFact,
)
from holdfast.core.ledger.incremental import Ledger
from holdfast.core.ledger.kinds import is_disruption

Ints = Any  # numpy's int64 arrays


@dataclass(slots=True)
class Rows:
    """Rows of equal steps and blocking saves of one attempt, as columns that grow by pieces."""

    steps: tuple[Ints, ...] = ()  # each: 4 columns × rows
    saves: tuple[Ints, ...] = ()  # each: start and end × rows
    row: list[tuple[int, int, int, int]] = field(default_factory=list)
    save: list[tuple[int, int]] = field(default_factory=list)

    def fold(
        self, first: int, count: int, steps: int, start_ns: int, own_ns: int, save_ns: int,
        idle_ns: int = 0,
    ) -> None:  # fmt: skip
        """`count` times over: so many steps in `own_ns`, then a save that blocks for `save_ns`.

        Of `own_ns` the last `idle_ns` are no steps.
        """
        period_ns = own_ns + save_ns
        if self.are_few and count <= FEW:
            for n in range(count):
                number, at_ns = first + n * steps, start_ns + n * period_ns
                end_ns = at_ns + own_ns
                self.row.append((number, number + steps - 1, at_ns, end_ns - idle_ns))
                if save_ns:
                    self.save.append((end_ns, end_ns + save_ns))
            return
        self.settle()
        numbers = np.arange(count, dtype=np.int64)
        start = start_ns + numbers * period_ns
        begin = first + numbers * steps
        rows = np.stack([begin, begin + steps - 1, start, start + own_ns - idle_ns])
        self.steps = (*self.steps, rows)
        if save_ns:
            self.saves = (*self.saves, np.stack([start + own_ns, start + own_ns + save_ns]))

    def settle(self) -> None:
        """Bring single rows into columns."""
        if self.row:
            self.steps = (*self.steps, np.array(self.row, np.int64).T)
            self.row = []
        if self.save:
            self.saves = (*self.saves, np.array(self.save, np.int64).T)
            self.save = []

    @property
    def are_few(self) -> bool:
        """Whether no rows were ever brought into columns."""
        return not self.steps and not self.saves

    def all_steps(self) -> Ints:
        """Four columns: first, last, start and end."""
        self.settle()
        return np.concatenate(self.steps, axis=1) if self.steps else np.zeros((4, 0), np.int64)

    def all_saves(self) -> Ints:
        """Two columns: start and end."""
        self.settle()
        return np.concatenate(self.saves, axis=1) if self.saves else np.zeros((2, 0), np.int64)


class Story:
    """Facts of one simulated run, in nanoseconds since its request."""

    def __init__(self, name: str, chips: int) -> None:
        self.name, self.chips = name, chips
        self.facts: list[Fact] = []
        self.attempts: dict[int, AttemptFact] = {}
        self.rows: dict[int, Rows] = {}

    def of(self, attempt: int) -> Rows:
        """The steps and saves of an attempt."""
        return self.rows.setdefault(attempt, Rows())

    def add(self, fact: Fact) -> None:
        """Anything but steps and saves."""
        self.facts.append(fact)

    def record(self, fact: Mapping[str, Any]) -> None:
        """What the core journals; its keys are those of docs/reference/journal.md."""
        make = RECORDS.get(fact["fact"])
        if make is not None:
            make(self, fact)

    def _attempt_start(self, fact: Mapping[str, Any]) -> None:
        attempt = fact["attempt"]
        self.attempts[attempt] = AttemptFact(attempt, fact["at_ns"], None, None)

    def _attempt_end(self, fact: Mapping[str, Any]) -> None:
        attempt = fact["attempt"]
        start_ns = self.attempts[attempt].start_ns
        self.attempts[attempt] = AttemptFact(attempt, start_ns, fact["at_ns"], fact["cause"])

    def _fault(self, fact: Mapping[str, Any]) -> None:
        self.add(FaultFact(fact["attempt"], fact["at_ns"], fact["detected_ns"], fact["cause"]))

    def _wait(self, fact: Mapping[str, Any]) -> None:
        if fact["end_ns"] is not None and fact["end_ns"] > fact["start_ns"]:
            self.add(WaitFact(fact["kind"], fact["start_ns"], fact["end_ns"]))

    def _notice(self, fact: Mapping[str, Any]) -> None:
        self.add(NoticeFact(fact["at_ns"], fact["deadline_ns"], fact["source"]))

    # --- what is made of it -----------------------------------------------------------------

    @property
    def disruptions(self) -> int:
        """How many attempts ended before the run was done."""
        return sum(is_disruption(one.end_ns, one.cause) for one in self.attempts.values())

    def account(self, now_ns: int, *, with_disruptions: bool = True) -> Account:
        """The ordinary ledger's account of it; as `Ledger.account`."""
        ledger = Ledger()
        ledger.add([RunFact(self.name, 0, None, self.chips), *self.attempts.values(), *self.facts])
        for attempt, rows in self.rows.items():
            if rows.are_few:
                ledger.add_few(attempt, rows.row, "save", rows.save)
                continue
            ledger.add_steps(attempt, *rows.all_steps())
            saves = rows.all_saves()
            kind = np.zeros(saves.shape[1], np.int64)
            ledger.add_spans(attempt, ["save"], kind, *saves)
        return ledger.account(now_ns, with_disruptions=with_disruptions)

    def history(self) -> Iterator[Fact]:
        """All of it as facts, for a history file."""
        yield RunFact(self.name, 0, None, self.chips)
        yield from self.attempts.values()
        yield from self.facts
        for attempt, rows in self.rows.items():
            for first, last, start_ns, end_ns in rows.all_steps().T.tolist():
                yield StepsFact(attempt, first, last, start_ns, end_ns)
            for start_ns, end_ns in rows.all_saves().T.tolist():
                yield SpanFact(attempt, "save", start_ns, end_ns)


RECORDS = {
    "attempt_start": Story._attempt_start,
    "attempt_end": Story._attempt_end,
    "fault": Story._fault,
    "wait": Story._wait,
    "notice": Story._notice,
}
