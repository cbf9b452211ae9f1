"""What is planned and simulated: the machines, how they fail, and what coming back costs.

Plain values with units in their names; seconds are floats, as people give them. The closed forms
of the planner and the simulator read the same scenario, so that one can be held to the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite

from holdfast.sim.infants import early_losses_per_s
from holdfast.sim.laws import Early, Exponential, Fixed, Law

DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Fleet:
    """The machines that the run trains on, and those that stand by.

    A rack and a slice are so many neighbouring hosts that can be lost together; 0: there is no such
    domain. `spares` are hosts that are there and idle. With `elastic` the run goes on without the
    slices that have lost a host, on at least `least_slices` of them, where that pays
    (`core.hosts.elastic`).
    """

    hosts: int = 1
    chips_per_host: int = 1
    hosts_per_rack: int = 0
    hosts_per_slice: int = 0
    spares: int = 0
    elastic: bool = False
    least_slices: int = 1

    def __post_init__(self) -> None:
        for name in ("hosts", "chips_per_host"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: a run needs at least one")
        for name in ("hosts_per_rack", "hosts_per_slice", "spares"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be zero or more")
        rack, of_slice = self.hosts_per_rack, self.hosts_per_slice
        if rack and of_slice and of_slice % rack:
            raise ValueError(
                f"a slice of {of_slice} hosts is not a whole number of racks of {rack}: give a "
                "multiple"
            )
        if self.elastic:
            self._check_slices()

    def _check_slices(self) -> None:
        size, count = self.hosts_per_slice, self.slices
        if not size:
            raise ValueError("elastic training drops slices: give --hosts-per-slice")
        if self.hosts % size:
            raise ValueError(
                f"{self.hosts} hosts are not a whole number of slices of {size}: give a multiple"
            )
        if count < 2:
            raise ValueError(
                f"elastic training needs two slices, and {size} hosts are one: give more hosts"
            )
        if not 1 <= self.least_slices <= count:
            raise ValueError(f"at least {self.least_slices} of {count} slices: give 1 to {count}")

    @property
    def slices(self) -> int:
        """How many there are; a fleet without slices is one."""
        return -(-self.hosts // self.hosts_per_slice) if self.hosts_per_slice else 1

    @property
    def chips(self) -> int:
        """Those that train."""
        return self.hosts * self.chips_per_host


@dataclass(frozen=True, slots=True)
class Notices:
    """Warnings ahead of the loss of a host.

    `recall`: the share of losses that are announced, `lead` ahead of time. `precision`: the share
    of announcements that come true; the others cost a save and nothing more.
    """

    recall: float = 0.0
    precision: float = 1.0
    lead: Law = field(default_factory=lambda: Fixed(30.0))

    def __post_init__(self) -> None:
        if not 0 <= self.recall <= 1:
            raise ValueError(f"a recall of {self.recall} is not a share: give a number from 0 to 1")
        if not 0 < self.precision <= 1:
            raise ValueError(
                f"a precision of {self.precision} is not a share: give more than 0, at most 1"
            )


@dataclass(frozen=True, slots=True)
class Failures:
    """How often what fails.

    `between`: the time from one failure of a host to its next; None: nothing fails by itself. Of
    these `host_share` take the host along, and with it its memory; the others are of a process, and
    of them `hang_share` are noticed only after `hang_detect_s`. `early`: how a host that is new, or
    was repaired, is lost beside that. `rack_between`, `slice_between`: of a whole rack or slice.
    """

    between: Law | None = None
    host_share: float = 1.0
    hang_share: float = 0.0
    hang_detect_s: float = 300.0
    early: Early | None = None
    rack_between: Law | None = None
    slice_between: Law | None = None
    notices: Notices = field(default_factory=Notices)

    def __post_init__(self) -> None:
        for name in ("host_share", "hang_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}: a share lies between 0 and 1")
        _check("hang_detect_s", self.hang_detect_s)


@dataclass(frozen=True, slots=True)
class SaveCosts:
    """What saving costs, and how often it is done.

    Durable tier: a save blocks training for `stall_s` and is durable `write_s` later; one each
    `interval_s`, None: as often as is best. Memory tier, where `memory` says that there is one: a
    copy blocks for `copy_s`, one each `memory_interval_s`, and is flushed to the durable tier in
    `write_s`. `peers`: each host's copy is on another host too, and outlives it.
    """

    stall_s: float = 0.0
    write_s: float = 0.0
    interval_s: float | None = None
    memory: bool = False
    copy_s: float = 0.0
    memory_interval_s: float | None = None
    peers: bool = False

    def __post_init__(self) -> None:
        for name in ("stall_s", "write_s", "copy_s"):
            _check(name, getattr(self, name))
        for name in ("interval_s", "memory_interval_s"):
            value = getattr(self, name)
            if value is not None and not (value > 0 and isfinite(value)):
                raise ValueError(f"{name} is {value}: an interval is a positive, finite time")


@dataclass(frozen=True, slots=True)
class Recovery:
    """What coming back takes.

    `restart`: from the failure to the first new step on the same machines. `restore_from_memory_s`
    replaces `restore_s`, a part of it, where the memory tier's set restores. `swap`: to put a spare
    in a lost host's place, `replace`: to get another where no spare is left; both come before the
    restart. `repair`: after so long a lost host takes the place for which a replacement is waited,
    or is a spare again, unless there was a replacement, which then goes; None: it never comes back.
    Where `replace` is the law of `repair`, no other machine is to be had. `cold_s`: what a restart
    takes for which no standby waited; None: as long as others. From
    `standby_ready_s` after the first launch on there is one.
    """

    restart: Law = field(default_factory=lambda: Fixed(300.0))
    restore_s: float = 0.0
    restore_from_memory_s: float = 0.0
    swap: Law = field(default_factory=lambda: Fixed(0.0))
    replace: Law = field(default_factory=lambda: Fixed(0.0))
    repair: Law | None = None
    cold_s: float | None = None
    standby_ready_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("restore_s", "restore_from_memory_s", "standby_ready_s"):
            _check(name, getattr(self, name))

    def start_factor(self, *, is_cold: bool) -> float:
        """How many times as long a restart takes, with a standby for it or without."""
        usual_s = self.restart.mean_s
        if not is_cold or self.cold_s is None or not usual_s:
            return 1.0
        return max(1.0, self.cold_s / usual_s)

    @property
    def from_memory_s(self) -> float:
        """The mean restart where the memory tier's set restores."""
        return max(0.0, self.restart.mean_s - self.restore_s + self.restore_from_memory_s)


@dataclass(frozen=True, slots=True)
class Scenario:
    """All of it. The run wants `duration_s` of wall time, in steps of `step_s`.

    Of each step `idle` is the share that is waited for data, evaluation and the like.
    """

    fleet: Fleet = field(default_factory=Fleet)
    failures: Failures = field(default_factory=Failures)
    saves: SaveCosts = field(default_factory=SaveCosts)
    recovery: Recovery = field(default_factory=Recovery)
    duration_s: float = 30 * DAY_S
    step_s: float = 1.0
    idle: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.idle < 1:
            raise ValueError(f"idle is {self.idle}: a share from 0, below 1")
        for name in ("duration_s", "step_s"):
            value = getattr(self, name)
            if not (value > 0 and isfinite(value)):
                raise ValueError(f"{name} is {value}: it must be a positive, finite time")

    @property
    def mtbf_s(self) -> float | None:
        """The mean time between failures of the whole run; None: nothing fails."""
        fleet, failures = self.fleet, self.failures
        rate = self.early_losses_per_s
        for law, size in (
            (failures.between, 1),
            (failures.rack_between, fleet.hosts_per_rack),
            (failures.slice_between, fleet.hosts_per_slice),
        ):
            if law is not None and size:
                rate += -(-fleet.hosts // size) / law.mean_s
        return 1.0 / rate if rate else None

    @property
    def early_losses_per_s(self) -> float:
        """How often hosts of the run are lost early, on average over its time."""
        failures = self.failures
        if failures.early is None:
            return 0.0
        others = [(failures.between, failures.host_share)]
        others += [(failures.rack_between, 1.0), (failures.slice_between, 1.0)]
        per_s = sum(share / law.mean_s for law, share in others if law is not None)
        return self.fleet.hosts * early_losses_per_s(failures.early, per_s, self.duration_s)


def per_node_days(failures: float) -> Exponential:
    """A host's law from failures per 1000 node-days, as fleets publish them."""
    if not (failures > 0 and isfinite(failures)):
        raise ValueError(f"{failures} failures per 1000 node-days: it must be a positive number")
    return Exponential(1000 * DAY_S / failures)


def of_job(mtbf_s: float, hosts: int) -> Exponential:
    """A host's law from the whole job's mean time between failures."""
    return Exponential(mtbf_s * hosts)


def _check(name: str, value: float) -> None:
    if not (value >= 0 and isfinite(value)):
        raise ValueError(f"{name} is {value}: it must be a finite time, zero or more")
