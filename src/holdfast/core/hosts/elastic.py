"""Whether a run goes on without the slices that have lost a host, and when it takes them in again.

Of several hosts without slices each is one (`View.unit`).

    decision, reason = before_launch(view)   # nothing runs: with which slices to begin, and when
    decision, reason = while_training(view)  # on fewer slices than there are: whether to restart

A slice trains whole or not at all. What a way costs is counted in slice-nanoseconds: of each slice
that is whole and does not train, for as long as it does not. Slices that come back later are taken
in by restarts at the best of the moments at which one is expected, or never: then they idle until
something ends an attempt anyway. The least costly way is taken, of equals the one that acts sooner.
Both questions are asked again whenever a host goes or comes.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.durations import in_words

LOOKS_AHEAD = 16  # so many of the slices that are waited for are looked at: the soonest


@dataclass(frozen=True, slots=True)
class View:
    """What is known of the slices when the question is asked. Times in nanoseconds.

    `wanted`: slices that the run is to have; `least`: those that it can train on; `there`: those
    that are whole. `waits_ns`: how long each of the others is expected to take, where that is
    known. `training`: so many the running attempt trains on; 0: none runs. `restart_ns`: from the
    end of an attempt to the first step of the next. `save_ns`: an agreed save, until it is durable.
    `between_ns`: so long it takes on average until something ends an attempt anyway. `redo_ns`: to
    train again what only an attempt on all slices need not, since it is in their memory. `unit`:
    what one is called.
    """

    wanted: int
    least: int
    there: int
    waits_ns: tuple[int, ...] = ()
    training: int = 0
    restart_ns: int = 0
    save_ns: int = 0
    between_ns: int = 0
    redo_ns: int = 0
    unit: str = "slice"

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.wanted:
            raise ValueError(
                f"at least {self.least} of {self.wanted} {self.unit}s: 1 to {self.wanted}"
            )
        if not 0 <= self.training <= self.there <= self.wanted:
            raise ValueError(
                f"the run trains on {self.training} {self.unit}s, {self.there} are there and "
                f"{self.wanted} are wanted: each is one of the next"
            )
        if len(self.waits_ns) > self.wanted - self.there:
            raise ValueError(
                f"{len(self.waits_ns)} {self.unit}s are waited for, but only "
                f"{self.wanted - self.there} are missing"
            )
        times = (self.restart_ns, self.save_ns, self.between_ns, self.redo_ns)
        for value in (*self.waits_ns, *times):
            if value < 0:
                raise ValueError(f"{value} ns is not a time")


@dataclass(frozen=True, slots=True)
class LaunchNow:
    """Launch now, on all slices that are whole."""


@dataclass(frozen=True, slots=True)
class WaitForSlices:
    """Launch nothing yet; the slice that is waited for is expected after so long, None: unknown."""

    for_ns: int | None


@dataclass(frozen=True, slots=True)
class TakeIn:
    """Have the run saved and stopped, and launch it on all slices that are whole."""


@dataclass(frozen=True, slots=True)
class Stay:
    """Train on; the next restart, whatever brings it, takes in what is there then."""


def before_launch(view: View) -> tuple[LaunchNow | WaitForSlices, str]:
    """Start on what is whole, or wait for the next ones; the decision and its reason."""
    if view.there == view.wanted:
        return LaunchNow(), f"all {view.wanted} {view.unit}s are there"
    waits_ns = _soonest(view, max(LOOKS_AHEAD, view.least - view.there))
    # To begin on `there + n` slices, when the n-th of the missing ones has come.
    ways = [n for n in range(len(waits_ns) + 1) if view.there + n >= view.least]
    if not ways:
        words = f"{view.there} {view.unit}s are there, and {view.least} are needed"
        return WaitForSlices(None), words
    best, least = ways[0], _start_cost(view, waits_ns, ways[0])
    for n in ways[1:]:
        if view.there * (view.restart_ns + waits_ns[n - 1]) >= least:
            break  # those that are there idle until then, and longer for all that follow
        cost = _start_cost(view, waits_ns, n)
        if cost < least:
            best, least = n, cost
    if best == 0:
        more = (
            f"the next is expected in {in_words(waits_ns[0])}"
            if waits_ns
            else "no more are expected"
        )
        return LaunchNow(), f"on {view.there} of {view.wanted} {view.unit}s: {more}"
    wait_ns = waits_ns[best - 1]
    is_short = view.there < view.least
    why = f"{view.least} are needed" if is_short else f"a restart takes {in_words(view.restart_ns)}"
    count = f"{view.there} of {view.wanted} {view.unit}s are there, {view.there + best}"
    return WaitForSlices(wait_ns), f"{count} in {in_words(wait_ns)}: {why}"


def while_training(view: View) -> tuple[TakeIn | Stay, str]:
    """Whether to restart for the slices that are back; the decision and its reason."""
    back = view.there - view.training
    if not back:
        return Stay(), f"no {view.unit} is back"
    _, first_ns = _later(view, [0] * back + _soonest(view, LOOKS_AHEAD), view.training)
    which = f"a {view.unit} is back" if back == 1 else f"{back} {view.unit}s are back"
    again = f"a restart with its save takes {in_words(view.restart_ns + view.save_ns)}"
    if first_ns is None:
        return Stay(), f"{which}; {again}, and one comes anyway in {in_words(view.between_ns)}"
    if first_ns:
        return Stay(), f"{which}, and more are expected in {in_words(first_ns)}; {again}"
    return TakeIn(), f"{which}, and the run trains on {view.training}; {again}"


def _soonest(view: View, count: int) -> list[int]:
    return sorted(view.waits_ns)[:count]


def _start_cost(view: View, waits_ns: list[int], n: int) -> int:
    """The cost of beginning when the n-th missing slice is there; the others are taken in later."""
    begins_ns = view.restart_ns + (waits_ns[n - 1] if n else 0)
    idle_ns = view.there * begins_ns + sum(max(0, begins_ns - wait_ns) for wait_ns in waits_ns)
    if view.there + n < view.wanted:
        idle_ns += (view.there + n) * view.redo_ns
    cost, _ = _later(view, [max(begins_ns, wait_ns) for wait_ns in waits_ns[n:]], view.there + n)
    return idle_ns + cost


def _later(view: View, comes_ns: list[int], trains: int) -> tuple[int, int | None]:
    """Of taking in slices that come then (ascending) while so many train, and the first restart.

    None: it is never worth one. From the last slice back: what those from the i-th on cost.
    """
    again_ns, count = view.restart_ns + view.save_ns, len(comes_ns)
    costs: list[tuple[int, int | None]] = [(0, None)] * (count + 1)
    for i in reversed(range(count)):
        if i and comes_ns[i] == comes_ns[i - 1]:
            continue  # who comes at once is taken in at once
        best: tuple[int, int | None] = (count - i) * view.between_ns, None
        idle_ns = 0
        for j in range(i, count):  # a restart when the j-th is there
            idle_ns += (j - i) * (comes_ns[j] - comes_ns[max(i, j - 1)])
            if idle_ns > best[0]:
                break
            if j + 1 < count and comes_ns[j + 1] == comes_ns[j]:
                continue
            cost = idle_ns + (trains + j + 1) * again_ns + costs[j + 1][0]
            if cost < best[0] or (cost == best[0] and best[1] is None):
                best = cost, comes_ns[j]
        costs[i] = best
    return costs[0]
