"""A run store that is away or full: how long the run waits for it, and what is said of that.

Before an attempt, for a store that does not answer: it is remounted, or a file server starts again,
which takes minutes. Giving up at once would turn such a pause into the end of a run whose hosts are
there and whose checkpoints are safe.

At the end: all steps are done, and the run store does not take the last one. Starting again would
repeat what the newest checkpoint lacks, and end at the same full disk. So the run is held: the
ranks wait, or, where memory holds the last step, leave; and the save is tried again and again.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core import actions as act
from holdfast.core import records
from holdfast.core.durations import SECOND_NS, in_words

FIRST_NS = SECOND_NS
LONGEST_NS = 30 * SECOND_NS
STATE_WORDS = "finished, not yet durable"


@dataclass(slots=True)
class Absence:
    """One absence of the store: `again` for each time that it was asked in vain."""

    patience_ns: int
    _since_ns: int | None = None
    _delay_ns: int = FIRST_NS

    def over(self) -> None:
        """The store has answered."""
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


@dataclass(slots=True)
class Holding:
    """The hold of a run. `until_ns`: so long it is held; None: it is not."""

    limit_ns: int
    until_ns: int | None = None

    def over(self) -> None:
        """The last step is not held any more."""
        self.until_ns = None

    def saved(self, at_ns: int, step: int, words: str) -> list[act.Action]:
        """The last step is durable after all; `words`: how often was saved before."""
        if self.until_ns is None:
            return []
        self.over()
        return [act.Say("info", f"step {step} is durable now"), records.saving(at_ns, words)]

    def failed(
        self, at_ns: int, step: int, why: str, *, until_ns: int | None = None
    ) -> list[act.Action]:
        """The last step could not be saved: tell it once.

        `until_ns`: until then the ranks hold it; None: it is in memory.
        """
        is_news, in_memory = self.until_ns is None, until_ns is None
        if self.until_ns is None:
            self.until_ns = at_ns + self.limit_ns if until_ns is None else until_ns
        if not is_news or self.until_ns <= at_ns:
            return []
        words = held_words(step, why, self.until_ns - at_ns, in_memory=in_memory)
        return [act.Say("error", words), records.saving(at_ns, words)]


def held_words(step: int, why: str, left_ns: int, *, in_memory: bool) -> str:
    """What is wrong, and what to do, in one sentence."""
    where = "is only in this host's memory" if in_memory else "is in no checkpoint"
    return (
        f"{STATE_WORDS}: the last step, {step}, {where}; the save is tried again for "
        f"{in_words(left_ns)}: make room in the run store ({why})"
    )


def lost_words(step: int, saved: int) -> str:
    """What a run ends with whose last step was lost with the memory that held it."""
    what = f"all steps are done, and the last one, {step}, was lost with the memory that held it"
    return f"{what} (step {saved} is saved): start it again"


def given_up_words(step: int, saved: int, *, in_memory: bool) -> str:
    """What a run ends with whose last step the store has not taken."""
    what = f"all steps are done, and the run store did not take the last one, {step}"
    if in_memory:
        return f"{what}: make room there, and start it again on this host, whose memory holds it"
    return f"{what} (step {saved} is saved): make room there, and start it again"


def uneven_words(uneven: str) -> str:
    """What a run ends with whose ranks ended their training at different steps."""
    return (
        f"{uneven}, so that no checkpoint can hold the end: have all ranks end at the same step, "
        "and start it again"
    )
