"""The simulator: how long a run takes, and what it grows with.

    python bench/simulate.py [--rounds 5]

- a plan: 100,000 chips (12,500 hosts), failures as on RSC-1 (6.50 per 1000 node-days, arXiv
  2410.21680), 54 days, saves that block for a second each five minutes.
- servers: 16,384 of them that fail one at a time, 256 days, about 45,000 failures.
- hosts: ten and a hundred times as many at the same number of failures; it should not matter.
- failures: a half and twice as many of them; it should be proportional.
- the core alone: events of one run fed to a fresh machine again, as a replay does.

Every run is a fresh process, with the ordinary ledger's account at its end; its peak of memory is
the whole process's, interpreter and numpy included. Beside the time that went by stands the
processor's, which says more where the machine has other work as well.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from unittest import mock

from holdfast.core.actions import Action
from holdfast.core.events import Event
from holdfast.core.run.machine import RunMachine
from holdfast.sim.laws import Fixed
from holdfast.sim.model import DAY_S, Failures, Fleet, Recovery, SaveCosts, Scenario, per_node_days
from holdfast.sim.replicate import Runs, policy_of

MEASURE = "--measure"
RSC_1 = 6.5


def fleet(hosts: int, failures_per_1000: float, days: float) -> Scenario:
    return Scenario(
        fleet=Fleet(hosts=hosts, chips_per_host=8),
        failures=Failures(per_node_days(failures_per_1000)),
        saves=SaveCosts(stall_s=1, interval_s=300),
        recovery=Recovery(restart=Fixed(60)),
        duration_s=days * DAY_S,
    )


CASES = {
    "a plan: 12,500 hosts, 54 days": (fleet(12_500, RSC_1, 54), 2.0),
    "servers: 16,384, 256 days": (fleet(16_384, 45_000 / (16.384 * 256), 256), 4.0),
    "hosts × 10, as many failures": (fleet(125_000, RSC_1 / 10, 54), None),
    "hosts × 100, as many failures": (fleet(1_250_000, RSC_1 / 100, 54), None),
    "failures × 1/2": (fleet(12_500, RSC_1 / 2, 54), None),
    "failures × 2": (fleet(12_500, RSC_1 * 2, 54), None),
}


def main() -> None:
    if sys.argv[1:2] == [MEASURE]:
        print(json.dumps(measured(sys.argv[2])))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    load = os.getloadavg()[0]
    print(f"{platform.platform()}, {os.cpu_count()} cores, load {load:.1f}, {rounds} rounds\n")
    for name, (_, target_s) in CASES.items():
        found = [in_a_process(name) for _ in range(rounds)]
        seconds, cpu = ([one[key] for one in found] for key in ("seconds", "cpu_s"))
        target = "" if target_s is None else f" (target {target_s:g} s)"
        one = found[0]
        print(
            f"{name}: {spread(seconds)} s{target}, CPU {spread(cpu)} s, "
            f"{max(f['peak_mb'] for f in found):.0f} MB; "
            f"{one['disruptions']:,} disruptions, {one['events']:,} events, "
            f"goodput {one['goodput']:.4f}"
        )
    rates = [in_a_process("core")["events_per_s"] for _ in range(rounds)]
    print(f"the core alone: {spread(rates, 0)} events/s of CPU time (target 200,000)")


def in_a_process(name: str) -> dict[str, float]:
    command = [sys.executable, __file__, MEASURE, name]
    found: dict[str, float] = json.loads(
        subprocess.run(command, check=True, capture_output=True).stdout
    )
    return found


def measured(name: str) -> dict[str, float]:
    if name == "core":
        return core_alone()
    scenario, _ = CASES[name]
    started_s, cpu_s = time.perf_counter(), time.process_time()
    one = Runs("", scenario).outcome(1)
    return {
        "seconds": time.perf_counter() - started_s,
        "cpu_s": time.process_time() - cpu_s,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "events": one.events,
        "disruptions": one.disruptions,
        "goodput": one.goodput,
    }


def core_alone() -> dict[str, float]:
    """What one run's machine was told, told to another: nothing but `RunMachine.handle`."""
    scenario = fleet(2048, RSC_1, 54)
    world = Runs("", scenario).world(1)
    told: list[Event] = []
    handle = RunMachine.handle

    def listening(machine: RunMachine, event: Event) -> tuple[Action, ...]:
        told.append(event)
        return handle(machine, event)

    with mock.patch.object(RunMachine, "handle", listening):
        world.run()
    machine = RunMachine(policy_of(scenario))
    started_s = time.process_time()
    for event in told:
        machine.handle(event)
    return {"events_per_s": len(told) / (time.process_time() - started_s)}


def spread(values: list[float], digits: int = 2) -> str:
    middle = statistics.median(values)
    return f"{middle:,.{digits}f} ({min(values):,.{digits}f} … {max(values):,.{digits}f})"


if __name__ == "__main__":
    main()
