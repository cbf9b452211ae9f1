"""What each system goes through: kills by the schedule, a planned stop, a hang; or kills alone.

Each phase gives what it measured as plain data, and hands it out on the way, so that an interrupted
race has lost nothing but the fault that it was in.
"""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import family
from bout import LOOK_EVERY_S, Bout, FellError, Struck
from own_report import own_report
from results import Result
from ruler import NS_PER_S, account, boot_ns, undisturbed_step_ns
from schedule import Fault
from systems import Place, System

GRACE_S = 30.0
HANG_LIMIT_S = 60.0

Measured = dict[str, Any]
Keep = Callable[[Measured], None]


@dataclass(frozen=True)
class Rules:
    """What is the same for every system."""

    seconds: float
    schedule: list[Fault]
    # Kills that each wait for the run to be back, instead of a schedule.
    campaign: list[Fault]
    # After so long a run that stands still is started anew from outside. Nobody would look sooner.
    never_s: float = 30.0
    # A step of the undisturbed run; None: none was measured.
    undisturbed_ns: int | None = None


def turn(
    system: System,
    place: Place,
    rules: Rules,
    result: Result,
    phases: Iterable[str],
    say: Callable[[str], None],
) -> None:
    """All phases that the result lacks. One that falls is told, and costs the next ones nothing."""
    shutil.rmtree(place.folder, ignore_errors=True)
    place.folder.mkdir(parents=True)
    place.memory.mkdir(exist_ok=True)
    bout = Bout(system, place, say)
    measures = {"kills": kills, "campaign": campaign, "stop": stop, "hang": hang}
    try:
        for phase in phases:
            if result.has(phase):
                continue
            try:
                if not family.descendants():
                    bout.start_anew() if bout.commands else bout.start()
                measured = measures[phase](
                    bout, rules, partial(result.keep, phase, unfinished=True)
                )
            except FellError as fell:
                log = tail(place)
                say(f"{phase} fell: {fell}; the end of its output:\n{log}")
                so_far = result.told.get(phase, {})
                measured = {**so_far, "unfinished": False, "fell": str(fell), "output": log}
                family.end_all()
            result.keep(phase, measured)
            if not bout.trained:
                return  # it would not begin to train the next time either
    finally:
        family.end_all()
        shutil.rmtree(place.memory, ignore_errors=True)


def kills(bout: Bout, rules: Rules, keep: Keep) -> Measured:
    """SIGKILLs by the schedule; what the ruler says of that time."""
    from_ns = boot_ns()
    to_ns = from_ns + int(rules.seconds * NS_PER_S)
    for number, fault in enumerate(rules.schedule):
        bout.wait(from_ns + int(fault.at_s * NS_PER_S))
        if number and boot_ns() > to_ns:
            bout.say(f"{fault} is due after the end: it was down for too long")
            break
        try:
            blow(bout, fault, rules)
        finally:
            keep(measure(bout, rules, from_ns, boot_ns()))  # also the one that it fell by
    bout.wait(to_ns)
    return over(bout, rules, from_ns, max(to_ns, boot_ns()), len(rules.schedule))


def campaign(bout: Bout, rules: Rules, keep: Keep) -> Measured:
    """Kill after kill, each a short while after the run is back from the one before."""
    from_ns = boot_ns()
    for number, fault in enumerate(rules.campaign, start=1):
        bout.wait(boot_ns() + int(fault.at_s * NS_PER_S))
        try:
            blow(bout, fault, rules, f"{number}/{len(rules.campaign)} ")
        finally:
            keep(measure(bout, rules, from_ns, boot_ns()))
    bout.wait(boot_ns() + NS_PER_S)
    return over(bout, rules, from_ns, boot_ns(), len(rules.campaign))


def over(bout: Bout, rules: Rules, from_ns: int, to_ns: int, due: int) -> Measured:
    """What came of all kills, with what the system says itself."""
    report = own_report(bout, from_ns, to_ns, rules.undisturbed_ns)
    return {**measure(bout, rules, from_ns, to_ns), "due": due, "report": report}


def undisturbed(system: System, place: Place, seconds: float, say: Callable[[str], None]) -> int:
    """A step of a run that nobody supervises, strikes or saves, in nanoseconds."""
    place.folder.mkdir(parents=True)
    bout = Bout(system, place, say)
    try:
        bout.start()
        bout.wait(boot_ns() + int(seconds * NS_PER_S))
    finally:
        family.end_all()
        shutil.rmtree(place.folder, ignore_errors=True)
    return undisturbed_step_ns(bout.follower.lives)


def blow(bout: Bout, fault: Fault, rules: Rules, number: str = "") -> None:
    """One SIGKILL, and until every rank trains again, from outside if not by itself."""
    if not bout.stands(fault.rank, rules.never_s):
        bout.strays += 1
        bout.say(f"rank {fault.rank} is gone, though nothing struck it; started from outside")
        bout.start_anew()
    struck = bout.strike(fault, signal.SIGKILL, "kill")
    who = f"{number}kill of rank {fault.rank}"
    if bout.comes_back(struck, rules.never_s):
        bout.say(f"{who}: {struck.seen.new_s:.2f} s, {struck.seen.lost_steps} steps lost")
        return
    bout.say(f"{who}: never came back; started from outside. The end of its output:")
    bout.say(tail(bout.place))
    keep_evidence(bout)
    bout.start_anew()


def keep_evidence(bout: Bout) -> None:
    """Where its processes stand now, for whoever looks into it."""
    if bout.place.evidence:
        name = f"{bout.system.name}.{bout.struck[-1].what}-{len(bout.struck)}.txt"
        path = bout.place.evidence / name
        path.write_text(f"{family.stacks()}\n{tail(bout.place, 400)}\n")
        bout.say(f"where its processes stand: {path}")


def measure(bout: Bout, rules: Rules, from_ns: int, to_ns: int) -> Measured:
    """What the ruler says of the kills so far."""
    lives = bout.follower.read().lives
    struck = [one for one in bout.struck if one.what == "kill"]
    return {
        **account(lives, from_ns, to_ns, rules.undisturbed_ns).as_json(),
        "never": sum(not one.back for one in struck),
        "strays": bout.strays,
        "kills": [told(one) for one in struck],
    }


def told(struck: Struck) -> Measured:
    """One fault, and what it cost, for the record."""
    return {
        "rank": struck.rank, "due_s": struck.due_s, "back": struck.back, **vars(struck.seen)
    }  # fmt: skip


def stop(bout: Bout, rules: Rules, keep: Keep) -> Measured:
    """SIGTERM to what was started, 30 s of grace; then it is started again."""
    del rules
    at_ns = boot_ns()
    for command in bout.commands:
        if command.poll() is None:
            command.terminate()
    give_up = time.monotonic() + GRACE_S
    while family.descendants() and time.monotonic() < give_up:
        family.bury_but(bout.commands)
        for command in bout.commands:
            command.poll()
        time.sleep(LOOK_EVERY_S)
    measured: Measured = {
        "gone_s": (boot_ns() - at_ns) / NS_PER_S,
        "left_behind": len(family.descendants()),
    }
    keep(measured)
    reached = bout.follower.read().highest()
    bout.start_anew()
    newest = bout.follower.newest(0)
    assert newest is not None
    measured["lost_steps"] = max(reached - newest.after, 0)
    bout.say(
        f"SIGTERM: gone in {measured['gone_s']:.2f} s, {measured['left_behind']} left behind, "
        f"lost {measured['lost_steps']} steps"
    )
    return measured


def hang(bout: Bout, rules: Rules, keep: Keep) -> Measured:
    """SIGSTOP of one rank: it is there, and does nothing."""
    del keep
    rank = bout.place.ranks - 1
    if not bout.stands(rank, rules.never_s):
        bout.start_anew()
    struck = bout.strike(Fault(0.0, rank), signal.SIGSTOP, "hang")
    back = bout.comes_back(struck, HANG_LIMIT_S)
    took = f"{struck.seen.new_s:.2f} s" if back else f"not whole again within {HANG_LIMIT_S:.0f} s"
    bout.say(f"hang of rank {rank}: {took}")
    if not back:
        keep_evidence(bout)
    return {"back": back, **vars(struck.seen)}


def tail(place: Place, lines: int = 15) -> str:
    """The last words of a log."""
    return "\n".join(place.log.read_text(errors="replace").splitlines()[-lines:])
