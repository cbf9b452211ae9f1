"""How often is saved to which tier, and why: in one sentence, said again when it has changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

SAY_AGAIN = 4.0  # times: an optimum is flat, and double the interval hardly costs more
ONLY_WHEN_ASKED = "only when asked"


def steps_in_words(steps: int) -> str:
    """`every step`, `every 14 steps`."""
    return "every step" if steps == 1 else f"every {steps} steps"


class SaveFrequency(NamedTuple):
    """How often is saved, in words and in seconds, and why; "" and None: not known."""

    words: str
    because: str = ""
    interval_s: float | None = None

    def to(self, place: str) -> str:
        """`every 9 min to disk`, or `to disk only when asked`."""
        is_regular = self.words.startswith("every ")
        return f"{self.words} to {place}" if is_regular else f"to {place} {self.words}"

    def is_like(self, other: SaveFrequency) -> bool:
        """Whether it differs by less than is worth saying."""
        if self.interval_s is None or other.interval_s is None:
            return self.words == other.words
        low, high = sorted((self.interval_s, other.interval_s))
        return high < SAY_AGAIN * low


def saving_words(memory: SaveFrequency, durable: SaveFrequency) -> str:
    """`saving every 14 steps to memory, every 9 min to disk, because …`."""
    because = ", and ".join(pace.because for pace in (memory, durable) if pace.because)
    if memory.words != durable.words:
        words = f"saving {memory.to('memory')}, {durable.to('disk')}"
    elif memory.words == ONLY_WHEN_ASKED:
        words = f"saving {ONLY_WHEN_ASKED}"
    else:
        words = f"saving {memory.words} to memory and to disk"
    return f"{words}, because {because}" if because else words


def alone_words(durable: SaveFrequency) -> str:
    """`no snapshots in memory now: saving every 15 s to disk, because …`."""
    words = f"no snapshots in memory now: saving {durable.to('disk')}"
    return f"{words}, because {durable.because}" if durable.because else words


@dataclass(slots=True)
class SaidFrequency:
    """What was said last; `words` empty: nothing yet, as all is saved to one tier."""

    words: str = ""
    _last: tuple[SaveFrequency, ...] = ()

    def is_news(self, *now: SaveFrequency) -> bool:
        """Take it in, to memory and to disk or only to disk; whether somebody may care."""
        is_known = len(self._last) == len(now)
        if is_known and all(map(SaveFrequency.is_like, self._last, now)):
            return False
        self._last = now
        self.words = saving_words(*now) if len(now) > 1 else alone_words(*now)
        return True
