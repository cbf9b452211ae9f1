"""The engine `ssh`: an order is taken once the run is started on all of its hosts."""

from __future__ import annotations

import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast.config.secret_file import read_secret_file
from holdfast.core.hosts.engine import EngineHost, HostStage, Submission
from holdfast.core.hosts.reach import JobState, ReachedHost, Unreached
from holdfast.engines.protocol import EngineError, Ordered, OrderStanding
from holdfast.engines.ssh.archive import listed, packed
from holdfast.engines.ssh.job import PushJob
from holdfast.engines.ssh.spread import SshFleet, refuse, started
from holdfast.engines.ssh.words import Reach, Target, is_destination
from holdfast.errors import ConfigurationError

LOOK_S = 0.5
LIMIT_S = 600.0  # for hosts that do not answer
GRACE_S, LEAVE_S = 30.0, 5.0  # of `holdfast run`, and until it has left beyond it
FILES = ("ssh-config", "key")  # options that name one
SECRET_FLAG = "--secret-file"  # noqa: S105 - the option's name


def pushed_job(
    submission: Submission,
    root: Path,
    exclude: Sequence[str],
    folder: Path,
    *,
    install: str = "",
    program: str = "",
    environment: tuple[tuple[str, str], ...] = (),
    has_relay: bool = True,
) -> PushJob:
    """What hosts get, from what the user says. Raises ConfigurationError."""
    flags, secret = _without_secret(submission.flags)
    if secret is None and "://" in submission.store:
        raise ConfigurationError(
            f"the hosts of a run in {submission.store} need a secret that the store does not "
            f"have: name it with {SECRET_FLAG}, and it is pushed too"
        )
    wanted = replace(submission, flags=flags)
    tree = packed(root, exclude, folder)
    words = tuple(shlex.split(program)) or ("holdfast",)
    return PushJob(wanted, tree, install, secret, words, environment, has_relay)


def hosts_named(text: str) -> tuple[str, ...]:
    """`a,b,c`, or `@FILE`; raises ConfigurationError for none, doubles, and what is no host."""
    if text.startswith("@"):
        try:
            lines = Path(text[1:]).expanduser().read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"{text[1:]} cannot be read ({error})") from error
        names = [line.partition("#")[0].strip() for line in lines]
    else:
        names = [one.strip() for one in text.split(",")]
    found = [one for one in names if one]
    if not found:
        raise ConfigurationError("no hosts were named: a,b,c, or @FILE with one a line")
    seen: set[str] = set()
    for one in found:
        if not is_destination(one):
            raise ConfigurationError(f"{one!r} is no host for ssh; write HOST or USER@HOST")
        if one in seen:
            raise ConfigurationError(f"host {one} is named twice: each is one host of the run")
        seen.add(one)
    return tuple(found)


def targets_of(names: Sequence[str]) -> tuple[Target, ...]:
    """In the order in which they are named, which gives each its number."""
    return tuple(Target(name, index, name) for index, name in enumerate(names))


def absolute(path: str) -> str:
    """As `ssh` finds it from every folder; "": none was named."""
    return str(Path(path).expanduser().absolute()) if path else ""


def needs_client(program: str = "ssh") -> None:
    """Raises ConfigurationError where that program is not installed."""
    if shutil.which(program) is None:
        raise ConfigurationError(f"there is no {program} on this machine: install it first")


@dataclass(slots=True)
class SshEngine:
    """Machines that are there, by their names; see `holdfast.engines.protocol.Engine`."""

    options: Mapping[str, str]
    names: tuple[str, ...]
    reach: Reach
    say: Callable[[str], None] = lambda _words: None

    @classmethod
    def of(cls, options: Mapping[str, str], environment: Mapping[str, str]) -> SshEngine:
        """From the engine's options."""
        del environment
        if options.get("relay", "on") not in ("on", "off"):
            raise ConfigurationError(
                f"--option relay={options['relay']!r} is not valid: write on or off"
            )
        needs_client()
        if "hosts" not in options:
            raise ConfigurationError("name the hosts: --option hosts=a,b,c, or hosts=@FILE")
        config, key = (absolute(options.get(name, "")) for name in FILES)
        reach = Reach(config, options.get("user", ""), key)
        return cls(options, hosts_named(options["hosts"]), reach)

    def check(self, submission: Submission) -> None:
        """As many hosts as the run wants."""
        if len(self.names) != submission.all_hosts:
            raise ConfigurationError(
                f"-o hosts names {len(self.names)}, and the run wants {submission.all_hosts} "
                f"(--hosts {submission.hosts} --spares {submission.spares})"
            )
        listed(self._root, self._exclude)

    def preview(self, submission: Submission) -> str:
        """What would be pushed, and the command of each host."""
        self.check(submission)
        with tempfile.TemporaryDirectory() as folder:
            job = self._job(submission, Path(folder))
            lines = [f"push {self._root}: {job.tree.words}"]
            lines += [f"install: {job.install}"] if job.install else []
            for one in targets_of(self.names):
                words = [f"~/.holdfast/pushed/{submission.run_id}/secret" if w is None else w
                         for w in job.words(one, "")]  # fmt: skip
                lines.append(f"{one.name}: {shlex.join(words)}")
        return "\n".join(lines) + "\n"

    def submit(self, submission: Submission) -> Ordered:
        """Push, install and start; returns once the run is started everywhere."""
        with tempfile.TemporaryDirectory() as folder:
            job = self._job(submission, Path(folder))
            self.say(f"push {self._root}: {job.tree.words}")
            fleet = SshFleet(self.reach, submission.run_id, job, self.say)
            try:
                self._until_started(fleet)
            finally:
                fleet.close()
        self.say(
            "nobody looks after the hosts from now on: where one is rebooted or the run is killed, "
            "it is not started again; `holdfast up --machines` stays, and does that"
        )
        words = f"started over SSH on {len(self.names)} hosts"
        return Ordered(self._kept(submission), submission.run_id, words, time.time_ns())

    def find(self, run_id: str) -> str:
        """The hosts on which it runs."""
        told = self._look(run_id)
        names = [self.names[i] for i, one in told.items()
                 if isinstance(one, ReachedHost) and one.job is JobState.RUNNING]  # fmt: skip
        return f"on {', '.join(names)}" if names else ""

    def standing(self, ordered: Ordered) -> OrderStanding:
        """Each host, as it says itself."""
        hosts = tuple(self._as_host(i, one) for i, one in self._look(ordered.job).items())
        count = sum(one.stage is HostStage.READY for one in hosts)
        is_over = all(one.stage is HostStage.GONE for one in hosts)
        return OrderStanding(f"it runs on {count} of {len(hosts)} hosts", hosts, is_over)

    def replace(self, ordered: Ordered, host: str, reason: str) -> str:
        """There are no others."""
        raise ConfigurationError(
            f"{host} cannot be replaced ({reason}): the hosts of run {ordered.submission.run!r} "
            "are those that were named; submit it again with another in its place"
        )

    def release(self, ordered: Ordered) -> str:
        """End what runs on them; their trees stay."""
        fleet = SshFleet(self.reach, ordered.job, None, self.say)
        targets = targets_of(self.names)
        try:
            ended = fleet.end(targets, _grace_s(ordered.submission) + LEAVE_S)
        finally:
            fleet.close()
        if len(ended) < len(targets):
            missed = [one.name for one in targets if one not in ended]
            raise EngineError(f"{', '.join(missed)} could not be told; the others have ended")
        return f"ended on {len(targets)} hosts"

    def _kept(self, submission: Submission) -> Submission:
        """For later commands, begun in other folders, when a list of hosts may be another one."""
        options = dict(submission.options) | {"hosts": ",".join(self.names)}
        for name in FILES:
            if name in options:
                options[name] = absolute(options[name])
        return replace(submission, options=tuple(options.items()))

    @property
    def _root(self) -> Path:
        return Path(self.options.get("push", ".")).expanduser()

    @property
    def _exclude(self) -> list[str]:
        return [one for one in self.options.get("exclude", "").split(",") if one]

    def _job(self, submission: Submission, folder: Path) -> PushJob:
        return pushed_job(
            submission,
            self._root,
            self._exclude,
            folder,
            install=self.options.get("install", ""),
            program=self.options.get("program", ""),
            has_relay=self.options.get("relay", "on") != "off",
        )

    def _until_started(self, fleet: SshFleet) -> None:
        targets = targets_of(self.names)
        give_up_s = time.monotonic() + LIMIT_S
        while not started(fleet):
            was_busy = fleet.step(targets)
            refuse(fleet)
            if was_busy or started(fleet):
                give_up_s = time.monotonic() + LIMIT_S
            elif time.monotonic() > give_up_s:
                raise EngineError("; ".join(sorted({one.reason for one in fleet.steps.values()})))
            else:
                time.sleep(LOOK_S)

    def _look(self, run_id: str) -> dict[int, ReachedHost | Unreached]:
        fleet = SshFleet(self.reach, run_id, None, self.say)
        try:
            return fleet.look(targets_of(self.names))
        finally:
            fleet.close()

    def _as_host(self, index: int, one: ReachedHost | Unreached) -> EngineHost:
        name = self.names[index]
        if isinstance(one, Unreached):
            is_gone = one.needs_person and not one.may_be_here
            stage = HostStage.GONE if is_gone else HostStage.COMING
            return EngineHost(name, stage, index, one.words)
        if one.job is not JobState.ENDED:
            is_running = one.job is JobState.RUNNING
            return EngineHost(name, HostStage.READY if is_running else HostStage.COMING, index)
        reason = f"the run has ended there, with {one.job_code}"
        if one.job_code is None:
            reason = "it was rebooted, or the run was killed there, and nobody has started it again"
        return EngineHost(name, HostStage.GONE, index, reason)


def _grace_s(submission: Submission) -> float:
    """From SIGTERM until the run has left, as it was told."""
    flags = list(submission.flags)
    return float(flags[flags.index("--grace") + 1]) if "--grace" in flags else GRACE_S


def _without_secret(flags: Sequence[str]) -> tuple[tuple[str, ...], str | None]:
    if SECRET_FLAG not in flags:
        return tuple(flags), None
    at = list(flags).index(SECRET_FLAG)
    secret = read_secret_file(flags[at + 1], "the secret of the run's hosts").decode()
    return (*flags[:at], *flags[at + 2 :]), secret
