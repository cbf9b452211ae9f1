"""Questions to the ledger of one job, whoever told it what happened.

Two things the ledger cannot know are decided here: whether a job of which nothing is heard any more
has ended, and which of its time is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from holdfast.compat.ml_goodput_measurement import clock, kinds
from holdfast.compat.ml_goodput_measurement.clock import NS_PER_S
from holdfast.compat.ml_goodput_measurement.events import SliceCounts
from holdfast.compat.ml_goodput_measurement.shapes import BadputType, BadputValue
from holdfast.core.ledger.facts import AttemptFact, RunFact
from holdfast.core.ledger.incremental import Ledger
from holdfast.core.ledger.kinds import STEP

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from holdfast.core.ledger.account import Account
    from holdfast.core.ledger.columns import Ints

    Floats = NDArray[np.float64]

SILENCE_NS = 3600 * NS_PER_S
"""A log of which nothing came for so long is that of a job that is gone."""

LIFE_NS = 60 * NS_PER_S
"""Where somebody gives signs of life, so long without one means the same."""

NOBODY_LEFT = "nobody_left"


@dataclass(frozen=True, slots=True)
class JobAnswer:
    """Where a job's time went, in seconds; `steps` are numbered as the job does.

    `by_kind` is by the ledger's kinds. `excluded_s` is what was left out.
    """

    by_kind: dict[str, float]
    elapsed_s: float
    disruptions: int
    max_productive_step: int
    excluded_s: float = 0.0

    @property
    def productive_s(self) -> float:
        """Seconds of steps that were kept."""
        return self.by_kind.get(STEP, 0.0)

    @property
    def goodput(self) -> float:
        """Percent of the elapsed seconds that were productive."""
        return self.productive_s / self.elapsed_s * 100

    def badput_s(self, *, elastic: bool = False) -> dict[BadputType, BadputValue]:
        """Seconds by badput type."""
        return kinds.badput_seconds(self.by_kind, elastic=elastic)


class Books:
    """One job's ledger. Those who feed it keep the fields that follow right."""

    marks_the_last_lost = True
    """Whether an attempt that nobody ended is a disruption once nothing is heard of it."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.name = ""
        self.requested_ns: int | None = None
        self.ended_ns: int | None = None
        self.chips = 1
        self.ahead = 1  # the ledger's number of a step, less the job's: the ledger begins with 1
        self.newest: AttemptFact | None = None
        self.seen_ns: int | None = None  # the last sign of life, where there are any
        self.slices: list[SliceCounts] = []
        self._told: tuple[RunFact, AttemptFact | None] | None = None

    # --- Asking ------------------------------------------------------------------------------

    def now_ns(self) -> int:
        """Now, by the clock of what is recorded."""
        return clock.unix_ns()

    def ask(
        self,
        now_ns: int,
        start_ns: int | None = None,
        without: Sequence[tuple[int, int]] = (),
    ) -> JobAnswer:
        """Where the time until `now_ns` went, from `start_ns` or the beginning on.

        `without` are stretches to leave out, disjoint and in order. What nobody accounts for is
        not left out: it stays in the time that is divided by. Raises ValueError when nothing is
        known of the job, or the stretch has no length.
        """
        end_ns = self._end_ns(now_ns, is_latest=start_ns is None)
        requested_ns = self.requested_ns or 0
        begins_ns = requested_ns if start_ns is None else max(requested_ns, start_ns)
        if begins_ns >= end_ns:
            raise ValueError(
                f"no time of job {self.name!r} to account for: nothing of it is known between the "
                "moments that were asked about"
            )
        account = self._since(begins_ns, end_ns)
        time = dict(account.kinds)
        excluded = self._taken_out(time, begins_ns, end_ns, without)
        self._take_opening(time, begins_ns, end_ns, without)
        return JobAnswer(
            by_kind={kind: account.in_seconds(amount) for kind, amount in time.items()},
            elapsed_s=account.in_seconds(account.elapsed - excluded),
            disruptions=len(account.disruptions),
            max_productive_step=max(0, self.ledger.last_kept_step(end_ns) - self.ahead),
            excluded_s=account.in_seconds(excluded),
        )

    def step_times(self) -> tuple[Ints, Floats]:
        """Numbers of the completed steps, rising, and the seconds of each one's last execution."""
        import numpy as np

        pieces = [
            (last - self.ahead, (end_ns - start_ns) // (last - first + 1) / NS_PER_S)
            for _, first, last, start_ns, end_ns in self.ledger.rows()
        ]
        if not pieces:
            return np.empty(0, np.int64), np.empty(0)
        steps, lengths = (np.concatenate(column) for column in zip(*pieces, strict=True))
        if (steps[1:] <= steps[:-1]).any():  # some were done again
            steps, at = np.unique(steps[::-1], return_index=True)
            lengths = lengths[::-1][at]
        return steps, lengths

    # --- The time line -----------------------------------------------------------------------

    def _end_ns(self, now_ns: int, *, is_latest: bool) -> int:
        """Where the time line ends that is known at `now_ns`; the ledger is told.

        `is_latest`: everything recorded is meant; a log whose clock is ahead of ours is believed.
        """
        if self.requested_ns is None:
            raise ValueError(
                f"nothing is recorded of job {self.name!r}: its goodput cannot be told; check the "
                "job's name, and that its start was recorded"
            )
        heard_ns = max(self.ledger.last_ns(), self.requested_ns)
        ended_ns, newest = self.ended_ns, self.newest
        if ended_ns is None:
            limit_ns = SILENCE_NS
            if self.seen_ns is not None:
                heard_ns, limit_ns = max(heard_ns, self.seen_ns), LIFE_NS
            if now_ns - heard_ns > limit_ns:
                ended_ns = heard_ns
                if self.marks_the_last_lost and newest is not None and newest.end_ns is None:
                    newest = replace(newest, end_ns=heard_ns, cause=NOBODY_LEFT)
        facts = RunFact(self.name, self.requested_ns, ended_ns, self.chips), newest
        if facts != self._told:
            self._told = facts
            self.ledger.add([fact for fact in facts if fact is not None])
        if ended_ns is None:
            return max(now_ns, heard_ns) if is_latest else now_ns
        return ended_ns if is_latest else min(now_ns, ended_ns)

    def _since(self, start_ns: int, end_ns: int) -> Account:
        return self.ledger.account(end_ns, end_ns - start_ns)

    def opening(self) -> tuple[int, int] | None:
        """What of the newest attempt's first step seems to be starting, while it is not told.

        The ledger is told when ten steps are known to compare with.
        """
        return None

    def _take_opening(
        self,
        time: dict[str, int],
        start_ns: int,
        end_ns: int,
        without: Iterable[tuple[int, int]],
    ) -> None:
        """What is left of the opening in `time`, from which stretches were taken out."""
        found = self.opening()
        if found is not None:
            since, until = max(found[0], start_ns), min(found[1], end_ns)
            out_ns = sum(max(0, min(until, b) - max(since, a)) for a, b in without)
            length_ns = max(0, until - since - out_ns)
            amount = min(length_ns * self.chips, time.get(STEP, 0))
            time[STEP] -= amount
            time[kinds.FIRST_STEP] = time.get(kinds.FIRST_STEP, 0) + amount

    def _taken_out(
        self,
        time: dict[str, int],
        start_ns: int,
        end_ns: int,
        without: Iterable[tuple[int, int]],
    ) -> int:
        """Take stretches out of `time` (chip-ns by kind); gives how much that was."""
        excluded = 0
        for since_ns, until_ns in without:
            a, b = max(since_ns, start_ns), min(until_ns, end_ns)
            if a >= b:
                continue
            inside = dict(self._since(a, end_ns).kinds)
            after = dict(self._since(b, end_ns).kinds) if b < end_ns else {}
            for kind, amount in inside.items():
                amount -= after.get(kind, 0)
                if kinds.is_accounted(kind) and amount > 0:
                    time[kind] -= amount
                    excluded += amount
        return excluded
