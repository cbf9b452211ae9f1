"""Whether a run goes on without the slices that have lost a host, and when it takes them in again.

    decision, reason = before_launch(view)   # nothing runs: with which slices to begin, and when
    decision, reason = while_training(view)  # on fewer slices than there are: whether to restart

A slice trains whole or not at all. What a way on costs is counted in slice-nanoseconds that do not
train, up to the moment at which all slices are there that are expected: each slice that could train
and does not, for as long as it does not. The least costly way is taken, of equals the one that
trains sooner. Waits are expectations, and what comes after the next restart is not looked at: both
are asked again whenever a host goes or comes.
"""

from __future__ import annotations

from dataclasses import dataclass

SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class View:
    """What is known of the slices when the question is asked. Times in nanoseconds.

    `wanted`: slices that the run is to have; `least`: those that it can train on; `there`: those
    that are whole. `waits_ns`: how long each of the others is expected to take, where that is
    known. `training`: so many the running attempt trains on; 0: none runs. `restart_ns`: from the
    end of an attempt to the first step of the next. `save_ns`: an agreed save, until it is durable.
    `between_ns`: so long it takes on average until something ends an attempt anyway.
    """

    wanted: int
    least: int
    there: int
    waits_ns: tuple[int, ...] = ()
    training: int = 0
    restart_ns: int = 0
    save_ns: int = 0
    between_ns: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.wanted:
            raise ValueError(f"at least {self.least} of {self.wanted} slices: 1 to {self.wanted}")
        if not 0 <= self.training <= self.there <= self.wanted:
            raise ValueError(
                f"the run trains on {self.training} slices, {self.there} are there and "
                f"{self.wanted} are wanted: each is one of the next"
            )
        if len(self.waits_ns) > self.wanted - self.there:
            raise ValueError(
                f"{len(self.waits_ns)} slices are waited for, but only "
                f"{self.wanted - self.there} are missing"
            )
        for value in (*self.waits_ns, self.restart_ns, self.save_ns, self.between_ns):
            if value < 0:
                raise ValueError(f"{value} ns is no time")


@dataclass(frozen=True, slots=True)
class Start:
    """Launch now, on all slices that are whole."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Launch nothing yet; the slice that is waited for is expected after so long, None: unknown."""

    for_ns: int | None


@dataclass(frozen=True, slots=True)
class TakeIn:
    """Have the run saved and stopped, and launch it on all slices that are whole."""


@dataclass(frozen=True, slots=True)
class Stay:
    """Train on; the next restart, whatever brings it, takes in what is there then."""


def before_launch(view: View) -> tuple[Start | Wait, str]:
    """Start on what is whole, or wait for the next ones; the decision and its reason."""
    waits_ns = tuple(sorted(view.waits_ns))
    most = view.there + len(waits_ns)
    if view.there == view.wanted:
        return Start(), f"all {view.wanted} slices are there"
    # To begin on `there + n` slices, when the n-th of the missing ones has come.
    ways = [n for n in range(len(waits_ns) + 1) if view.there + n >= view.least]
    if not ways:
        return Wait(None), f"{view.there} slices are there, and {view.least} are needed"
    costs = [_start_cost(view, waits_ns, n) for n in ways]
    best = ways[costs.index(min(costs))]
    if best == 0:
        missing = "no more are expected" if most == view.there else (
            f"the next is expected in {_time(waits_ns[0])}"
        )  # fmt: skip
        return Start(), f"on {view.there} of {view.wanted} slices: {missing}"
    wait_ns = waits_ns[best - 1]
    why = f"a restart takes {_time(view.restart_ns)}"
    if view.there < view.least:
        why = f"{view.least} are needed"
    count = f"{view.there} of {view.wanted} slices are there"
    return Wait(wait_ns), f"{count}, {view.there + best} in {_time(wait_ns)}: {why}"


def while_training(view: View) -> tuple[TakeIn | Stay, str]:
    """Whether to restart for the slices that are back; the decision and its reason."""
    back = view.there - view.training
    if not back:
        return Stay(), "no slice is back"
    # With those that come before something ends the attempt anyway, and with them it may wait.
    waits_ns = tuple(sorted(wait for wait in view.waits_ns if wait < view.between_ns))
    costs = [_take_in_cost(view, waits_ns, n) for n in range(len(waits_ns) + 1)]
    least, never = min(costs), (back + len(waits_ns)) * view.between_ns - sum(waits_ns)
    which = "a slice is back" if back == 1 else f"{back} slices are back"
    again = f"a restart with its save takes {_time(view.restart_ns + view.save_ns)}"
    if never < least:
        return Stay(), f"{which}; {again}, and one comes anyway in {_time(view.between_ns)}"
    if least < costs[0]:
        wait_ns = waits_ns[costs.index(least) - 1]
        return Stay(), f"{which}, and more are expected in {_time(wait_ns)}; {again}"
    return TakeIn(), f"{which}, and the run trains on {view.training}; {again}"


def _start_cost(view: View, waits_ns: tuple[int, ...], n: int) -> int:
    """Of beginning when the n-th of the missing slices is there; the others are taken in later."""
    most, trains = view.there + len(waits_ns), view.there + n
    wait_ns = waits_ns[n - 1] if n else 0
    begins_ns = wait_ns + view.restart_ns
    short_ns = sum(max(0, one - begins_ns) for one in waits_ns[n:])
    return most * begins_ns + short_ns + _rest_cost(view, most, trains)


def _take_in_cost(view: View, waits_ns: tuple[int, ...], n: int) -> int:
    """Of restarting when n more slices have come; the others are taken in later."""
    most, trains = view.there + len(waits_ns), view.there + n
    wait_ns = waits_ns[n - 1] if n else 0
    idle_ns = (view.there - view.training) * wait_ns + sum(wait_ns - one for one in waits_ns[:n])
    return idle_ns + trains * (view.restart_ns + view.save_ns) + _rest_cost(view, most, trains)


def _rest_cost(view: View, most: int, trains: int) -> int:
    """Of taking in the rest when it is there: a restart of all, or idle slices until the next."""
    again_ns = view.restart_ns + view.save_ns
    return min(most * again_ns, (most - trains) * view.between_ns)


def _time(ns: int) -> str:
    """In whole seconds or minutes."""
    seconds = ns / SECOND_NS
    return f"{seconds:.0f} s" if seconds < 600 else f"{seconds / 60:.0f} min"
