"""The numbers of a run by name: one table, for Prometheus and for the reference page.

Labels are few by construction: states, windows, tiers and causes are fixed sets, kinds of badput at
most the ledger's own and the sixteen greatest that a script named, slices 256 at most. A series is
there while its value is known; what is not known is left out, never 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from holdfast.core.durations import SECOND_NS
from holdfast.core.exits import HISTORY_CAUSE, LOSS_CAUSES
from holdfast.core.hosts.membership import MemberState
from holdfast.core.ledger.facts import DONE
from holdfast.core.ledger.summary import ALL, ROLLING_S, RunSummary, Spent, fleet
from holdfast.export.sample import LONGEST_LABEL, Sample
from holdfast.runs.state import STATES

PREFIX = "holdfast_"
WINDOWS = (ALL, *ROLLING_S)
CAUSES = tuple(sorted({*HISTORY_CAUSE.values(), *LOSS_CAUSES} - {DONE}))
HOST_STATES = tuple(map(str, MemberState))
OTHER = "other"
GAUGE, COUNTER = "gauge", "counter"
SLICES_SHOWN = 256

Rows = Iterable[tuple[tuple[str, ...], float | None]]  # label values, and the value


class Metric(NamedTuple):
    """`labels` are beside `run`; `rows` gives what is known of a sample."""

    name: str
    kind: str
    labels: tuple[str, ...]
    words: str
    rows: Callable[[Sample], Rows]


def _one(value: float | None) -> Rows:
    yield (), value


def _by_window(get: Callable[[Spent], float | None]) -> Callable[[Sample], Rows]:
    def rows(sample: Sample) -> Rows:
        for window in WINDOWS:
            if window in sample.run.within:
                yield (window,), get(sample.run.spent(window))

    return rows


def _seconds(get: Callable[[Spent], int]) -> Callable[[Sample], Rows]:
    def rows(sample: Sample) -> Rows:
        for window in WINDOWS:
            if window in sample.run.within and sample.run.chips:
                yield (window,), sample.run.seconds(get(sample.run.spent(window)), window)

    return rows


def _badput(sample: Sample) -> Rows:
    for window in WINDOWS:
        for kind, seconds in sample.badput_s(window).items():
            yield (kind, window), seconds


def _incidents(sample: Sample) -> Rows:
    counts = dict.fromkeys((*CAUSES, OTHER), 0)
    for cause, count, _ in sample.run.spent().causes():
        counts[cause if cause in counts else OTHER] += count
    for cause, count in counts.items():
        yield (cause,), count


def _incident_cost(sample: Sample) -> Rows:
    costs = dict.fromkeys((*CAUSES, OTHER), 0)
    for cause, _, chip_ns in sample.run.spent().causes():
        costs[cause if cause in costs else OTHER] += chip_ns
    for cause, chip_ns in costs.items():
        if chip_ns:
            yield (cause,), chip_ns / SECOND_NS


def _step_seconds(sample: Sample) -> Rows:
    for window in WINDOWS:
        yield (window,), sample.run.step_s(window)


def _states(sample: Sample) -> Rows:
    for state in STATES:
        yield (state,), float(sample.run.state == state)


def _tier(get: Callable[[Sample, str], float | None]) -> Callable[[Sample], Rows]:
    def rows(sample: Sample) -> Rows:
        for tier in {**sample.tiers, **sample.save_s}:
            yield (tier,), get(sample, tier)

    return rows


def _age(sample: Sample, tier: str) -> float | None:
    return sample.tiers[tier].age_s if tier in sample.tiers and sample.is_running else None


def _tier_step(sample: Sample, tier: str) -> float | None:
    return sample.tiers[tier].step if tier in sample.tiers else None


def _interval(sample: Sample, tier: str) -> float | None:
    return sample.tiers[tier].interval_s if tier in sample.tiers else None


def _hosts(sample: Sample) -> Rows:
    if sample.hosts:
        for state in HOST_STATES:
            yield (state,), sample.hosts.get(state, 0)


def _slice_chips(sample: Sample) -> Rows:
    for name, chips in list(sample.slice_chips.items())[:SLICES_SHOWN]:
        yield (name[:LONGEST_LABEL],), chips


def _metrics(sample: Sample) -> Rows:
    for name, value in sample.run.metrics.items():
        yield (name,), value


W, T = ("window",), ("tier",)
METRICS: tuple[Metric, ...] = (
    Metric("run_state", GAUGE, ("state",), "1 for the state that the run is in", _states),
    Metric("chips", GAUGE, (), "Accelerators that the run occupies", lambda s: _one(s.run.chips)),
    Metric("goodput_ratio", GAUGE, W, "Kept steps' time / all time",
           _by_window(lambda p: p.goodput)),
    Metric("scheduling_goodput_ratio", GAUGE, W, "Time in which the resources were there / all",
           _by_window(lambda p: p.scheduling)),
    Metric("runtime_goodput_ratio", GAUGE, W, "Kept steps' time / time with resources",
           _by_window(lambda p: p.runtime)),
    Metric("program_goodput_ratio", GAUGE, W, "Ideal / real time of kept steps, where known",
           _by_window(lambda p: p.program)),
    Metric("program_goodput_of_reached_ratio", GAUGE, W,
           "The same by the peak that holdfast calibrate measured, where it did",
           _by_window(lambda p: p.program_of_reached)),
    Metric("peak_flops", GAUGE, (), "The peak of one chip, FLOP/s, that program goodput goes by",
           lambda s: _one(s.run.peak_flops or None)),
    Metric("reached_flops", GAUGE, (), "FLOP/s that holdfast calibrate measured of one chip",
           lambda s: _one(s.run.reached_flops or None)),
    Metric("elapsed_seconds", GAUGE, W, "Length of the time line", _seconds(lambda p: p.elapsed)),
    Metric("available_seconds", GAUGE, W, "Time with resources", _seconds(lambda p: p.available)),
    Metric("productive_seconds", GAUGE, W, "Kept steps' time", _seconds(lambda p: p.productive)),
    Metric("badput_seconds", GAUGE, ("kind", "window"), "All other time by kind", _badput),
    Metric("incidents", COUNTER, ("cause",), "Attempts that ended before the run was done",
           _incidents),
    Metric("incident_chip_seconds", GAUGE, ("cause",), "What they cost: lost steps and downtime",
           _incident_cost),
    Metric("attempts", COUNTER, (), "Attempts that were launched", lambda s: _one(s.run.attempts)),
    Metric("attempt", GAUGE, (), "Number of the newest attempt, from 0", lambda s: _one(s.attempt)),
    Metric("crash_loop_failures", GAUGE, (),
           "Failures of the script in the same way that are a crash loop; 0: there is none",
           lambda s: _one(s.alike)),
    Metric("step", GAUGE, (), "Step that all ranks of the newest attempt have come to",
           lambda s: _one(s.run.step)),
    Metric("steps_kept", GAUGE, (), "Steps that were kept",
           lambda s: _one(s.run.spent().steps_kept)),
    Metric("steps_lost", GAUGE, (), "Steps that were done and lost",
           lambda s: _one(s.run.spent().lost_steps)),
    Metric("metric", GAUGE, ("name",), "The script's own numbers (run.done's metrics): the newest",
           _metrics),
    Metric("step_seconds", GAUGE, W, "Mean time of a kept step", _step_seconds),
    Metric("since_step_seconds", GAUGE, (), "Since all ranks last came to a step, while it runs",
           lambda s: _one(s.since_step_s)),
    Metric("hang_suspected", GAUGE, (), "1: stacks were collected, or it is half-way to a hang",
           lambda s: _one(float(s.hang_suspected))),
    Metric("checkpoint_age_seconds", GAUGE, T, "Age of the newest set, while it runs", _tier(_age)),
    Metric("checkpoint_interval_seconds", GAUGE, T, "Median time between the last few sets",
           _tier(_interval)),
    Metric("checkpoint_step", GAUGE, T, "Step of the newest set", _tier(_tier_step)),
    Metric("save_seconds", GAUGE, T, "Mean time of a save; to memory, training stands still for it",
           _tier(lambda s, tier: s.save_s.get(tier))),
    Metric("progress_at_risk_seconds", GAUGE, (), "Steps since the newest set of any tier, as time",
           lambda s: _one(s.at_risk_s)),
    Metric("progress_at_risk_steps", GAUGE, (), "The same in steps",
           lambda s: _one(s.at_risk_steps)),
    Metric("notices", GAUGE, (), "Events that are announced", lambda s: _one(s.announced)),
    Metric("notice_remaining_seconds", GAUGE, (), "Until the earliest announced deadline",
           lambda s: _one(s.notice_s)),
    Metric("supervisor_silent_seconds", GAUGE, (), "Since the supervisor last showed life",
           lambda s: _one(s.since_seen_s)),
    Metric("seen_timestamp_seconds", GAUGE, (), "When the run last showed life, unix time",
           lambda s: _one(None if s.run.seen_unix_ns is None else s.run.seen_unix_ns / SECOND_NS)),
    Metric("hosts", GAUGE, ("host_state",), "Hosts of a run of several, while it runs", _hosts),
    Metric("slice_chips", GAUGE, ("slice",),
           "Accelerators of the hosts of a slice that train, as they say", _slice_chips),
    Metric("host_clock_apart_seconds", GAUGE, (),
           "Greatest difference of a host's wall clock from the controller's host's",
           lambda s: _one(s.clock_apart_s)),
    Metric("host_clock_bound_seconds", GAUGE, (),
           "How exactly a host's clock is known, of all the least exact: within so much",
           lambda s: _one(s.clock_bound_s)),
    Metric("journal_dropped_records", GAUGE, (), "Records not written for lack of space",
           lambda s: _one(s.records_dropped)),
)  # fmt: skip


class FleetMetric(NamedTuple):
    """Of all runs together, by window."""

    name: str
    words: str
    get: Callable[[Spent], float | None]

    @property
    def full_name(self) -> str:
        """As it is scraped."""
        return PREFIX + self.name


FLEET: tuple[FleetMetric, ...] = (
    FleetMetric("fleet_goodput_ratio", "Of all runs, weighed by chips", lambda p: p.goodput),
    FleetMetric("fleet_scheduling_goodput_ratio", "The same", lambda p: p.scheduling),
    FleetMetric("fleet_runtime_goodput_ratio", "The same", lambda p: p.runtime),
    FleetMetric("fleet_program_goodput_ratio", "Of runs whose ideal step is known",
                lambda p: p.program),
    FleetMetric("fleet_program_goodput_of_reached_ratio",
                "The same by the peaks that holdfast calibrate measured, where it did",
                lambda p: p.program_of_reached),
    FleetMetric("fleet_chip_seconds", "Chip-seconds of all runs", lambda p: p.elapsed / SECOND_NS),
)  # fmt: skip
OWN: tuple[tuple[str, str, tuple[str, ...], str], ...] = (
    ("export_sent", COUNTER, ("exporter",), "Samples delivered, or followed by one that was"),
    ("export_dropped", COUNTER, ("exporter",), "Samples left out: its queue was full"),
    ("export_failures", COUNTER, ("exporter",), "Deliveries that failed and were tried again"),
    ("export_waiting", GAUGE, ("exporter",), "Samples in its queue"),
    ("export_looks", COUNTER, (), "Looks at the runs"),
    ("export_look_seconds", GAUGE, (), "How long the last look took"),
    ("export_look_timestamp_seconds", GAUGE, (), "When the last look began, unix time"),
    ("export_problems", GAUGE, (), "Sentences on runs that cannot be read"),
)


def fleet_rows(metric: FleetMetric, runs: tuple[RunSummary, ...]) -> Iterator[tuple[str, float]]:
    """(window, value), where there is one."""
    for window in WINDOWS:
        value = metric.get(fleet(runs, window))
        if value is not None:
            yield window, value
