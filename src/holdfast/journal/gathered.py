"""What a ledger was told of a run, for who wants more than its account.

Steps and saves stay in columns. A run's journals give it, and so does a history, which knows less:
not how many hosts there were, nor what was saved where.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np

from holdfast.core.history.rows import History
from holdfast.core.ledger.account import Account
from holdfast.core.ledger.facts import (
    AttemptFact,
    Fact,
    FaultFact,
    NoticeFact,
    RestoreFact,
    WaitFact,
)
from holdfast.core.ledger.incremental import Ledger
from holdfast.errors import JournalError
from holdfast.journal.facts.lines import SavesStated
from holdfast.journal.facts.rank_steps import Ints
from holdfast.journal.incidents import StandbyNote, standby_notes
from holdfast.journal.recorded import RecordedLedger
from holdfast.journal.store import RunFolder

SAVE = "save"
_WANTED = (AttemptFact, RestoreFact, FaultFact, WaitFact, NoticeFact)


@dataclass(slots=True)
class Gathered:
    """`account` ends with the last thing recorded: nothing is known of what came after it.

    `facts` are those about attempts, waits and notices; of several about one attempt the last.
    `steps` holds four columns an attempt (first, last, start and end in ns), `saves` those saves
    that blocked it, as two (start and end). `saved`: how many went to memory and to disk; None:
    nobody said. `hosts`: of the newest attempt; 0: nobody said. `from_memory`: the attempts that
    were restored from there. `standbys`: how those waited, of the restarts after these attempts.
    """

    account: Account
    facts: list[Fact]
    steps: dict[int, Ints]
    saves: dict[int, Ints]
    saved: SavesStated | None = None
    hosts: int = 0
    from_memory: frozenset[int] = frozenset()
    standbys: dict[int, StandbyNote] = field(default_factory=dict)


def gathered(ledger: Ledger) -> Gathered:
    """What was recorded in it so far: a copy."""
    steps = {number: np.stack(rows) for number, *rows in ledger.rows() if len(rows[0])}
    saves = {number: np.stack(spans) for number, *spans in ledger.spans(SAVE) if len(spans[0])}
    facts: list[Fact] = [fact for fact in ledger.facts() if isinstance(fact, _WANTED)]
    return Gathered(ledger.account(), facts, steps, saves)


def gathered_run(
    recorded: RecordedLedger, from_memory: Collection[int] = (), folder: RunFolder | None = None
) -> Gathered:
    """What was read of a run so far; raises JournalError when that is nothing.

    `folder`: where it is recorded how standbys waited; None: that is not wanted.
    """
    facts = recorded.facts
    if facts.requested_ns is None:
        raise JournalError(
            f"{recorded.run_dir} holds no journal that can be read: nothing was recorded yet"
        )
    found = gathered(recorded.ledger)
    found.saved, found.hosts = facts.controllers.saves(), facts.hosts()
    found.from_memory = frozenset(from_memory)
    if folder is not None:
        found.standbys = standby_notes(folder, [one.attempt for one in found.account.disruptions])
    return found


def gathered_history(history: History) -> Gathered:
    """What a history says."""
    ledger = Ledger()
    ledger.add_history(history)
    return gathered(ledger)
