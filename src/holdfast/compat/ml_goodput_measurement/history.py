"""A history file behind the API: `GoodputCalculator("job", "log", HistoryLog("run.jsonl"))`."""

from __future__ import annotations

import os
import threading
from typing import Any

from holdfast.compat.ml_goodput_measurement.books import Books
from holdfast.core.history.rows import History
from holdfast.core.ledger.facts import AttemptFact, RunFact, SeenFact
from holdfast.journal.history_file import read_history


class HistoryBooks(Books):
    """The books of a history; its steps are numbered as it says."""

    marks_the_last_lost = False  # the format has its own rule for a run that nobody ended

    def __init__(self, history: History) -> None:
        super().__init__()
        self.ahead = 0
        self.ledger.add_history(history)
        for fact in history.facts:
            if isinstance(fact, RunFact):
                self.name, self.chips = fact.name, fact.chips
                self.requested_ns, self.ended_ns = fact.requested_ns, fact.ended_ns
            elif isinstance(fact, SeenFact):
                self.seen_ns = max(self.seen_ns or fact.at_ns, fact.at_ns)
            elif isinstance(fact, AttemptFact) and (
                self.newest is None or fact.start_ns >= self.newest.start_ns
            ):
                self.newest = fact


class HistoryLog:
    """What a calculator takes for its `cloud_logger`. Raises ConfigurationError, HistoryError."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._books = HistoryBooks(read_history(path))
        self.reading = threading.RLock()

    def books(self) -> Books:
        """The job's books."""
        return self._books

    def write_cloud_logging_entry(self, entry: Any) -> None:
        """Nothing: a history is what it is."""
