"""The parameters of a plan, fitted from a recorded run, with what few observations leave open.

`fit` takes what was observed and gives a `Fit`: each parameter's value by its name in `plan_input`,
what it rests on in words, and draws of it. A plan whose parameters are drawn again and again says
how far its answer can be trusted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import log1p
from typing import TYPE_CHECKING, Any

from holdfast.sim.durations import in_words
from holdfast.sim.observed import Observed
from holdfast.sim.posterior import (
    DRAWS,
    SPREAD,
    interval_of,
    mean_draws,
    rate_draws,
    rate_interval,
    share_draws,
    spread_of,
)

if TYPE_CHECKING:
    from numpy.random import Generator

    from holdfast.sim.posterior import Array

SEED = 1
# Given, these leave no room for what was fitted.
INSTEAD_OF = {
    "failures-per-1000-node-days": ("mtbf",),
    "restart": ("restart-from-memory", "restart-spread", "restart-cold", "standby-ready"),
    "memory-copy": ("save-stall",),
}


@dataclass(frozen=True, slots=True)
class Fitted:
    """One parameter: its name, the value planned with, and what that rests on, in words.

    `low` and `high`: between them the true value lies in nine cases of ten; both None: that is not
    known, or not in question. `observed`: how many observations it rests on; 0: it is assumed.
    """

    name: str
    value: float
    low: float | None
    high: float | None
    observed: int
    words: str


@dataclass(slots=True)
class Fit:
    """All parameters that a run says something about.

    `missing`: by parameter, a sentence on what the run does not tell, and what is assumed instead.
    """

    parameters: dict[str, Fitted] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    _draws: dict[str, Array] = field(default_factory=dict)

    def values(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The fitted values under those that are given."""
        return self._under(given, {one.name: one.value for one in self.parameters.values()})

    def drawn(self, given: Mapping[str, Any], number: int) -> dict[str, Any]:
        """The same with the `number`-th draw of each that is uncertain."""
        values = {
            name: float(self._draws[name][number]) if name in self._draws else one.value
            for name, one in self.parameters.items()
        }
        return self._under(given, values)

    def used(self, given: Mapping[str, Any]) -> tuple[Fitted, ...]:
        """Those that nothing given replaces."""
        left = self.values(given)
        return tuple(
            one for name, one in self.parameters.items() if name in left and name not in given
        )

    def assumed(self, given: Mapping[str, Any]) -> tuple[str, ...]:
        """What the run does not tell and nobody gave."""
        gone = {other for name in given for other in (name, *INSTEAD_OF.get(name, ()))}
        return tuple(words for name, words in self.missing.items() if name not in gone)

    def _under(self, given: Mapping[str, Any], values: dict[str, Any]) -> dict[str, Any]:
        """With other hosts than the run had, each host fails as often as one of them did."""
        for name in given:
            for other in INSTEAD_OF.get(name, ()):
                values.pop(other, None)
        if "hosts" in given and "hosts" not in values:
            values["chips-per-host"] = max(1, values["chips-per-host"] // given["hosts"])
        elif "hosts" in given and "mtbf" in values:
            values["mtbf"] *= values["hosts"] / given["hosts"]
        return values | dict(given)

    def _add(
        self, name: str, value: float, words: str, observed: int, drawn: Array | None = None,
        interval: tuple[float, float] | None = None,
    ) -> None:  # fmt: skip
        low = high = None
        if drawn is not None:
            self._draws[name] = drawn
            low, high = interval or interval_of(drawn)
        self.parameters[name] = Fitted(name, value, low, high, observed, words)


def fit(seen: Observed) -> Fit:
    """What the run says of each parameter."""
    from numpy.random import default_rng

    found, rng = Fit(), default_rng(SEED)
    _machines(found, seen)
    _steps(found, seen)
    _failures(found, seen, rng)
    _saves(found, seen, rng)
    _restarts(found, seen, rng)
    _hosts(found, seen, rng)
    return found


def _machines(found: Fit, seen: Observed) -> None:
    words = f"{_count(seen.chips, 'chip')} in all"
    if seen.hosts:
        found._add("hosts", seen.hosts, _count(seen.hosts, "host"), seen.hosts)
    else:
        found.missing["hosts"] = (
            "It does not say on how many hosts: one is taken to have all chips."
        )
    found._add("chips-per-host", max(1, seen.chips // (seen.hosts or 1)), words, seen.chips)


def _steps(found: Fit, seen: Observed) -> None:
    if not seen.steps:
        found.missing["step"] = "It completed no step: one is taken to last 1 s."
        return
    words = f"{_count(seen.steps, 'step')}: {in_words(seen.step_s)}, the median"
    found._add("step", seen.step_s / (1 - seen.idle), words, seen.steps)
    if seen.idle:
        words = f"{seen.idle:.2%} of the time between saves went to data, evaluation and the like"
        found._add("idle", seen.idle, words.replace("%", " %", 1), seen.steps)


def _failures(found: Fit, seen: Observed, rng: Generator) -> None:
    """How often, and of what. Two kinds of knowledge: the rate, and the shares of the causes."""
    count, time_s = seen.failures, seen.there_s
    if not time_s:
        found.missing["mtbf"] = "It never ran, and could not fail: give --mtbf."
        return
    low, high = rate_interval(count, time_s)
    mtbf_s = time_s / max(count, 0.5)
    drawn = 1 / rate_draws(rng, count, time_s)
    seldom_s = 1 / low if low else float(interval_of(drawn)[1])
    within = in_words(time_s)
    if count:
        words = f"{_count(count, 'failure')} in {within}: one each {in_words(mtbf_s)} "
        words += f"({_between(1 / high, seldom_s)})"
    else:
        words = f"no failure in {within}: one each {in_words(1 / high)} at the most often"
        found.missing["mtbf"] = (
            f"It saw no failure in {within}, which says only that they are {in_words(1 / high)} or "
            f"more apart; {in_words(mtbf_s)} is assumed, as for half a failure in that time."
        )
    found._add("mtbf", mtbf_s, words, count, drawn, (1 / high, seldom_s))
    share = seen.lost_hosts / count if count else 0.5
    words = f"{seen.lost_hosts} of {_count(count, 'failure')}" if count else "half: nobody knows"
    found._add("host-share", share, words, count, share_draws(rng, seen.lost_hosts, count))
    if seen.hangs:
        in_place = seen.hangs + seen.processes
        drawn = share_draws(rng, seen.hangs, in_place)
        words = f"{seen.hangs} of {_count(in_place, 'failure')} of processes"
        found._add("hang-share", seen.hangs / in_place, words, in_place, drawn)
        if seen.hangs_s:
            _duration(found, "hang-detect", seen.hangs_s, "hang", rng)
        else:
            words = "It does not say when its hangs began: one is taken to be noticed after 5 min."
            found.missing["hang-detect"] = words


def _saves(found: Fit, seen: Observed, rng: Generator) -> None:
    if not seen.saves_s:
        found.missing["save-stall"] = "It made no save: saves are taken to block nothing."
        return
    if not seen.to_memory:
        _duration(found, "save-stall", seen.saves_s, "save", rng)
        return
    _duration(found, "memory-copy", seen.saves_s, "copy to memory", rng, "copies to memory")
    if not seen.writes:
        found.missing["save-write"] = "It took no copy to disk: that is taken to take no time."
        return
    mean_s = seen.writing_s / seen.writes
    words = f"{_count(seen.writes, 'set')} taken to disk: {in_words(mean_s)} each"
    # Each alone is not on record: they are taken to differ as little known durations do.
    middle = rng.standard_normal(DRAWS) * SPREAD / seen.writes**0.5
    import numpy as np

    found._add("save-write", mean_s, words, seen.writes, mean_s * np.exp(middle))


def _restarts(found: Fit, seen: Observed, rng: Generator) -> None:
    """Those that read from disk, and those from memory, where there were both; else all alike."""
    durable, memory = seen.restarts_s, seen.restarts_from_memory_s
    every = (*durable, *memory)
    if not every:
        if seen.start_s:
            found._add("restart", seen.start_s, f"{in_words(seen.start_s)}, as a start took", 0)
            found.missing["restart"] = (
                f"It came back from no failure: a restart is taken to last "
                f"{in_words(seen.start_s)}, as long as a start took; from standbys it is shorter."
            )
        else:
            words = "It came back from no failure: a restart is taken to last 5 min."
            found.missing["restart"] = words
        return
    if durable and memory:
        _duration(found, "restart", durable, "restart", rng)
        _duration(found, "restart-from-memory", memory, "restart from memory", rng,
                  "restarts from memory")  # fmt: skip
    else:
        where = " from memory" if memory else ""
        _duration(found, "restart", every, f"restart{where}", rng, f"restarts{where}")
    found._add("restart-spread", spread_of(every), "of the restarts' logarithms", len(every))
    if seen.standbys_s:
        _standbys(found, seen, sum(every) / len(every), rng)


def _standbys(found: Fit, seen: Observed, warm_s: float, rng: Generator) -> None:
    """How old a run must be to have standbys, and what a restart costs before.

    Only the first takes its imports: the later ones are forks of what has imported.
    """
    first_s = max(seen.standbys_s)
    found._add("standby-ready", first_s, f"{in_words(first_s)}, the longest that any took", 1)
    if seen.cold_restarts_s:
        _duration(found, "restart-cold", seen.cold_restarts_s, "restart without standbys", rng,
                  "restarts without standbys")  # fmt: skip
    elif seen.first_start_s > warm_s:
        first_s = seen.first_start_s
        found._add("restart-cold", first_s, f"{in_words(first_s)}, as the first start took", 0)


def _hosts(found: Fit, seen: Observed, rng: Generator) -> None:
    """Waits for hosts, and warnings of their loss."""
    if seen.waits_s:
        _duration(found, "reschedule", _alone_s(seen), "wait for a host", rng, "waits for a host")
    if not (seen.notices and seen.lost_hosts):
        return
    announced = min(seen.announced, seen.lost_hosts)
    words = f"{announced} of {_count(seen.lost_hosts, 'loss', 'losses')} of a host"
    drawn = share_draws(rng, announced, seen.lost_hosts)
    found._add("notice-recall", announced / seen.lost_hosts, words, seen.lost_hosts, drawn)
    if announced:
        count = max(seen.notices, announced)
        words = f"{announced} of {_count(count, 'notice')}"
        drawn = share_draws(rng, announced, count).clip(1e-3)
        found._add("notice-precision", announced / count, words, count, drawn)
    if seen.leads_s:
        _duration(found, "notice-lead", seen.leads_s, "notice", rng)


def _alone_s(seen: Observed) -> list[float]:
    """The waits, as if no other host were lost meanwhile.

    Losses at rate λ make a wait of w last (e^(λw) − 1)/λ on average.
    """
    rate, mean_s = seen.lost_hosts / seen.there_s, sum(seen.waits_s) / len(seen.waits_s)
    shorter = log1p(rate * mean_s) / (rate * mean_s)
    return [one * shorter for one in seen.waits_s]


def _duration(
    found: Fit, name: str, seen_s: Sequence[float], what: str, rng: Generator, several: str = ""
) -> None:
    """A mean of durations."""
    mean_s, drawn = sum(seen_s) / len(seen_s), mean_draws(rng, seen_s)
    words = f"{_count(len(seen_s), what, several)}: {in_words(mean_s)}"
    if mean_s:
        words += f" ({_between(*interval_of(drawn))})"
    found._add(name, mean_s, words, len(seen_s), drawn)


def _count(count: int, what: str, several: str = "") -> str:
    return f"{count:,} {what if count == 1 else several or what + 's'}"


def _between(low_s: float, high_s: float) -> str:
    """1.6 … 4.6 h where both have one unit, else each with its own."""
    (low, unit), (high, other) = (in_words(one).rsplit(" ", 1) for one in (low_s, high_s))
    return f"{low} … {high} {other}" if unit == other else f"{low} {unit} … {high} {other}"
