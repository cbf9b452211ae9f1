"""All that is recorded of a run, kept as it is told: for who wants more than the ledger's account.

Steps and spans stay in columns. A run's journals give it, and so does a history, which knows less:
not how many hosts there were, nor what was saved where.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from holdfast.core.facts import Fact, subject
from holdfast.core.history import History
from holdfast.core.ledger.account import Account
from holdfast.core.ledger.incremental import Ledger
from holdfast.errors import JournalError
from holdfast.journal.rank_steps import Ints
from holdfast.journal.run_facts import RunFacts
from holdfast.journal.statements import SavesStated

SAVE = "save"


@dataclass(slots=True)
class Gathered:
    """`account` ends with the last thing recorded: nothing is known of what came after it.

    `facts` are all but steps and spans; of several about one attempt the last. `steps` holds each
    attempt's rows as pieces of four columns (first, last, start and end in ns), `saves` the saves
    that blocked it as pieces of two (start and end). `saved`: how many went to memory and to disk;
    None: nobody said. `hosts`: of the newest attempt; 0: nobody said. `from_memory`: the attempts
    that were restored from there.
    """

    account: Account
    facts: list[Fact]
    steps: dict[int, list[Ints]]
    saves: dict[int, list[Ints]]
    saved: SavesStated | None = None
    hosts: int = 0
    from_memory: frozenset[int] = frozenset()


def gathered_run(
    run_dir: str | os.PathLike[str],
    live: Mapping[Path, Path] | None = None,
    from_memory: Collection[int] = (),
) -> Gathered:
    """What the journals of a run's folder say; `live`: see `recorded.load_run`.

    Raises JournalError when there is none that can be read.
    """
    while True:
        sink = _Sink()
        facts = RunFacts(run_dir, sink, live)
        facts.refresh()
        if not facts.superseded:
            break
    if facts.requested_ns is None:
        raise JournalError(f"{run_dir} holds no journal that can be read: nothing was recorded yet")
    found = sink.gathered()
    found.saved, found.hosts = facts.saves(), facts.hosts()
    found.from_memory = frozenset(from_memory)
    return found


def gathered_history(history: History) -> Gathered:
    """What a history says."""
    ledger = Ledger()
    ledger.add_history(history)
    steps = {
        attempt: [_columns(rows.first, rows.last, rows.start_ns, rows.end_ns)]
        for attempt, rows in history.steps.items()
    }
    saves = {}
    for attempt, marks in history.spans.items():
        kind, start_ns, end_ns = _columns(marks.kind, marks.start_ns, marks.end_ns)
        saves[attempt] = _saves(history.span_kinds, kind, start_ns, end_ns)
    return Gathered(ledger.account(), list(history.facts), steps, saves)


def _columns(*columns: Iterable[int]) -> Ints:
    return np.array([*map(np.asarray, columns)], np.int64)


def _saves(kinds: Sequence[str], kind: Ints, start_ns: Ints, end_ns: Ints) -> list[Ints]:
    """Those of the spans that are saves."""
    is_save = np.array([name == SAVE for name in kinds], bool)[kind]
    return [np.stack([start_ns[is_save], end_ns[is_save]])] if is_save.any() else []


@dataclass(slots=True)
class _Sink:
    """Where facts go: kept, and told to a ledger."""

    ledger: Ledger = field(default_factory=lambda: Ledger(by_kind=True))
    facts: dict[object, Fact] = field(default_factory=dict)
    steps: dict[int, list[Ints]] = field(default_factory=dict)
    saves: dict[int, list[Ints]] = field(default_factory=dict)

    def add(self, facts: Iterable[Fact]) -> None:
        told = list(facts)
        self.ledger.add(told)
        self.facts.update((subject(fact), fact) for fact in told)

    def add_steps(
        self, attempt: int, first: Ints, last: Ints, start_ns: Ints, end_ns: Ints
    ) -> None:
        self.ledger.add_steps(attempt, first, last, start_ns, end_ns)
        self.steps.setdefault(attempt, []).append(np.stack([first, last, start_ns, end_ns]))

    def add_spans(
        self, attempt: int, kinds: Sequence[str], kind: Ints, start_ns: Ints, end_ns: Ints
    ) -> None:
        self.ledger.add_spans(attempt, kinds, kind, start_ns, end_ns)
        self.saves.setdefault(attempt, []).extend(_saves(kinds, kind, start_ns, end_ns))

    def set_open(
        self, attempt: int, spans: Iterable[tuple[str, int]], step: tuple[int, int] | None
    ) -> None:
        self.ledger.set_open(attempt, spans, step)

    def gathered(self) -> Gathered:
        facts = list(self.facts.values())
        return Gathered(self.ledger.account(), facts, self.steps, self.saves)
