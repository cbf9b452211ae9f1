"""How often is saved to which tier, and why, in one sentence; and when it is worth telling anew."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core import actions as act
from holdfast.core import records
from holdfast.core.save.policy import ONLY_WHEN_ASKED, SaveFrequency
from holdfast.core.save.saving import Saving

TELL_AGAIN = 4.0  # times: an optimum is flat, and double the interval hardly costs more


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
class Announced:
    """What people have been told of it."""

    last: tuple[SaveFrequency, ...] | None = None
    words: str = ""

    def news(self, saving: Saving, at_ns: int) -> list[act.Action]:
        """Say it and put it on record, if it has changed so much that somebody may care."""
        tier = saving.tier
        if not (tier.is_there or tier.is_lost):
            return []
        paces = _paces(saving, at_ns)
        last = self.last
        if last is not None and len(last) == len(paces) and all(map(_is_alike, last, paces)):
            return []
        self.last = paces
        self.words = alone_words(*paces) if tier.is_lost else saving_words(*paces)
        level = "warning" if tier.is_lost else "info"
        return [records.saving(at_ns, self.words), act.Say(level, self.words)]


def _paces(saving: Saving, at_ns: int) -> tuple[SaveFrequency, ...]:
    if saving.tier.is_lost:
        return (saving.policy.pace(saving.view(at_ns)),)
    memory = saving.memory_policy.pace(saving.memory_view(at_ns))
    durable = saving.policy.pace(saving.durable_view(at_ns, saving.fastest_step + 1))
    return memory, durable


def _is_alike(last: SaveFrequency, now: SaveFrequency) -> bool:
    if last.interval_s is None or now.interval_s is None:
        return last.words == now.words
    low, high = sorted((last.interval_s, now.interval_s))
    return high < TELL_AGAIN * low
