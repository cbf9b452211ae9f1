"""What a run comes to in a few numbers: the row of a list, and a summand of a fleet. Pure.

All sums are integers: chip-nanoseconds (wall nanoseconds × chips). Times are unix nanoseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from holdfast.core.durations import SECOND_NS
from holdfast.core.ledger.account import Account
from holdfast.core.ledger.kinds import STEP, STOPPED, Level, level_of
from holdfast.core.ledger.program import Basis

ALL = "all"  # the window that has everything
HOUR_S, DAY_S = 3600, 86_400
ROLLING_S: Mapping[str, int] = {"1h": HOUR_S, "1d": DAY_S, "7d": 7 * DAY_S}


class Window(NamedTuple):
    """A stretch of time up to now; `from_ns` None: since the beginning."""

    name: str
    from_ns: int | None


def rolling(now_ns: int) -> tuple[Window, ...]:
    """All there is, and the last hour, day and week."""
    return Window(ALL, None), *(Window(n, now_ns - s * SECOND_NS) for n, s in ROLLING_S.items())


class Loss(NamedTuple):
    """One disruption: when its attempt ended, why, and what it cost, as those of a run add up.

    `error`: of a script that failed, the exception and where its code raised it, of one that hung
    where; "": nobody said.
    `stopped`: the chip-nanoseconds of `chip_ns` in which a person kept the run stopped.
    """

    at_ns: int
    cause: str
    chip_ns: int
    error: str = ""
    stopped: int = 0

    def without_stopped(self) -> Loss:
        """The same, as if that time had not gone by."""
        return self._replace(chip_ns=self.chip_ns - self.stopped, stopped=0)


class CauseTotal(NamedTuple):
    """Disruptions of one cause and one error: how many, and their price in chip-nanoseconds."""

    cause: str
    error: str
    disruptions: int
    chip_ns: int


@dataclass(frozen=True, slots=True)
class Spent:
    """Where the chip-time of some stretch of some runs went.

    `kinds` adds up to `elapsed`; `left_out` counts nowhere (`without_stopped`). `ideal` is what the
    kept steps would have taken at the pace that was declared ideal, and `paced` the productive
    chip-time of the runs that declared one: both 0 where nobody did. `at_reached` and `calibrated`
    are the same by the peak that the devices were measured to reach. `least` and `least_reached`
    are `ideal` and `at_reached` at the highest peak of any type of numbers, which quantised
    products may come to; 0: as these are. `wall_ns`: how long that was. `kept_ns`: the kept steps'
    own wall time.
    """

    kinds: Mapping[str, int] = field(default_factory=dict)
    steps_kept: int = 0
    lost_steps: int = 0
    ideal: int = 0
    paced: int = 0
    losses: tuple[Loss, ...] = ()
    left_out: int = 0
    wall_ns: int = 0
    at_reached: int = 0
    calibrated: int = 0
    least: int = 0
    least_reached: int = 0
    kept_ns: int = 0

    @property
    def elapsed(self) -> int:
        """All the time."""
        return sum(self.kinds.values())

    @property
    def productive(self) -> int:
        """The time in kept steps."""
        return self.kinds.get(STEP, 0)

    @property
    def available(self) -> int:
        """The time in which the resources were there."""
        waits = (ns for kind, ns in self.kinds.items() if level_of(kind) is Level.SCHEDULING)
        return self.elapsed - sum(waits)

    @property
    def scheduling(self) -> float | None:
        """Scheduling goodput: available / elapsed; None when no time has gone by."""
        return _ratio(self.available, self.elapsed)

    @property
    def runtime(self) -> float | None:
        """Runtime goodput: productive / available; None when the resources were never there."""
        return _ratio(self.productive, self.available)

    @property
    def program(self) -> float | None:
        """Program goodput: ideal / productive time of the runs that declared an ideal; else None.

        The factor of A. Wongpanich et al., "Machine Learning Fleet Efficiency", 2025
        (arXiv:2502.06982): ideal execution time over actual execution time.
        """
        return _ratio(self.ideal, self.paced)

    @property
    def program_of_reached(self) -> float | None:
        """The same by the peak that the devices were measured to reach; None: none was."""
        return _ratio(self.at_reached, self.calibrated)

    @property
    def is_beyond_ideal(self) -> bool:
        """Whether steps took less than they can: what they should take is wrong."""
        return (self.least or self.ideal) > self.paced

    @property
    def is_beyond_reached(self) -> bool:
        """The same of what was measured."""
        return (self.least_reached or self.at_reached) > self.calibrated

    @property
    def productivity(self) -> float | None:
        """Scheduling × runtime × program: ideal / elapsed; None: it is not known of all runs.

        ML productivity goodput, of the same paper.
        """
        is_known = 0 < self.paced == self.productive
        return _ratio(self.ideal, self.elapsed) if is_known else None

    @property
    def goodput(self) -> float | None:
        """Scheduling × runtime: productive / elapsed."""
        return _ratio(self.productive, self.elapsed)

    def without_stopped(self) -> Spent:
        """The same, as if the time in which people kept runs stopped had not gone by."""
        kinds = {kind: ns for kind, ns in self.kinds.items() if kind != STOPPED}
        losses = tuple(loss.without_stopped() for loss in self.losses)
        left_out = self.left_out + self.kinds.get(STOPPED, 0)
        return replace(self, kinds=kinds, losses=losses, left_out=left_out)

    def causes(self) -> list[tuple[str, int, int]]:
        """(cause, disruptions, their price in chip-ns), the dearest first."""
        sums: dict[str, tuple[int, int]] = {}
        for one in self.errors():
            count, price = sums.get(one.cause, (0, 0))
            sums[one.cause] = (count + one.disruptions, price + one.chip_ns)
        rows = [(cause, count, price) for cause, (count, price) in sums.items()]
        return sorted(rows, key=lambda row: (-row[2], -row[1], row[0]))

    def errors(self) -> list[CauseTotal]:
        """The same by cause and by what was raised where, the dearest first."""
        sums: dict[tuple[str, str], tuple[int, int]] = {}
        for loss in self.losses:
            count, price = sums.get((loss.cause, loss.error), (0, 0))
            sums[loss.cause, loss.error] = (count + 1, price + loss.chip_ns)
        rows = [CauseTotal(*why, *what) for why, what in sums.items()]
        return sorted(rows, key=lambda row: (-row.chip_ns, -row.disruptions, row.cause, row.error))

    def badput(self) -> list[tuple[str, int]]:
        """(kind, chip-ns) of all that was not productive, the greatest first."""
        rows = [(kind, ns) for kind, ns in self.kinds.items() if kind != STEP and ns]
        return sorted(rows, key=lambda row: (-row[1], row[0]))


NOTHING = Spent()


def spent_of(
    account: Account, basis: Basis | None = None, errors: Mapping[int, str] | None = None
) -> Spent:
    """An account as a summand.

    `basis`: what a step should take, and by whose word. `errors`: of attempts whose script failed.
    """
    basis = basis or Basis()
    ideal, at_reached = basis.ideal_chip_ns(account), basis.reached_chip_ns(account)
    errors = errors or {}
    return Spent(
        kinds={kind: ns for kind, ns in sorted(account.kinds.items()) if ns},
        steps_kept=account.steps_kept,
        lost_steps=account.lost_steps,
        ideal=ideal or 0,
        paced=0 if ideal is None else account.productive,
        at_reached=at_reached or 0,
        calibrated=0 if at_reached is None else account.productive,
        least=basis.least_chip_ns(account) or 0,
        least_reached=basis.least_reached_chip_ns(account) or 0,
        losses=tuple(
            Loss(
                one.at_ns,
                one.cause,
                one.price_chip_ns,
                errors.get(one.attempt, ""),
                one.stopped_ns * one.chips,
            )
            for one in account.summands()
        ),
        wall_ns=account.elapsed_ns,
        kept_ns=account.kept_ns,
    )


def added(parts: Sequence[Spent]) -> Spent:
    """The sum of several. One whose steps took less than they can counts for no program goodput."""
    kinds: dict[str, int] = {}
    possible = [part for part in parts if not part.is_beyond_ideal]
    possible_too = [part for part in parts if not part.is_beyond_reached]
    for part in parts:
        for kind, ns in part.kinds.items():
            kinds[kind] = kinds.get(kind, 0) + ns
    return Spent(
        kinds=kinds,
        steps_kept=sum(part.steps_kept for part in parts),
        lost_steps=sum(part.lost_steps for part in parts),
        ideal=sum(part.ideal for part in possible),
        paced=sum(part.paced for part in possible),
        at_reached=sum(part.at_reached for part in possible_too),
        calibrated=sum(part.calibrated for part in possible_too),
        least=sum(part.least or part.ideal for part in possible),
        least_reached=sum(part.least_reached or part.at_reached for part in possible_too),
        losses=tuple(loss for part in parts for loss in part.losses),
        left_out=sum(part.left_out for part in parts),
        wall_ns=sum(part.wall_ns for part in parts),
        kept_ns=sum(part.kept_ns for part in parts),
    )


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One run of a list.

    `state` is running, silent, new, done, stopped, failed or interrupted; `why` its reason, where
    it has one. `step`: the highest that all ranks of the newest attempt are known to have come to.
    `start_ns` and `end_ns`: where its time line begins and ends, None while nothing is recorded.
    `course`: how much of each of some equal parts of its time line was kept steps, in percent.
    `within`: what went where, by the name of each window that was asked for. `notes`: sentences on
    what could not be read. `metrics`: the script's own numbers, of each the newest that was kept.
    `device`: on which it trains. `peak_flops` and `reached_flops`: the peak of one, a second, and
    what it was measured to reach; 0: nobody knows.
    """

    name: str
    run_id: str
    state: str
    why: str = ""
    chips: int = 0
    attempts: int = 0
    step: int | None = None
    saved_step: int | None = None
    seen_unix_ns: int | None = None
    holder: str | None = None
    start_ns: int | None = None
    end_ns: int | None = None
    course: tuple[int, ...] = ()
    within: Mapping[str, Spent] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    device: str = ""
    peak_flops: int = 0
    reached_flops: int = 0

    def without_stopped(self) -> RunSummary:
        """The same, as if the time in which a person kept it stopped had not gone by."""
        within = {name: spent.without_stopped() for name, spent in self.within.items()}
        return replace(self, within=within)

    def spent(self, window: str = ALL) -> Spent:
        """What went where in a window; nothing where the run was not there."""
        return self.within.get(window, NOTHING)

    def step_s(self, window: str = ALL) -> float | None:
        """The mean wall time of a step that was kept in a window; None: there was none."""
        spent = self.spent(window)
        return _ratio(spent.kept_ns, spent.steps_kept * SECOND_NS)

    def seconds(self, chip_ns: int, window: str = ALL) -> float:
        """So much chip-time of a window as seconds of wall time."""
        spent = self.spent(window)
        paid = spent.elapsed + spent.left_out
        return chip_ns * spent.wall_ns / (paid * SECOND_NS) if paid else 0.0


def fleet(runs: Sequence[RunSummary], window: str) -> Spent:
    """What went where in all runs together."""
    return added([run.spent(window) for run in runs])


def _ratio(numerator: int, denominator: int) -> float | None:
    return numerator / denominator if denominator else None
