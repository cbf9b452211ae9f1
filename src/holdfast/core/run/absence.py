"""How long to wait for a run store that is away when the next attempt should begin.

A store that is remounted, a file server that starts again: minutes, usually. Giving up at once
would turn such a pause into the end of a run whose hosts are there and whose checkpoints are safe.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.durations import in_words

SECOND_NS = 1_000_000_000
FIRST_NS = SECOND_NS
LONGEST_NS = 30 * SECOND_NS


@dataclass(slots=True)
class Absence:
    """One absence of the store: `again` for each time that it was asked in vain."""

    patience_ns: int
    _since_ns: int | None = None
    _delay_ns: int = FIRST_NS

    def over(self) -> None:
        """It has answered."""
        self._since_ns, self._delay_ns = None, FIRST_NS

    def again(self, at_ns: int) -> tuple[int | None, str]:
        """When to ask again, doubling from 1 s to 30 s; None: it has been away for too long."""
        first = self._since_ns is None
        since_ns = at_ns if self._since_ns is None else self._since_ns
        self._since_ns = since_ns
        left_ns = since_ns + self.patience_ns - at_ns
        if left_ns <= 0:
            away_ns = at_ns - since_ns
            return None, f"the run store has been away for {in_words(away_ns)}" if away_ns else ""
        delay_ns, self._delay_ns = self._delay_ns, min(2 * self._delay_ns, LONGEST_NS)
        patience = in_words(self.patience_ns)
        reason = f"waiting up to {patience} for the run store" if first else ""
        return at_ns + min(delay_ns, left_ns), reason
