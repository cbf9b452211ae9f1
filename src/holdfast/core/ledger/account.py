"""The ledger's result: where every chip-nanosecond went, and what each disruption cost.

Inside, everything is an integer: wall nanoseconds, or chip-nanoseconds (wall nanoseconds × chips).
Only `to_json` divides. Where a run's chips change, what is said in seconds is that share of all its
chip-time of the wall time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from itertools import zip_longest
from typing import Any

from holdfast.core.durations import SECOND_NS
from holdfast.core.ledger.kinds import STEP, STOPPED, Level, level_of
from holdfast.core.value import value


@value
class Disruption:
    """One attempt that ended before the run was done.

    `lost_steps` and `lost_ns` (wall, the steps' own time) are the completed steps that it threw
    away for good. `downtime_ns` runs from the last completed activity of the attempt (its start, if
    there was none) to `resumed_ns`, the end of the first step that a later attempt completed, less
    that step's own time; both are None while no later attempt has completed one. `waterfall_ns`
    is the wall time of that stretch by kind, that step included; without one it runs to the end of
    the time line. `chips`: how many the run had at its end.
    """

    attempt: int
    cause: str
    lost_steps: int
    lost_ns: int
    downtime_ns: int | None
    at_ns: int
    resumed_ns: int | None
    waterfall_ns: Mapping[str, int]
    chips: int

    @property
    def stopped_ns(self) -> int:
        """Downtime in which a person kept the run stopped."""
        return self.waterfall_ns.get(STOPPED, 0)

    @property
    def down_ns(self) -> int:
        """Downtime so far."""
        if self.downtime_ns is None:  # not over: its waterfall runs to the end of the time line
            return sum(self.waterfall_ns.values())
        return self.downtime_ns

    @property
    def price_chip_ns(self) -> int:
        """What it cost: (lost steps' own time + downtime so far) × chips."""
        return (self.lost_ns + self.down_ns) * self.chips

    def up_to(self, after: Disruption | None) -> Disruption:
        """As a summand: its downtime ends where that of the next one begins, if both end together.

        Those of attempts that completed no step do: they last up to the same first step.
        """
        if after is None or after.resumed_ns != self.resumed_ns:
            return self
        shared = after.waterfall_ns
        waterfall = {k: ns - shared.get(k, 0) for k, ns in self.waterfall_ns.items()}
        return replace(
            self,
            downtime_ns=max(0, self.down_ns - after.down_ns),
            waterfall_ns={kind: ns for kind, ns in waterfall.items() if ns > 0},
        )

    def without_stopped(self) -> Disruption:
        """The same, as if that time had not gone by."""
        waterfall = {kind: ns for kind, ns in self.waterfall_ns.items() if kind != STOPPED}
        down_ns = None if self.downtime_ns is None else self.downtime_ns - self.stopped_ns
        return replace(self, downtime_ns=down_ns, waterfall_ns=waterfall)

    def to_json(self) -> dict[str, Any]:
        """The disruption as a history's result writes it, in seconds."""
        return {
            "attempt": self.attempt,
            "cause": self.cause,
            "lost_steps": self.lost_steps,
            "lost_s": self.lost_ns / SECOND_NS,
            "downtime_s": _seconds(self.downtime_ns),
            "at_s": self.at_ns / SECOND_NS,
            "resumed_s": _seconds(self.resumed_ns),
            "waterfall_s": {kind: ns / SECOND_NS for kind, ns in sorted(self.waterfall_ns.items())},
        }


@value
class Account:
    """Where the time between `start_ns` and `end_ns` of a run on `chips` chips, at its end, went.

    `kinds` maps each kind (lower case; `step` is always there) to chip-nanoseconds. Their sum is
    `paid`, the chip-nanoseconds of all chips that the run had, exactly: `elapsed_ns × chips` where
    it had as many all the time. A ValueError says that a ledger broke that law.

    `kept_of`: how many of the kept steps each attempt did, of those that did any. `kept_ns`: their
    own wall time, of all of them.

    `first_start_ns`: the wall time by kind from the beginning of the first attempt to the end of
    the first step that any completed, or up to now; empty where the account begins later.
    """

    name: str
    start_ns: int
    end_ns: int
    chips: int
    kinds: Mapping[str, int]
    steps_kept: int
    lost_steps: int
    disruptions: tuple[Disruption, ...]
    paid: int
    first_start_ns: Mapping[str, int] = field(default_factory=dict)
    left_out: int = 0  # chip-nanoseconds that do not count: see `without_stopped`
    kept_of: Mapping[int, int] = field(default_factory=dict)
    kept_ns: int = 0

    def __post_init__(self) -> None:
        total = sum(self.kinds.values())
        if total != self.elapsed or min(self.kinds.values(), default=0) < 0:
            raise ValueError(
                f"the kinds sum up to {total} chip-ns, but {self.elapsed} have gone by "
                f"({dict(self.kinds)}): this is a bug in Holdfast's ledger"
            )

    @property
    def elapsed_ns(self) -> int:
        """Wall time of the account."""
        return self.end_ns - self.start_ns

    @property
    def elapsed(self) -> int:
        """All chip-nanoseconds of the account: the denominator of `goodput`."""
        return self.paid - self.left_out

    def wall_ns(self, chip_ns: int) -> int:
        """So much chip-time as wall time."""
        return chip_ns * self.elapsed_ns // self.paid if self.paid else 0

    def in_seconds(self, chip_ns: int) -> float:
        """The same in seconds, not rounded to nanoseconds."""
        return chip_ns * self.elapsed_ns / (self.paid * SECOND_NS) if self.paid else 0.0

    def kept_chip_ns(self, wall_ns: int) -> int:
        """So much wall time of kept steps as time of the chips that did them."""
        return wall_ns * self.productive // self.kept_ns if self.kept_ns else wall_ns * self.chips

    def without_stopped(self) -> Account:
        """The same, as if the time in which a person kept the run stopped had not gone by."""
        kinds = {kind: ns for kind, ns in self.kinds.items() if kind != STOPPED}
        left_out = self.left_out + self.kinds.get(STOPPED, 0)
        disruptions = tuple(one.without_stopped() for one in self.disruptions)
        first = {kind: ns for kind, ns in self.first_start_ns.items() if kind != STOPPED}
        return replace(
            self,
            kinds=kinds,
            left_out=left_out,
            disruptions=disruptions,
            first_start_ns=first,
        )

    def summands(self) -> Iterator[Disruption]:
        """The disruptions as they add up, no moment of downtime in two of them."""
        for one, after in zip_longest(self.disruptions, self.disruptions[1:]):
            yield one.up_to(after)

    @property
    def has_shared_downtime(self) -> bool:
        """Whether disruptions end with the same step: what they tell of themselves overlaps."""
        pairs = zip(self.disruptions, self.summands(), strict=True)
        return any(one is not summand for one, summand in pairs)

    @property
    def productive(self) -> int:
        """Chip-nanoseconds of kept steps."""
        return self.kinds.get(STEP, 0)

    @property
    def available(self) -> int:
        """Chip-nanoseconds in which the resources were there: elapsed − queued − reschedule."""
        scheduling = (ns for kind, ns in self.kinds.items() if level_of(kind) is Level.SCHEDULING)
        return self.elapsed - sum(scheduling)

    @property
    def goodput(self) -> float | None:
        """Productive / elapsed; None when no time has gone by."""
        return _ratio(self.productive, self.elapsed)

    @property
    def scheduling_goodput(self) -> float | None:
        """Available / elapsed; None when no time has gone by."""
        return _ratio(self.available, self.elapsed)

    @property
    def runtime_goodput(self) -> float | None:
        """Productive / available; None when the resources were never there."""
        return _ratio(self.productive, self.available)

    def seconds(self, kind: str) -> float:
        """A kind's share of the elapsed seconds."""
        return self.in_seconds(self.kinds.get(kind, 0))

    def to_json(self) -> dict[str, Any]:
        """The result of docs/reference/history.md: plain types, seconds as floats."""
        return {
            "name": self.name,
            "chips": self.chips,
            "start_s": self.start_ns / SECOND_NS,
            "end_s": self.end_ns / SECOND_NS,
            "elapsed_s": self.in_seconds(self.elapsed),
            "productive_s": self.seconds(STEP),
            "goodput": self.goodput,
            "scheduling_goodput": self.scheduling_goodput,
            "runtime_goodput": self.runtime_goodput,
            "program_goodput": None,
            "badput_s": {
                kind: self.seconds(kind)
                for kind in sorted(self.kinds)
                if kind != STEP and self.kinds[kind]
            },
            "steps_kept": self.steps_kept,
            "lost_steps": self.lost_steps,
            "disruptions": [disruption.to_json() for disruption in self.disruptions],
        }


def _ratio(numerator: int, denominator: int) -> float | None:
    return numerator / denominator if denominator else None


def _seconds(ns: int | None) -> float | None:
    return None if ns is None else ns / SECOND_NS
