"""Each rank of the newest attempt, as its journal shows it: how far it is, and when it moved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from holdfast.journal.attempt_facts import Attempt
from holdfast.journal.layout import Phase


class RankSeen(NamedTuple):
    """Times are ns on the run's clock; None: never.

    `step` is the last one dispatched, `complete` the last known complete on the device (0: it does
    not say). `ahead_ns`: how long before the run's slowest rank it completed its steps, on average
    of the last `compared` ones. `copied` and `saved`: the steps of its newest copy to memory, and
    of the newest set that is durable as a whole. `blocked_ns`, `took_ns`: its last save, of the
    training's time and from order to durable.
    """

    attempt: int
    host: str
    rank: int
    phase: Phase
    step: int
    step_ns: int | None
    complete: int
    complete_ns: int | None
    alive_ns: int
    ahead_ns: int
    compared: int
    copied: int
    saved: int
    blocked_ns: int
    took_ns: int
    errors: int


def ranks_of(attempt: Attempt) -> Iterator[RankSeen]:
    """Those that left a journal, by their numbers."""
    for number, source in sorted(
        enumerate(attempt.sources), key=lambda pair: pair[1].identity.rank
    ):
        words, offset_ns = source.words, source.offset_ns
        lead = attempt.steps.leads(number)
        compared = len(lead.start)
        yield RankSeen(
            attempt=attempt.number,
            host=source.identity.host,
            rank=source.identity.rank,
            phase=words.phase,
            step=words.step,
            step_ns=words.step_at_ns + offset_ns if words.step_at_ns else None,
            complete=words.complete,
            complete_ns=words.complete_at_ns + offset_ns if words.complete_at_ns else None,
            alive_ns=source.alive_ns(),
            ahead_ns=round(float((lead.end - lead.start).mean())) if compared else 0,
            compared=compared,
            copied=words.snap.step,
            saved=max(words.committed, words.watermark),
            blocked_ns=words.save_blocked_ns,
            took_ns=words.save_total_ns,
            errors=words.errors,
        )
