"""What `holdfast up --push` does: a run's machines reached from outside, until the run is done.

The machines are named (`--machines`), or made and made again (`cli.up`). Each gets the working
tree, what `--install` installs, and the run. Nothing is kept by this process: stopped, or started
again elsewhere, it sees the same machines, and those that train go on meanwhile.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import click

from holdfast.cli.door import coloured_line, say
from holdfast.core.hosts.engine import Submission
from holdfast.core.hosts.fleet import Condition, Resource, Slice, SliceState
from holdfast.core.hosts.reach import HostAct, Unreached
from holdfast.core.hosts.recover import Act, Decision
from holdfast.core.hosts.wanted import Machines
from holdfast.engines.ssh.archive import listed
from holdfast.engines.ssh.engine import absolute, needs_client, pushed_job
from holdfast.engines.ssh.spread import SshFleet
from holdfast.engines.ssh.words import Reach, Target
from holdfast.errors import (
    EXIT_DONE,
    EXIT_SAVED_START_ME_AGAIN,
    EXIT_UNAVAILABLE,
    ConfigurationError,
    StoreUnavailable,
)
from holdfast.journal.agreed import agreed_path
from holdfast.journal.attempts import AttemptEnd, attempts
from holdfast.journal.holder import RunHolder
from holdfast.journal.remote import refresh
from holdfast.journal.store import RunFolder
from holdfast.provision.recovery import RunRecovery

F = TypeVar("F", bound=Callable[..., Any])
LOOK_S = 1.0  # at the machines; at their service as --every says
BRIEF_S = 0.2  # where something was just done
SOON_S = 2.0  # at their service, where one has just been lost; at the store
LET_GO_S = 0.0  # to what still runs beside a slice that was taken: it cannot save any more
STOPPED = "stopped"  # how an attempt ends that somebody has asked to
IAP = "iap"


def push_options(command: F) -> F:
    """The options of `holdfast up` that are about reaching machines from outside."""
    for one in reversed(_OPTIONS):
        command = one(command)
    return command


_OPTIONS = (
    click.option(
        "--push", metavar="FOLDER",
        help="Bring that working tree onto all machines, run COMMAND on each, and stay until done.",
    ),
    click.option("--install", default="", metavar="LINE",
                 help="A shell's line that each machine runs in the tree first."),
    click.option("--exclude", multiple=True, metavar="PATTERN", help="Leave that out of the tree."),
    click.option("--machines", "named", metavar="HOSTS",
                 help="Machines that are there: a,b,c or @FILE, instead of made ones."),
    click.option("--spares", type=int, metavar="S", help="So many of them wait for a loss."),
    click.option("--delete", is_flag=True,
                 help="Delete made machines that are lost, and make them again."),
    click.option("--through", type=click.Choice(["ssh", "gcloud", IAP]), default="ssh",
                 help="How made machines are reached; iap: gcloud, through its tunnel."),
    click.option("--ssh-user", default="", metavar="NAME", help="The user over there."),
    click.option("--ssh-key", default="", metavar="FILE", help="The key, as of ssh -i."),
    click.option("--ssh-config", default="", metavar="FILE", help="As of ssh -F."),
    click.option("--internal-ip", is_flag=True, help="Reach made machines within their network."),
    click.option("--program", default="holdfast", metavar="WORDS",
                 help="Holdfast's command over there."),
    click.option("--no-relay", is_flag=True,
                 help="Machines do not give the tree to one another: each gets it from here."),
)  # fmt: skip
NAMES = ("push", "install", "exclude", "named", "spares", "delete", "through", "ssh_user",
         "ssh_key", "ssh_config", "internal_ip", "program", "no_relay")  # fmt: skip


@dataclass(frozen=True, slots=True)
class PushAsked:
    """Those options, as they were given; `flags`: of `holdfast run`."""

    root: Path
    store: str
    flags: tuple[str, ...]
    command: tuple[str, ...]
    made_of: dict[str, Any]

    def check(self) -> None:
        """Raises ConfigurationError for what can be seen before anything is made."""
        needs_client("ssh" if self.made_of["through"] == "ssh" else "gcloud")
        listed(self.root, self.made_of["exclude"])


class MachineSource(Protocol):
    """Where the machines of a run come from."""

    def targets(self, *, is_late: bool) -> tuple[Target, ...]:
        """Those that are there and well, all of them or none; `is_late`: ask anew."""

    def over(self) -> str:
        """Why there will be none before a person acts; "": there may be."""


@dataclass(frozen=True, slots=True)
class NamedMachines:
    """They are there, whatever happens."""

    all_of_them: tuple[Target, ...]

    def targets(self, *, is_late: bool) -> tuple[Target, ...]:
        """Always the same."""
        del is_late
        return self.all_of_them

    def over(self) -> str:
        """Never."""
        return ""


@dataclass(slots=True)
class MadeMachines:
    """Machines that are looked after, and made again as far as that is allowed."""

    machines: Machines
    recovery: RunRecovery
    every_s: float
    is_internal: bool
    _found: tuple[Target, ...] = ()
    _next_s: float = 0.0
    _over: str = ""
    _said: str = ""

    def targets(self, *, is_late: bool) -> tuple[Target, ...]:
        """As their service tells, asked each `every_s`, and soon after one was lost."""
        now_s = time.monotonic()
        if now_s < self._next_s and not (is_late and now_s > self._next_s - self.every_s + SOON_S):
            return self._found
        decision = self.recovery.step()
        action = decision.action
        is_well = action.act is Act.REST
        self._over = decision.reason if action.act is Act.ASK or action.is_forbidden else ""
        self._found = self._targets(action.name) if is_well else ()
        if action.act is Act.WAIT and decision.reason != self._said:
            self._said = decision.reason
            say(decision.reason)
        is_moving = action.act in (Act.DELETE, Act.CREATE, Act.WAIT)
        self._next_s = now_s + (min(SOON_S, self.every_s) if is_moving else self.every_s)
        return self._found

    def over(self) -> str:
        """A creation that was refused, a deletion that is not allowed."""
        return self._over

    def _targets(self, name: str) -> tuple[Target, ...]:
        ours = next((one for one in self.recovery.seen if one.name == name), None)
        return () if ours is None else targets_of(ours, is_internal=self.is_internal)


def targets_of(resource: Resource, *, is_internal: bool = False) -> tuple[Target, ...]:
    """All hosts of all slices, in the order of their numbers. Raises ConfigurationError."""
    slices = sorted(resource.slices, key=_number)
    counts = sorted({len(one.addresses) for one in slices})
    if len(counts) > 1 or counts == [0]:
        told = ", ".join(f"{one.name} has {len(one.addresses)}" for one in slices)
        raise ConfigurationError(f"the slices are not alike: {told} hosts")
    found: list[Target] = []
    for number, one in enumerate(slices):
        for worker, (inside, outside) in enumerate(one.addresses):
            name = f"{one.name}-w{worker}"
            found.append(
                Target(
                    name=name,
                    index=len(found),
                    destination=inside if is_internal or not outside else outside,
                    alias=name,
                    slice=str(number) if len(slices) > 1 else "",
                    node=one.name,
                    worker=worker,
                    is_new=True,
                )
            )
    return tuple(found)


def _number(one: Slice) -> tuple[int, str]:
    """`lm-g1-10` comes after `lm-g1-9`."""
    last = one.name.rpartition("-")[2]
    return (int(last) if last.isdecimal() else 0, one.name)


@dataclass(slots=True)
class PushLoop:
    """One run, kept going from outside."""

    folder: RunFolder
    asked: PushAsked
    reach: Reach
    source: MachineSource
    packed_in: Path
    fleet: SshFleet = field(init=False)
    _known: tuple[Target, ...] = ()
    _newest: int = -1
    _is_late: bool = False
    _trouble: str = ""  # of the store, as it was said
    _asked_s: float = -SOON_S
    _ended: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.fleet = SshFleet(self.reach, self.folder.identity.run_id, None, say, self._log)
        self.fleet.is_over = self._may_be_over
        newest = attempts(self.folder).newest
        self._newest = -1 if newest is None or newest.end is None else newest.attempt

    def run(self, limit_s: float | None) -> int:
        """Until the run is over, a person must look, or `limit_s` has passed; the exit code."""
        began_s = time.monotonic()
        newest = attempts(self.folder).newest
        if newest is not None and newest.end is not None and newest.end.done:
            click.echo(f"run {self.folder.name!r} is done already; another needs another name")
            return EXIT_DONE
        try:
            while (code := self._turn()) is None:
                if limit_s is not None and time.monotonic() - began_s > limit_s:
                    why = "".join(f"; host {i}: {one.reason}" for i, one in self.fleet.steps.items()
                                  if one.step is HostAct.WAIT)  # fmt: skip
                    say(f"it is not done yet{why}; what runs goes on: give the command again")
                    return EXIT_UNAVAILABLE
            return code
        except KeyboardInterrupt:
            say("what runs goes on: the same command looks after it again, here or elsewhere; "
                f"`holdfast stop {self.folder.name}` stops it")  # fmt: skip
            return EXIT_SAVED_START_ME_AGAIN
        finally:
            self.fleet.close()

    def let_go(self, decision: Decision) -> None:
        """End what still runs beside a slice that was taken: it cannot go on, and goes too.

        A run on machines that are only unhealthy may train as ever, and is left alone.
        """
        if decision.record.condition is not Condition.PREEMPTED:
            return
        there = self._there()
        still = [one for one in self._known if one.name in there]
        self._ended |= {one.name for one in self.fleet.end(still, LET_GO_S)}

    def knows_gone(self, holder: RunHolder) -> bool:
        """Whether the machine of that holder is no more, or runs nothing of ours: that is known."""
        names = [n for n, boot in self.fleet.boot_ids.items() if boot == holder.boot_id]
        there = self._there()
        return len(names) == 1 and bool(names[0] in self._ended or names[0] not in there)

    def _there(self) -> set[str]:
        """The hosts of slices that may still run something."""
        if not isinstance(self.source, MadeMachines):
            return {one.name for one in self._known}
        well = {part.name for one in self.source.recovery.seen for part in one.slices
                if part.state is not SliceState.PREEMPTED}  # fmt: skip
        return {one.name for one in self._known if one.node in well}

    def _turn(self) -> int | None:
        """One look, and what is due; None: it goes on."""
        targets = self.source.targets(is_late=self._is_late)
        if why := self.source.over():
            say(f"a person has to act: {why}")
            return EXIT_UNAVAILABLE
        if not targets:
            time.sleep(BRIEF_S)
            return None
        if self.fleet.job is None or len(targets) != len(self._known):
            self._pack(targets)
        names = {one.name for one in targets}
        self.fleet.forget([one for one in self._known if one.name not in names])
        self._known = targets
        is_busy = self.fleet.step(targets)
        self._is_late = any(isinstance(one, Unreached) for one in self.fleet.told.values())
        if (code := self._over()) is not None:
            return code
        if not is_busy:
            time.sleep(BRIEF_S if self._is_late else LOOK_S)
        return None

    def _over(self) -> int | None:
        code, why = self.fleet.verdict, self.fleet.why
        is_quiet = all(one.step is not HostAct.REST for one in self.fleet.steps.values())
        with contextlib.suppress(StoreUnavailable):  # nothing is started before it is known
            if is_quiet and (end := self._end(SOON_S)) is not None:
                code = EXIT_DONE if end.done else EXIT_SAVED_START_ME_AGAIN
                again = f"`holdfast up {self.folder.name}` goes on"
                why = "" if end.done else f"it was stopped; {again}"
        if code is None:
            return None
        if code == EXIT_DONE:
            click.echo(f"run {self.folder.name!r}: done; see holdfast report {self.folder.name}")
        else:
            say(why)
        return code

    def _may_be_over(self) -> bool:
        """Whether nobody is to start the run again, or it is not known for now."""
        try:
            return self._end(0.0) is not None
        except StoreUnavailable as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                say(f"{error}; nothing is started again until the store tells how it ended")
            return True

    def _end(self, within_s: float) -> AttemptEnd | None:
        """How the run has ended since this began to look, if nobody is to start it again.

        The store is asked if that was not done `within_s`. Raises StoreUnavailable.
        """
        if time.monotonic() - self._asked_s >= within_s:
            refresh(self.folder.attempts_dir)
            self._asked_s = time.monotonic()
        newest = attempts(self.folder).newest
        end = None if newest is None or newest.attempt == self._newest else newest.end
        return end if end is not None and (end.done or end.cause == STOPPED) else None

    def _pack(self, targets: Sequence[Target]) -> None:
        """What they get, now that it is known how many they are."""
        asked, made_of = self.asked, self.asked.made_of
        spares = made_of["spares"] or 0
        submission = Submission(
            engine="ssh",
            run=self.folder.name,
            run_id=self.folder.identity.run_id,
            store=asked.store,
            hosts=len(targets) - spares,
            spares=spares,
            command=asked.command,
            flags=asked.flags,
        )
        is_ours = asked.store.startswith("gs://") and isinstance(self.source, MadeMachines)
        own = (("HOLDFAST_STORE_CREDENTIALS", "instance"),) if is_ours else ()
        self.fleet.job = pushed_job(
            submission,
            asked.root,
            made_of["exclude"],
            self.packed_in,
            install=made_of["install"],
            program=made_of["program"],
            environment=own,
            has_relay=not made_of["no_relay"],
        )
        say(f"{asked.root}: {self.fleet.job.tree.words}")

    def _log(self, index: int, text: str) -> None:
        for line in text.splitlines():
            coloured_line(f"h{index} {line}")


def keep_up(
    folder: RunFolder,
    asked: PushAsked,
    source_of: Callable[[PushLoop], MachineSource],
    reach: Reach,
    limit_s: float | None,
) -> int:
    """The exit code, once the run is over or a person must look."""
    with tempfile.TemporaryDirectory(prefix="holdfast-push-") as place:
        loop = PushLoop(folder, asked, reach, NamedMachines(()), Path(place))
        loop.source = source_of(loop)
        return loop.run(limit_s)


def reach_of(folder: RunFolder | None, made_of: dict[str, Any], machines: Machines | None) -> Reach:
    """How the machines are reached. Those that are made again have a list of keys of their own."""
    user = made_of["ssh_user"]
    config, key = (absolute(made_of[name]) for name in ("ssh_config", "ssh_key"))
    if machines is None or folder is None:
        return Reach(config, user, key)
    if made_of["through"] != "ssh":
        words = (f"--project={machines.project}", f"--zone={machines.zone}", "--quiet")
        tunnel = ("--tunnel-through-iap",) if made_of["through"] == IAP else ()
        inside = ("--internal-ip",) if made_of["internal_ip"] else ()
        return Reach(user=user, gcloud=(*words, *tunnel, *inside))
    path = agreed_path(folder)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return Reach(config, user, key, known_hosts=str(path.with_name(f"{path.stem}-known_hosts")))
