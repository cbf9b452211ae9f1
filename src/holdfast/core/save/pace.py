"""What is measured of a run, for its saves: how fast it steps, beside flushes too, and fails."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.core.save.agree import lead_steps

# Measured over stretches of at least this long, and the fastest of the last few counts: a mean
# would hold evaluations and stalls, and an order given by it would come too late.
STRETCH_NS = 250_000_000
STRETCHES = 8
ENOUGH_STEPS = 50  # of each kind, to tell steps beside a flush from others
PPM = 1_000_000
RECENT = 3  # of the last so many failures the distances count: two could be chance
COSTS = 9  # of the last so many of a kind the median counts: a single one may have been disturbed


def median(values: Iterable[int]) -> int:
    """The lower median; 0 of nothing."""
    ordered = sorted(values)
    return ordered[(len(ordered) - 1) // 2] if ordered else 0


def latest(values: tuple[int, ...], value: int, count: int = COSTS) -> tuple[int, ...]:
    """The last few values, that one included."""
    return (*values, value)[-count:]


@dataclass(slots=True)
class SavePace:
    """The pace of one run; a new attempt measures anew, but what flushes cost is kept."""

    step_time_ns: int = 0
    _quiet: tuple[int, int] = (0, 0)  # nanoseconds and steps without a flush
    _busy: tuple[int, int] = (0, 0)  # and with one
    _first: tuple[int, int] | None = None
    _stretch: tuple[int, int] | None = None  # where the one under way began
    _paces_ns: tuple[int, ...] = ()
    _last: tuple[int, int] | None = None
    _was_flushing: bool = False

    def begin(self) -> None:
        """A new attempt starts; the mean of the last one stands until there is another."""
        self._first = self._stretch = self._last = None
        self._paces_ns = ()
        self._was_flushing = False

    def note(
        self, at_ns: int, slowest: int, fastest: int, resumed: int, *, is_flushing: bool
    ) -> None:
        """Mean time of a step since the second boundary: the first one holds the compilation.

        `is_flushing`: whether a flush runs now; steps are beside it if one ran before them too.
        """
        was_flushing, self._was_flushing = self._was_flushing, is_flushing
        if slowest <= resumed:
            return
        if self._first is None or self._stretch is None or self._last is None:
            self._first = self._last = (at_ns, slowest)
            self._stretch = (at_ns, fastest)
            return
        since_ns, since_step = self._first
        if slowest > since_step:
            self.step_time_ns = (at_ns - since_ns) // (slowest - since_step)
        since_ns, since_step = self._stretch
        if at_ns - since_ns >= STRETCH_NS and fastest > since_step:
            pace_ns = (at_ns - since_ns) // (fastest - since_step)
            self._paces_ns = latest(self._paces_ns, pace_ns, STRETCHES)
            self._stretch = (at_ns, fastest)
        since_ns, since_step = self._last
        if slowest > since_step:
            self._last = (at_ns, slowest)
            if is_flushing is was_flushing:
                self._count(at_ns - since_ns, slowest - since_step, is_flushing=is_flushing)

    def _count(self, ns: int, steps: int, *, is_flushing: bool) -> None:
        if is_flushing:
            self._busy = (self._busy[0] + ns, self._busy[1] + steps)
        else:
            self._quiet = (self._quiet[0] + ns, self._quiet[1] + steps)

    @property
    def first_ns(self) -> int | None:
        """When all ranks had done the first step of the attempt; None: they have not yet."""
        return None if self._first is None else self._first[0]

    @property
    def slowdown_ppm(self) -> int | None:
        """By how much longer a step takes beside a flush, in millionths of it; None: not known."""
        (quiet_ns, quiet), (busy_ns, busy) = self._quiet, self._busy
        if min(quiet, busy) < ENOUGH_STEPS or busy_ns <= 0:
            return None
        alone_ns = quiet_ns * busy // quiet  # what as many steps take without it
        return min(max(0, (busy_ns - alone_ns) * PPM // busy_ns), PPM)

    def steps_in(self, reaction_ns: int) -> int:
        """How many boundaries ahead to order for it to get there first, at the fastest pace."""
        step_ns = self.step_time_ns
        if not step_ns:
            return 1
        if self._paces_ns:
            step_ns = min(step_ns, *self._paces_ns)
        return lead_steps(step_ns, reaction_ns)


@dataclass(slots=True)
class FailureRate:
    """How many failures there were in how much time of running, and when the last few were.

    `losses`: those of the failures that took the memory along. `observed_ns`: in attempts that are
    over.
    """

    seen: int = 0
    losses: int = 0
    observed_ns: int = 0
    _began_ns: int = 0  # the newest attempt
    _last_ns: tuple[int, ...] = ()  # of observed time: the last few failures

    def begin(self, at_ns: int) -> None:
        """A new attempt starts."""
        self._began_ns = at_ns

    def end(self, at_ns: int) -> None:
        """The attempt is over: its time counts."""
        self.observed_ns += max(0, at_ns - self._began_ns)
        self._began_ns = at_ns

    def known(self, seen: int, losses: int) -> None:
        """So many are known by now; the last of them has just been, if it is news."""
        if seen > self.seen:
            self._last_ns = latest(self._last_ns, self.observed_ns, RECENT)
        self.seen, self.losses = seen, losses

    def observed_at_ns(self, at_ns: int) -> int:
        """The time of running until then."""
        return self.observed_ns + (at_ns - self._began_ns)

    def calm_ns(self, at_ns: int) -> int:
        """The time of running since the last one, or since the run began."""
        return self.observed_at_ns(at_ns) - (self._last_ns[-1] if self._last_ns else 0)

    def recent_ns(self, at_ns: int) -> int:
        """The time of running for each of the last few; 0: there were too few."""
        if len(self._last_ns) < RECENT:
            return 0
        return max(1, (self.observed_at_ns(at_ns) - self._last_ns[0]) // (RECENT - 1))
