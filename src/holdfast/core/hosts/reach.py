"""Hosts that are reached from outside: what each of them needs next. Pure.

    PUSH ──▶ INSTALL ──▶ (all hosts are that far) ──▶ START ──▶ REST ──▶ DONE
                                                       ▲ ╲
                                  it ended, and may go on ╯  FAIL: a person must look

`next_steps` takes what each host tells, or why it cannot be reached, and says what is to be done
there now, with the reason. Nothing is started before every host can: a run of seven hosts of which
one lacks its code would wait for it. Whoever drives this keeps nothing: begun again elsewhere, it
sees the same hosts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from holdfast.core.durations import SECOND_NS
from holdfast.core.hosts.engine import EngineWait
from holdfast.errors import (
    EXIT_CONFIGURATION,
    EXIT_DONE,
    EXIT_SAVED_START_ME_AGAIN,
    EXIT_UNAVAILABLE,
    EXIT_USER_FAILURE,
)

LEAST_PYTHON = (3, 11)
FAN_OUT = 2  # hosts that one host gives a tree to
MOST_QUICK_ENDS = 5
MOST_WAIT_NS = 64 * SECOND_NS
LEAVE_NS = 10 * SECOND_NS
START_AGAIN = (EXIT_SAVED_START_ME_AGAIN, EXIT_UNAVAILABLE)  # whoever says that means it
QUICK_NS = 60 * SECOND_NS
NEW_HOST_LIMIT_NS = 600 * SECOND_NS  # a machine that was just made takes time to let us in


class JobState(StrEnum):
    """What the run's process on a host does."""

    NONE = "none"
    RUNNING = "running"
    ENDED = "ended"


class HostAct(StrEnum):
    """What is to be done on a host now."""

    REST = "rest"  # it trains
    WAIT = "wait"  # look again later
    PUSH = "push"
    INSTALL = "install"
    START = "start"
    DONE = "done"
    FAIL = "fail"  # a person must look


@dataclass(frozen=True, slots=True)
class Unreached:
    """There is no connection. `needs_person`: trying again would bring the same.

    `may_be_here`: it is this machine that may be off the network, for it knows no such name: not so
    where the host has never answered.
    """

    words: str
    needs_person: bool = False
    may_be_here: bool = False


@dataclass(frozen=True, slots=True)
class ReachedHost:
    """What a host says of itself. `job_code`: None: its process was killed, or the host went down.

    `installed`: the tree and the command's digest of the last install, which ended with
    `install_code`; `version`: of Holdfast after it, "": there is none. `address`: by which it was
    reached. `age_ns`, `ended_ago_ns`: how long ago its job began, and ended, by its own clock, by
    which all other times are, too; 0: it never was. `pushed`: the tree whose push began last.
    `folder`: of two hosts the same where they have one home; "": it is not known yet.
    """

    hostname: str
    boot_id: str
    python: tuple[int, ...]
    machine: str
    trees: tuple[str, ...] = ()
    installed: tuple[str, str] = ("", "")
    install_code: int | None = None
    install_tail: str = ""
    version: str = ""
    address: str = ""
    folder: str = ""
    boot_unix_ns: int = 0
    pushed: str = ""
    push_unix_ns: int = 0
    install_unix_ns: tuple[int, int] = (0, 0)
    job_unix_ns: int = 0
    job: JobState = JobState.NONE
    job_code: int | None = None
    job_tree: str = ""
    job_index: int | None = None
    age_ns: int = 0
    ended_ago_ns: int = 0
    log: str = ""
    log_at: int = 0

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> ReachedHost:
        """From its answer; ValueError for what cannot be."""
        try:
            pushed, installed = raw["pushed"] or {}, raw["installed"] or {}
            job = raw["job"]
            return cls(
                hostname=str(raw["hostname"]),
                boot_id=str(raw["boot_id"]),
                python=tuple(int(one) for one in raw["python"]),
                machine=str(raw["machine"]),
                trees=tuple(str(one) for one in raw["trees"]),
                installed=(str(installed.get("tree", "")), str(installed.get("command", ""))),
                install_code=installed.get("code"),
                install_tail=str(installed.get("tail", "")),
                version=str(installed.get("version", "")),
                address=str(raw["address"]),
                folder=str(raw["folder"]),
                boot_unix_ns=int(raw["boot_unix_ns"]),
                pushed=str(pushed.get("tree", "")),
                push_unix_ns=int(pushed.get("unix_ns", 0)),
                install_unix_ns=(
                    int(installed.get("start_unix_ns", 0)),
                    int(installed.get("end_unix_ns", 0)),
                ),
                job_unix_ns=int(job.get("since_unix_ns", 0)),
                job=JobState(job["state"]),
                job_code=job.get("code"),
                job_tree=str(job.get("tree", "")),
                job_index=job.get("index"),
                age_ns=int(raw["now_unix_ns"]) - int(job.get("since_unix_ns", 0)),
                ended_ago_ns=int(job.get("ended_ago_ns", 0)),
                log=str(raw["log"]),
                log_at=int(raw["log_at"]),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error


@dataclass(frozen=True, slots=True)
class HostWanted:
    """What is to be on every host."""

    tree: str
    install: str


@dataclass(slots=True)
class HostMemory:
    """What this process has seen of a host. `has_run`: a job of it, since this process looks.

    `tried`: an install of its own. `quick_ends`: ends in a row, soon after their start.
    `refused`: why it could not do as it was told.
    """

    has_run: bool = False
    has_answered: bool = False
    refused: str = ""
    tried: bool = False
    quick_ends: int = 0
    missing_since_ns: int | None = None

    def saw(self, one: ReachedHost | Unreached, now_ns: int, *, is_new: bool) -> Unreached | None:
        """Take a look into account; what counts in its place, if something does.

        A new machine may refuse us, or not be there, for a while.
        """
        if isinstance(one, ReachedHost):
            self.has_answered, self.missing_since_ns = True, None
            self.has_run = self.has_run or one.job is JobState.RUNNING
            return None
        self.missing_since_ns = now_ns if self.missing_since_ns is None else self.missing_since_ns
        is_late = now_ns - self.missing_since_ns > NEW_HOST_LIMIT_NS
        is_ours = one.may_be_here and self.has_answered
        needs_person = one.needs_person and not is_ours and (is_late or not is_new)
        return Unreached(one.words, needs_person, one.may_be_here)

    def starts(self, one: ReachedHost) -> None:
        """Its job is started, perhaps again."""
        is_quick = self.has_run and one.age_ns < QUICK_NS
        self.quick_ends = self.quick_ends + 1 if is_quick else 0


class HostStep(NamedTuple):
    """What is to be done on a host, and why."""

    step: HostAct
    reason: str
    code: int | None = None  # of a job that has ended


def next_steps(
    told: Mapping[int, ReachedHost | Unreached],
    memory: Mapping[int, HostMemory],
    wanted: HostWanted,
) -> dict[int, HostStep]:
    """By index, for all hosts together."""
    for index, one in told.items():
        memory[index].has_run = memory[index].has_run or _was_of_this_run(one, told)
    steps = {index: _of_one(index, one, memory[index], wanted) for index, one in told.items()}
    if odd := _unlike(told) or _of_one_home(told):
        return {index: _unless_running(one, odd) for index, one in steps.items()}
    not_yet = (HostAct.PUSH, HostAct.INSTALL, HostAct.FAIL)
    late = sorted(
        i for i, one in told.items() if isinstance(one, Unreached) or steps[i].step in not_yet
    )
    if late:
        waits = HostStep(HostAct.WAIT, f"waits for host {', '.join(map(str, late))}")
        steps = {i: waits if one.step is HostAct.START else one for i, one in steps.items()}
    running = any(
        isinstance(one, ReachedHost) and one.job is JobState.RUNNING for one in told.values()
    )
    for index, one in told.items():
        if running and steps[index].step is HostAct.START and _has_just_left(one, memory[index]):
            steps[index] = HostStep(HostAct.WAIT, "it has left, and the others leave too")
    return steps


def start_waits(one: ReachedHost, tree: str, *, is_new: bool) -> tuple[EngineWait, ...]:
    """What a start with that tree has waited for, if it is the first since the install.

    The push, with the install; of a machine that was just made its boot, too.
    """
    began_ns, end_ns = one.install_unix_ns
    if one.pushed == tree:
        began_ns = one.push_unix_ns
    if one.job_unix_ns >= end_ns or not 0 < began_ns < end_ns:
        return ()
    pull = EngineWait("pull", began_ns, end_ns)
    if is_new and 0 < one.boot_unix_ns < began_ns:
        return EngineWait("boot", one.boot_unix_ns, began_ns), pull
    return (pull,)


def verdict(steps: Mapping[int, HostStep]) -> tuple[int | None, str]:
    """The exit code of the whole, and why; None: it goes on."""
    now = [one.step for one in steps.values()]
    if HostAct.DONE in now:
        return (None, "") if HostAct.REST in now else (EXIT_DONE, "done")
    failed = {i: one for i, one in steps.items() if one.step is HostAct.FAIL}
    if not failed or HostAct.PUSH in now or HostAct.INSTALL in now:
        return None, ""
    groups: dict[str, list[int]] = {}
    for index, one in failed.items():
        groups.setdefault(one.reason, []).append(index)
    words = "; ".join(f"{_hosts(indices)}: {reason}" for reason, indices in groups.items())
    codes = [one.code for one in failed.values() if one.code is not None]
    return codes[0] if codes else EXIT_UNAVAILABLE, words


def givers(
    lacking: Sequence[int], having: Sequence[int], *, fan_out: int = FAN_OUT
) -> dict[int, int | None]:
    """From whom each host gets a tree; None: from here.

    Those that have it already give first. Where nobody has, the first host gets it from here, and
    everybody gives it on to `fan_out` others while it still comes in: what the line out of here
    carries is one copy, however many they are.
    """
    found: dict[int, int | None] = {}
    sources, given = list(having), Counter[int]()
    for index in lacking:
        free = next((one for one in sources if given[one] < fan_out), None)
        found[index] = free
        if free is not None:
            given[free] += 1
        sources.append(index)
    return found


def _of_one(
    index: int, one: ReachedHost | Unreached, memory: HostMemory, wanted: HostWanted
) -> HostStep:
    if isinstance(one, Unreached):
        return HostStep(HostAct.FAIL if one.needs_person else HostAct.WAIT, one.words)
    if one.job is JobState.RUNNING:
        return _running(index, one, wanted)
    if one.python < LEAST_PYTHON:
        version = ".".join(map(str, one.python))
        least = ".".join(map(str, LEAST_PYTHON))
        return HostStep(
            HostAct.FAIL, f"its python3 is {version}, and Holdfast needs {least} or later"
        )
    if memory.has_run and one.job is JobState.ENDED and (ended := _ended(one, memory)) is not None:
        return ended
    if memory.refused:
        return HostStep(HostAct.FAIL, memory.refused)
    if wanted.tree not in one.trees:
        return HostStep(HostAct.PUSH, "it does not have the tree")
    if one.installed != (wanted.tree, wanted.install) or (one.install_code and not memory.tried):
        return HostStep(HostAct.INSTALL, "nothing is installed for this tree")
    if one.install_code:
        last = (one.install_tail.strip().splitlines() or ["it printed nothing"])[-1]
        return HostStep(HostAct.FAIL, f"the install ended with {one.install_code}: {last}")
    if not one.version:
        if not memory.tried:
            return HostStep(HostAct.INSTALL, "Holdfast was not there after the last install")
        return HostStep(
            HostAct.FAIL, "there is no Holdfast after the install; have it install that"
        )
    return HostStep(HostAct.START, "it is to train")


def _running(index: int, one: ReachedHost, wanted: HostWanted) -> HostStep:
    if one.job_index != index:
        return HostStep(
            HostAct.FAIL,
            f"it trains as host {one.job_index}, and is named as host {index}: name the hosts in "
            "the same order, or end the run first",
        )
    if one.job_tree != wanted.tree:
        return HostStep(
            HostAct.REST, f"it trains with another tree ({one.job_tree[:8]}): stop the run to push"
        )
    return HostStep(HostAct.REST, "it trains")


def _ended(one: ReachedHost, memory: HostMemory) -> HostStep | None:
    """None: it is to be started again."""
    code = one.job_code
    if code == EXIT_DONE:
        return HostStep(HostAct.DONE, "done", code)
    if code in (EXIT_USER_FAILURE, EXIT_CONFIGURATION):
        last = (one.log.strip().splitlines() or [""])[-1]
        return HostStep(
            HostAct.FAIL, f"the run ended with {code}" + (f": {last}" * bool(last)), code
        )
    said = "was killed" if code is None else f"ended with {code}"
    if memory.quick_ends >= MOST_QUICK_ENDS and code not in START_AGAIN:
        times = f"{MOST_QUICK_ENDS} times in a row, soon after its start"
        return HostStep(HostAct.FAIL, f"it {said} {times}", code)
    wait_ns = min(SECOND_NS << memory.quick_ends, MOST_WAIT_NS) if memory.quick_ends else 0
    if one.age_ns < wait_ns:
        return HostStep(
            HostAct.WAIT, f"it {said}, and is started again {wait_ns // SECOND_NS} s after it began"
        )
    return None


def _was_of_this_run(
    one: ReachedHost | Unreached, told: Mapping[int, ReachedHost | Unreached]
) -> bool:
    """Whether it has ended since those began that still run, so that its end counts."""
    ages = [
        other.age_ns
        for other in told.values()
        if isinstance(other, ReachedHost) and other.job is JobState.RUNNING
    ]
    if not isinstance(one, ReachedHost) or one.job is not JobState.ENDED or one.job_code is None:
        return False
    return one.ended_ago_ns < max(ages, default=0)


def _has_just_left(one: ReachedHost | Unreached, memory: HostMemory) -> bool:
    """All hosts of a run leave together: one that is started again too soon would hold them up."""
    if not memory.has_run or not isinstance(one, ReachedHost) or one.job is not JobState.ENDED:
        return False
    return one.job_code in START_AGAIN and one.ended_ago_ns < LEAVE_NS


def _unlike(told: Mapping[int, ReachedHost | Unreached]) -> str:
    """Hosts of different kinds are a mistake in the list; "": they are alike."""
    kinds: dict[str, list[int]] = {}
    for index, one in sorted(told.items()):
        if isinstance(one, ReachedHost):
            version = ".".join(map(str, one.python[:2]))
            kinds.setdefault(f"{one.machine} with Python {version}", []).append(index)
    if len(kinds) < 2:
        return ""
    return "the hosts are not alike: " + "; ".join(f"{_hosts(v)}: {k}" for k, v in kinds.items())


def _of_one_home(told: Mapping[int, ReachedHost | Unreached]) -> str:
    """Each would take the others' job for its own, and start it again; "": none have."""
    homes: dict[str, list[int]] = {}
    for index, one in sorted(told.items()):
        if isinstance(one, ReachedHost) and one.folder:
            homes.setdefault(one.folder, []).append(index)
    found = next((indices for indices in homes.values() if len(indices) > 1), None)
    if found is None:
        return ""
    return (
        f"{_hosts(found)} have one home folder, and what is pushed needs one for each: start "
        "`holdfast run` on each by another way, from a folder that they share"
    )


def _unless_running(one: HostStep, words: str) -> HostStep:
    return one if one.step is HostAct.REST else HostStep(HostAct.FAIL, words)


def _hosts(indices: Iterable[int]) -> str:
    found = [str(one) for one in indices]
    return f"host {', '.join(found)}" if len(found) == 1 else f"hosts {', '.join(found)}"
