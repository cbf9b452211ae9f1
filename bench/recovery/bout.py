"""One system's turn: started, struck by the schedule, stopped, hung; measured by the ruler."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import family
from faults import Fault
from ruler import NS_PER_S, Follower, account, boot_ns, recovery
from systems import Place, System, launch

LOOK_EVERY_S = 0.02
WARM_STEPS = 20
START_S = 180.0
GRACE_S = 30.0
HANG_LIMIT_S = 60.0


class FellError(Exception):
    """The system could not be brought to train."""


@dataclass(frozen=True)
class Rules:
    """What is the same for every system."""

    seconds: float
    schedule: list[Fault]
    # After so long a run that stands still is started anew from outside. Nobody would look sooner.
    never_s: float = 30.0
    stop_and_hang: bool = True


@dataclass
class Struck:
    """One fault as it happened."""

    what: str
    rank: int
    due_s: float
    at_ns: int
    back: bool = True


@dataclass
class Bout:
    """The state of one turn."""

    system: System
    place: Place
    say: Callable[[str], None]
    follower: Follower = field(init=False)
    struck: list[Struck] = field(default_factory=list)
    commands: list[subprocess.Popen] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.follower = Follower(self.place.stamps)

    def start(self) -> None:
        """Start it, and wait until every rank trains."""
        self.commands = launch(self.system, self.place, self.place.folder / "output.log")
        self._until(lambda: self._steps_since_start(WARM_STEPS), START_S, "start")

    def start_anew(self) -> None:
        """From outside, after whatever is left of it has been ended."""
        family.end_all()
        before_ns = boot_ns()
        self.commands = launch(self.system, self.place, self.place.folder / "output.log")
        self._until(lambda: self.all_step_after(before_ns), START_S, "start anew")

    def stands(self, rank: int, limit_s: float) -> bool:
        """Whether that rank trains, or does within the limit: it may have died by itself."""
        from_ns = boot_ns()
        if self._is_there(rank):
            return True
        try:
            self._until(lambda: self._is_there(rank) and self.all_step_after(from_ns), limit_s, "")
        except FellError:
            return False
        return True

    def _is_there(self, rank: int) -> bool:
        life = self.follower.read().newest(rank)
        return life is not None and life.pid in family.descendants()

    def strike(self, fault: Fault, signal_number: int, what: str) -> Struck:
        """The rank's newest process, as it wrote itself."""
        life = self.follower.read().newest(fault.rank)
        if life is None or not self._is_there(fault.rank):
            raise FellError(f"rank {fault.rank} is not there to be struck")
        at_ns = boot_ns()
        os.kill(life.pid, signal_number)
        self.struck.append(Struck(what, fault.rank, fault.at_s, at_ns))
        return self.struck[-1]

    def comes_back(self, struck: Struck, limit_s: float) -> bool:
        """Whether every rank gets past where the run was, within the limit."""
        before = self.follower.highest(struck.at_ns)
        try:
            self._until(lambda: self.all_step_after(struck.at_ns, before), limit_s, "come back")
        except FellError:
            struck.back = False
        return struck.back

    def all_step_after(self, at_ns: int, above: int = 0) -> bool:
        """Whether each rank has done a step since then, of a number above that one."""
        lives = [self.follower.newest(rank) for rank in range(self.place.ranks)]
        return all(
            life is not None
            and life.steps
            and life.steps[-1].at_ns > at_ns
            and life.steps[-1].number > above
            for life in lives
        )

    def _steps_since_start(self, count: int) -> bool:
        lives = [self.follower.newest(rank) for rank in range(self.place.ranks)]
        return all(life is not None and len(life.steps) >= count for life in lives)

    def _until(self, condition: Callable[[], Any], limit_s: float, what: str) -> None:
        give_up = time.monotonic() + limit_s
        self.follower.read()
        while not condition():
            if time.monotonic() > give_up:
                raise FellError(f"{self.system.name} did not {what} within {limit_s:.0f} s")
            family.bury_but(self.commands)
            time.sleep(LOOK_EVERY_S)
            self.follower.read()


def kills(bout: Bout, rules: Rules) -> dict[str, Any]:
    """SIGKILLs by the schedule; what the ruler says of that time."""
    from_ns = boot_ns()
    to_ns = from_ns + int(rules.seconds * NS_PER_S)
    for fault in rules.schedule:
        due_ns = from_ns + int(fault.at_s * NS_PER_S)
        while boot_ns() < due_ns:
            time.sleep(min(0.05, max(0.0, (due_ns - boot_ns()) / NS_PER_S)))
            bout.follower.read()
        if boot_ns() > to_ns:
            break
        if not bout.stands(fault.rank, rules.never_s):
            bout.say(f"rank {fault.rank} is gone, though nothing struck it; started from outside")
            bout.start_anew()
        struck = bout.strike(fault, signal.SIGKILL, "kill")
        if bout.comes_back(struck, rules.never_s):
            seen = recovery(bout.follower.lives, struck.at_ns)
            bout.say(f"kill of rank {fault.rank}: {seen.new_s:.2f} s, {seen.lost_steps} steps lost")
        else:
            bout.say(f"kill of rank {fault.rank}: never came back; started from outside")
            bout.start_anew()
    while boot_ns() < to_ns:
        time.sleep(0.05)
    bout.follower.read()
    to_ns = max(to_ns, boot_ns())
    measured = {**account(bout.follower.lives, from_ns, to_ns).as_json()}
    measured["report"] = own_report(bout, (to_ns - from_ns) / NS_PER_S)
    measured["never"] = sum(not one.back for one in bout.struck)
    measured["kills"] = [told(bout, index) for index in range(len(bout.struck))]
    return measured


def told(bout: Bout, index: int) -> dict[str, Any]:
    """One fault, and what it cost, for the record."""
    struck = bout.struck[index]
    later = bout.struck[index + 1 :]
    seen = recovery(bout.follower.lives, struck.at_ns, later[0].at_ns if later else None)
    return {"rank": struck.rank, "due_s": struck.due_s, "back": struck.back, **vars(seen)}


def own_report(bout: Bout, seconds: float) -> dict[str, float] | None:
    """Holdfast's own account of the last seconds, and the ruler's of the same ones."""
    if not bout.system.name.startswith("holdfast"):
        return None
    command = [
        sys.executable, "-m", "holdfast.cli.main", "report", "race",
        "--store", str(bout.place.folder / "store"), "--window", f"{seconds:.3f}", "--json",
    ]  # fmt: skip
    environment = {**os.environ, "HOLDFAST_SCRATCH": str(bout.place.folder / "scratch")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        return {"error": done.stderr[-500:]}
    said = json.loads(done.stdout)
    # The report's clock is unix time, the ruler's is the time since boot.
    offset_ns = time.time_ns() - boot_ns()
    from_ns, to_ns = (int(said[key] * NS_PER_S) - offset_ns for key in ("start_s", "end_s"))
    ruled = account(bout.follower.read().lives, from_ns, to_ns)
    return {
        "goodput": said["goodput"],
        "ruler": ruled.goodput,
        "difference_points": 100 * (said["goodput"] - ruled.goodput),
        "lost_steps": said["lost_steps"],
        "badput_s": said["badput_s"],
    }


def stop(bout: Bout) -> dict[str, Any]:
    """SIGTERM to what was started, 30 s of grace; then it is started again."""
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
    left = len(family.descendants())
    gone_s = (boot_ns() - at_ns) / NS_PER_S
    reached = bout.follower.read().highest()
    bout.start_anew()
    newest = bout.follower.newest(0)
    lost = max(reached - newest.after, 0)
    bout.say(f"SIGTERM: gone in {gone_s:.2f} s, {left} left behind, lost {lost} steps")
    return {"gone_s": gone_s, "left_behind": left, "lost_steps": lost}


def hang(bout: Bout, rank: int) -> dict[str, Any]:
    """SIGSTOP of one rank: it is there, and does nothing."""
    struck = bout.strike(Fault(0.0, rank), signal.SIGSTOP, "hang")
    back = bout.comes_back(struck, HANG_LIMIT_S)
    seen = recovery(bout.follower.lives, struck.at_ns)
    took = f"{seen.new_s:.2f} s" if back else "never noticed"
    bout.say(f"hang of rank {rank}: {took}")
    return {"back": back, **vars(seen)}


def turn(system: System, place: Place, rules: Rules, say: Callable[[str], None]) -> dict[str, Any]:
    """All of it. A system that cannot go on keeps what was measured so far."""
    shutil.rmtree(place.folder, ignore_errors=True)
    place.folder.mkdir(parents=True)
    place.memory.mkdir(exist_ok=True)
    bout = Bout(system, place, say)
    result: dict[str, Any] = {"system": system.name, "ranks": place.ranks, "seconds": rules.seconds}
    try:
        bout.start()
        result["kills"] = kills(bout, rules)
        if rules.stop_and_hang:
            result["stop"] = stop(bout)
            result["hang"] = hang(bout, place.ranks - 1)
    except FellError as fell:
        result["fell"] = str(fell)
        say(f"fell: {fell}; the end of its output:\n{tail(place.folder / 'output.log')}")
    finally:
        family.end_all()
        shutil.rmtree(place.memory, ignore_errors=True)
    return result


def tail(path: Path, lines: int = 15) -> str:
    """The last words of a log."""
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
