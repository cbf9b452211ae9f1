"""A host is lost in each phase of a run, in each way, with a spare and without.

Each phase once and each way at least once, with and without a spare in turn; FAULTS=full (`make
faults-hosts`): all with each other.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pytest
from lab import Lab
from processes import EXIT_DONE, EXIT_SAVED, FAR

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "chaos")]
from fault_run import CONTROLLER, OTHER, SPARE, TRAIN, VICTIM, Trial  # noqa: E402

del sys.path[:2]

pytestmark = pytest.mark.real

SLOW_MS = 150  # that each frame takes


# --- phases: how a run is brought to stand in one -------------------------------------------


def gather(trial: Trial) -> None:
    """One host has not come yet, and all others have."""
    trial.start_all(but=(OTHER,))
    trial.saw(VICTIM, "This is host 1")


def begin(trial: Trial) -> None:
    trial.arm()
    trial.start_all()
    trial.until(lambda: trial.is_held)


def train(trial: Trial) -> None:
    trial.start_all()
    trial.train_until_safe()
    trial.arm()
    trial.train_until_held()


def stop(trial: Trial) -> None:
    trial.start_all()
    trial.train_until_safe()
    trial.arm()
    trial.agents[OTHER].send(signal.SIGTERM)
    trial.saw(CONTROLLER, "saving, then stopping")
    trial.allow(FAR)
    trial.until(lambda: trial.is_held)


def begin_again(trial: Trial) -> None:
    """A rank is killed, and the run begins another attempt."""
    trial.start_all()
    trial.train_until_safe()
    trial.arm()
    trial.kill_rank(OTHER)
    trial.until(lambda: trial.is_held)


class Phase(NamedTuple):
    """How it is reached, which host's processes are held in it, and what else ends an attempt."""

    reach: Callable[[Trial], None]
    held: int = VICTIM
    ends: tuple[str, ...] = ()


PHASES = {
    "gather": Phase(gather),
    "launch": Phase(begin),
    "import": Phase(begin),
    "compile": Phase(begin),
    "step": Phase(train),
    "copy": Phase(train),
    "seal": Phase(train),
    "replicate": Phase(train),
    "flush": Phase(train),
    "commit": Phase(train, CONTROLLER),
    "stop": Phase(stop, ends=("preempted",)),
    "choose": Phase(begin_again, CONTROLLER, ("killed",)),
    "restore": Phase(begin_again, ends=("killed",)),
}


# --- faults: what happens to the host, and how it is there again ----------------------------


class Fault(NamedTuple):
    """`is_new`: its processes are gone; started again, they are others. `stays`: if replaced."""

    strike: Callable[[Trial], None]
    mend: Callable[[Trial], None]
    is_silent: bool = True
    is_new: bool = False
    stays: bool = False


def power_off(trial: Trial) -> None:
    trial.lab.hosts[VICTIM].power_off()


def power_on(trial: Trial) -> None:
    trial.lab.hosts[VICTIM].power_on()
    trial.start(VICTIM)


def kill_all(trial: Trial) -> None:
    trial.lab.hosts[VICTIM].kill(-1, signal.SIGKILL)


def start_again(trial: Trial) -> None:
    trial.start(VICTIM)


def freeze(trial: Trial) -> None:
    trial.lab.hosts[VICTIM].freeze()


def thaw(trial: Trial) -> None:
    trial.lab.hosts[VICTIM].thaw()


def cut(trial: Trial) -> None:
    trial.lab.cut(VICTIM)


def make_dumb(trial: Trial) -> None:
    trial.lab.cut_one_way(VICTIM)


def make_deaf(trial: Trial) -> None:
    trial.lab.cut_other_way(VICTIM)


def join(trial: Trial) -> None:
    trial.lab.mend(VICTIM)


def slow_down(trial: Trial) -> None:
    trial.lab.delay(SLOW_MS)


def speed_up(trial: Trial) -> None:
    trial.lab.delay(0)


FAULTS = {
    "power off": Fault(power_off, power_on, is_new=True, stays=True),
    "processes dead": Fault(kill_all, start_again, is_new=True),
    "frozen": Fault(freeze, thaw),
    "cut off": Fault(cut, join),
    "dumb": Fault(make_dumb, join),
    "deaf": Fault(make_deaf, join),
    "slow": Fault(slow_down, speed_up, is_silent=False),
}


# --- the matrix -----------------------------------------------------------------------------


def crossings() -> list[tuple[str, str, bool]]:
    """Seven faults: each comes again with the next but six phase, and the other word on a spare."""
    if os.environ.get("FAULTS") == "full":
        return list(product(PHASES, FAULTS, (True, False)))
    faults = list(FAULTS)
    return [(phase, faults[n % len(faults)], n % 2 == 0) for n, phase in enumerate(PHASES)]


@pytest.mark.parametrize(
    ("phase", "fault", "has_spare"),
    crossings(),
    ids=lambda word: word if isinstance(word, str) else "spare" if word else "alone",
)
def test_a_host_is_lost(tmp_path: Path, phase: str, fault: str, has_spare: bool) -> None:
    where, what = PHASES[phase], FAULTS[fault]
    with Lab(TRAIN + has_spare, tmp_path) as lab:
        trial = Trial(lab, phase, where.held, has_spare=has_spare)
        where.reach(trial)
        what.strike(trial)
        kept = trial.survives()
        if where.held == CONTROLLER or fault != "cut off":  # that one goes on when all is over
            trial.let_go()
        if phase == "gather":
            if what.is_silent:
                trial.saw(CONTROLLER, "Host 1 is lost")
            trial.start(OTHER)
        if phase == "stop":
            all_stop(trial, what)
        elif what.is_silent:
            another_goes_on(trial, what)
        trial.let_go()
        trial.allow(FAR)
        for index in trial.agents:
            if trial.lab.hosts[index].is_on:
                trial.ended(index, EXIT_DONE)
        trial.trained()
        is_loss = what.is_silent and phase != "gather"
        others = () if is_loss and phase == "stop" else where.ends
        trial.judge(kept, losses=int(is_loss), others=others)
        trial.nothing_left()


def another_goes_on(trial: Trial, fault: Fault) -> None:
    """A spare takes the part of the victim, which may come back afterwards; or it is waited for."""
    if trial.has_spare:
        trial.saw(SPARE, "This is host 3 of 4 in the place of host 1")
    else:
        trial.saw(CONTROLLER, "Host 1 is lost")
        if trial.phase != "gather":  # there it waits for another one, too
            trial.saw(CONTROLLER, "Waiting for host 1 ", after="Host 1 is lost")
    if not (trial.has_spare and fault.stays):
        fault.mend(trial)


def all_stop(trial: Trial, fault: Fault) -> None:
    """All that live leave with 75, and are started again."""
    if fault.is_silent:
        trial.ended(CONTROLLER, EXIT_SAVED)
    gone = {VICTIM} if fault.is_new else set()
    fault.mend(trial)
    for index in list(trial.agents):
        if index not in gone:
            trial.ended(index, EXIT_SAVED)
            trial.start(index)
