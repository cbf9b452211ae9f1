"""Putting a supervisor together: store, lease, journal, policies; and its last words."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from holdfast.agent.fence import fence
from holdfast.agent.host_agent import HostAgent
from holdfast.agent.job import Command, Job
from holdfast.agent.launch import forget_imports, imports_path
from holdfast.agent.memory import MemoryJob
from holdfast.agent.programs import seed_programs
from holdfast.agent.standbys import StandbyJob
from holdfast.agent.supervisor import RunHosts, Screen, Supervisor
from holdfast.cache.seal import read_seal
from holdfast.cli.engine_waits import tell_waits
from holdfast.cli.exporting import beside, check_libraries
from holdfast.cli.places import known_run
from holdfast.config import (
    inherited_environment,
    listens,
    machine_started_unix_ns,
    resolve,
    start_of_job,
)
from holdfast.config.kinds import HOT, INSTANCE, OFF
from holdfast.config.settings import Settings
from holdfast.controller.asked import event_of
from holdfast.controller.journal import ControllerJournal
from holdfast.controller.opening import opened
from holdfast.controller.upkeep import LiveFiles
from holdfast.core.durations import SECOND_NS
from holdfast.core.notices.board import Notice
from holdfast.core.notices.plan import NoticePolicy, OnNotice
from holdfast.core.run.machine import RunPolicy, State
from holdfast.errors import ConfigurationError, HoldfastError, StoreUnavailable
from holdfast.export.asked import parse
from holdfast.journal.adopt import adopt
from holdfast.journal.attempts import attempts
from holdfast.journal.carrier import Carrier
from holdfast.journal.clocks import read_clock_pair
from holdfast.journal.control import ControlInbox, is_stop_asked
from holdfast.journal.elsewhere import telling
from holdfast.journal.folders import controller_journal
from holdfast.journal.learned_imports import ImportsKeeper
from holdfast.journal.lease import LastWords, Lease, acquire
from holdfast.journal.names import check_name, default_name, new_id
from holdfast.journal.replicate import Replicator
from holdfast.journal.scratch import BASES, scratch_dir
from holdfast.journal.store import RunFolder, RunStore
from holdfast.journal.writer import JournalWriter
from holdfast.notices.found import has_accelerator
from holdfast.notices.protocol import Clocks, SourceSurroundings
from holdfast.notices.registry import WantedSource, check_options, wanted
from holdfast.snapshot.keep import Keep
from holdfast.snapshot.ram_folder import claim_ram, reclaim
from holdfast.standby.command import standby_argv

if TYPE_CHECKING:
    from holdfast.agent.exporter import ExportProcess
    from holdfast.notices.listener import Listener

CARRY_LIMIT_S = 60.0  # for the last records, to an object store


class RunAsked(NamedTuple):
    """What `holdfast run` was asked for, with what of it was found to be there."""

    settings: Settings
    command: Command
    folder: RunFolder
    notices: NoticeSources
    look: str
    screen: Screen

    def job(
        self, scratch: Path, memory: MemoryJob | None, standby: StandbyJob, host: int | None = None
    ) -> Job:
        """For the processes of this host. `host`: which of several it is; None: it is the only one.

        Raises ConfigurationError for a key of the compile cache that cannot be used.
        """
        settings = self.settings
        key = settings.cache_key_file
        return Job(
            command=self.command,
            policy=run_policy(settings, self.notices.around),
            keep=Keep(last=settings.keep_last),
            grace_ns=int(settings.grace_s * SECOND_NS),
            chips=settings.total_chips,
            store=str(self.folder.path.parent),
            incarnation=new_id(),
            scratch=scratch,
            memory=memory,
            standby=standby,
            cache_bytes=settings.compile_cache_bytes,
            cache_seal=None if key is None else read_seal(key),
            declared=settings.declared(),
            host=host,
            tells_frameworks=settings.ranks is not None or settings.has_several_hosts,
        )


def prepare(
    settings: Settings,
    command: tuple[str, ...],
    screen: Screen,
    *,
    fresh: bool = False,
    is_known: bool = False,
    wait_s: float = 0.0,
) -> RunAsked:
    """Look whether all is there that a run needs, and open the run.

    `fresh`: a new one; one that has the name is set aside first. `is_known`: it is there already,
    or so many seconds later, when the store is mounted.

    Raises StoreUnavailable, ConfigurationError.
    """
    place = _working_directory()
    around = SourceSurroundings(inherited_environment())
    sources = wanted(settings.notice, around)
    if not settings.has_several_hosts:  # else each host has its own
        check_options(sources, around)
    check_libraries(parse(settings.export or ""))
    if settings.cache_key_file is not None:
        read_seal(settings.cache_key_file)
    if settings.has_several_hosts and fresh:
        raise ConfigurationError(
            "--fresh is for a run of one host: each of several would set it aside; give it another "
            "--name, or take it away with `holdfast rm` first"
        )
    if settings.elastic is not None and settings.elastic > settings.hosts:
        raise ConfigurationError(
            f"--elastic {settings.elastic} is the least number of hosts, and --hosts "
            f"{settings.hosts} all of them: have it no larger"
        )
    name = check_name(settings.name) if settings.name else default_name(command)
    look = _report_command(name, settings.store)
    store = RunStore.at(
        settings.store, mirror=settings.mirror, instance=settings.store_credentials == INSTANCE
    )
    if is_known and fresh:
        raise ConfigurationError("--fresh makes a new run, and --known begins none: leave one out")
    if fresh:
        _set_aside(store, name, screen)
    folder = (
        known_run(store, name, wait_s, partial(screen.say, "warning"))
        if is_known
        else store.open(name, command=command)
    )
    environment = inherited_environment() | listens(bool(sources)) | telling(folder.path.parent)
    return RunAsked(
        settings,
        Command(command, place, environment),
        folder,
        NoticeSources(sources, around),
        look,
        screen,
    )


def supervise(asked: RunAsked) -> int:
    """Be the controller and the only agent, until the run is done or stopped; the exit code.

    Raises RunHeld, StoreUnavailable before anything is started.
    """
    settings, folder, screen = asked.settings, asked.folder, asked.screen
    start = RunStart.of(asked, acquire(folder, on_wait=lambda words: screen.say("info", words)))
    try:
        job = asked.job(
            start.claim_scratch(settings),
            memory_job(settings, folder, screen),
            standby_job(settings, tuple(asked.command.argv)),
        )
        start.exporter = beside(settings, folder, asked.command.environment, screen)

        def agent(supervisor: Supervisor) -> HostAgent:
            found = HostAgent(folder, job, supervisor.selector, supervisor.upkeep, supervisor)
            if (exporter := start.exporter) is not None:
                found.spared = lambda: exporter.pids
            return found

        return start.run(job, agent)
    finally:
        start.close()


def _set_aside(store: RunStore, name: str, screen: Screen) -> None:
    from holdfast.journal.moving import set_aside

    aside = set_aside(store, name, lambda words: screen.say("info", words))
    if aside is not None:
        screen.say("info", f"Starting anew: the earlier run {name!r} is kept as {aside!r}")


def _report_command(name: str, store: str) -> str:
    """What to type for the run's report, in the folder and with the variables of here."""
    words = ["holdfast", "report", name, "--store", store]
    with contextlib.suppress(ConfigurationError):  # of a ./holdfast.toml that --config passes by
        if resolve({}).settings.store == store:
            words = words[:3]
    return shlex.join(words)


def run_policy(settings: Settings, around: SourceSurroundings) -> RunPolicy:
    """What the run's machine decides by, on a host with these surroundings."""
    return RunPolicy(
        ranks=settings.local_ranks * settings.hosts,
        hosts=settings.hosts,
        save=settings.save_policy(),
        save_in_memory=settings.snapshot_policy(),
        restart=settings.restart_policy(),
        hang=settings.hang_policy(),
        notice=NoticePolicy(OnNotice(settings.on_notice), has_accelerator(around)),
        hold_finished_ns=round(settings.hold_finished_s * SECOND_NS),
        has_standbys=settings.standby != OFF,
        replicates=settings.hosts > 1,
        is_elastic=settings.elastic is not None,
        chips=settings.total_chips,
    )


def standby_job(settings: Settings, command: tuple[str, ...]) -> StandbyJob:
    """What this host keeps ready for the next attempt.

    With several hosts nothing runs ahead of its attempt: only with that is it known where the ranks
    meet.
    """
    if settings.standby == OFF:
        return StandbyJob()
    runs_ahead = not settings.has_several_hosts
    is_hot = settings.standby == HOT and runs_ahead
    return StandbyJob(standby_argv(command)[0], is_hot, runs_ahead)


def memory_job(
    settings: Settings, folder: RunFolder, screen: Screen, part: str = ""
) -> MemoryJob | None:
    """The run's folder of the memory tier; None: there is none, and a word on why.

    `part`: which of several hosts on one machine this is.
    """
    if not settings.memory_buffers:
        return None
    base, key = Path(settings.memory_dir), folder.scratch_key + part
    reclaim(base, but=key)
    try:
        return MemoryJob(claim_ram(base, key), settings.memory_buffers)
    except StoreUnavailable as error:
        screen.say("warning", f"{error}; what is saved is saved to the run store alone")
        return None


class NoticeSources(NamedTuple):
    """Which sources of notices are listened to, and where they are."""

    sources: tuple[WantedSource, ...]
    around: SourceSurroundings

    def listener(
        self,
        heard: Callable[[Notice], None],
        say: Callable[[str, str], None],
        grace_ns: int,
    ) -> Listener | None:
        """None where there is no source: then nothing of it is even imported."""
        if not self.sources:
            return None
        from holdfast.notices.listener import Listener

        return Listener(
            self.sources,
            self.around,
            clock=lambda: Clocks(*read_clock_pair()),
            heard=heard,
            say=say,
            grace_ns=grace_ns,
        )

    def say(self, screen: Screen) -> None:
        """Tell people which they are."""
        for one in self.sources:
            screen.say("info", f"Listening for notices from {one.name}: {one.why}")

    def settle(self, notices: Sequence[Notice], screen: Screen) -> None:
        """Tell the sources that these may happen: the run has nothing on this host any more."""
        from holdfast.notices.settle import settle

        clock = lambda: Clocks(*read_clock_pair())  # noqa: E731
        settle(self.sources, self.around, notices, clock=clock, say=screen.say)


@dataclass(slots=True)
class RunStart:
    """One start of a run: what it holds until it is over, in the store and on this host.

    `look`: what to type for the run's report.
    """

    folder: RunFolder
    lease: Lease
    carrier: Carrier
    screen: Screen
    notices: NoticeSources
    look: str
    exporter: ExportProcess | None = None
    since: int | None = None  # of what may go on: since that lease it is asked for things

    @classmethod
    def of(cls, asked: RunAsked, lease: Lease) -> RunStart:
        """By whoever holds the run now."""
        folder, screen = asked.folder, asked.screen
        carrier = Carrier(folder, lambda words: screen.say("warning", words))
        return cls(folder, lease, carrier, screen, asked.notices, asked.look)

    def claim_scratch(self, settings: Settings) -> Path:
        """The run's scratch folder, with what an earlier start has left there seen to."""
        scratch = own_scratch(self.folder, settings)
        end_strays(self.folder, self.screen)
        self.adopt(scratch)
        return scratch

    def adopt(self, scratch: Path, but: int | None = None) -> None:
        """Bring home what lies there, and close attempts that nobody ended.

        `but`: that one may run still.
        """
        for sentence in adopt(self.folder, scratch, but=but):
            self.screen.say("warning", sentence)

    def run(
        self,
        job: Job,
        hosts: Callable[[Supervisor], RunHosts],
        ended: Callable[[LastWords], LastWords | None] = lambda words: words,
        told: Callable[[LastWords], None] = lambda _: None,
    ) -> int:
        """Until the run is over here; the exit code.

        `ended(words)`: what goes on record of it; None: the run goes on elsewhere. `told`: called
        once that is on record, unless somebody has taken over the run before.
        """
        supervisor = self._supervisor(job, hosts)
        place = job.memory.folder.path if job.memory is not None else None
        looks_back_ns = job.policy.restart.looks_back_ns
        try:
            finish = supervisor.run(opened(self.folder, looks_back_ns, place))
        finally:
            forget_imports(job.scratch)
        self.carrier.close(CARRY_LIMIT_S)
        code = finish.exit_code
        level = "info" if code == 0 else "warning" if code == 75 else "error"
        self.screen.say(level, f"run {self.folder.name!r}: {finish.words}; see {self.look}")
        by_person = supervisor.machine.course.stopping.is_by_person
        with contextlib.suppress(HoldfastError):  # asked for since the supervisor has looked last
            by_person = by_person or is_stop_asked(self.folder, self.lease.epoch)
        words = ended(
            LastWords(code, finish.words, finish.leaves_memory, by_person, start_of_job())
        )
        counts = True
        with contextlib.suppress(HoldfastError):  # the next start, elsewhere, need not wait for us
            counts = self.lease.end(words)
        if words is not None and counts:
            told(words)
        if finish.settled:
            self.notices.settle(finish.settled, self.screen)
        if self.exporter is not None:
            # Not before: while the lease is held its last look sees a run that runs.
            self.exporter.close()
        self.screen.close()
        return code

    def _supervisor(self, job: Job, hosts: Callable[[Supervisor], RunHosts]) -> Supervisor:
        folder, epoch, screen = self.folder, self.lease.epoch, self.screen
        name = controller_journal(epoch)
        live = job.scratch / Path(name).stem / name
        live.parent.mkdir(mode=0o700, exist_ok=True)
        writer = JournalWriter.create(
            live, ControllerJournal.identity(folder, epoch, job.incarnation)
        )
        journal = ControllerJournal(writer)
        journal.booted(_machine_start(folder))
        journal.begun_by(start_of_job())
        supervisor = Supervisor(folder, self.lease, job, journal, screen, hosts)
        supervisor.listener = self.notices.listener(
            supervisor.noticed, supervisor.say_later, job.grace_ns
        )
        self.notices.say(screen)
        tell_waits(folder, self.notices.around.environment, supervisor.say_later)
        upkeep = supervisor.upkeep
        upkeep.add(LiveFiles(live.parent, [Replicator(live, folder.journal_dir / live.name)]))
        inbox = ControlInbox(folder, epoch)
        upkeep.tasks.append(lambda: self._obey(supervisor, inbox))
        if job.host is None:  # else each agent keeps its own
            upkeep.tasks.append(ImportsKeeper(folder, imports_path(job.scratch, 0)))
        if (exporter := self.exporter) is not None:
            exporter.look()
            upkeep.tasks.append(exporter.look)
        if job.cache is not None:
            warn = partial(screen.say, "warning")
            supervisor.at_close.append(
                seed_programs(folder, job.cache, job.cache_bytes or 0, job.cache_seal, warn)
            )
        return supervisor

    def _obey(self, supervisor: Supervisor, inbox: ControlInbox) -> None:
        """What was asked of an earlier controller counts too, if its attempt goes on."""
        if self.since is not None:
            course = supervisor.machine.course
            if course.state in (State.NEW, State.LAUNCHING) and not course.is_on_record:
                return
            inbox.since, self.since = self.since if course.is_adopted else None, None
        _obey(supervisor, inbox)

    def close(self) -> None:
        """Give back what is still held, however far it came."""
        with contextlib.suppress(HoldfastError):
            self.lease.release()
        self.carrier.close(CARRY_LIMIT_S)
        if self.exporter is not None:
            self.exporter.close()


def own_scratch(folder: RunFolder, settings: Settings, part: str = "") -> Path:
    """Where this process keeps what is live. `part`: which of several on one machine it is."""
    bases = (Path(settings.scratch),) if settings.scratch else BASES
    return scratch_dir(folder.scratch_key + part, bases=bases)


def end_strays(folder: RunFolder, screen: Screen, host: int | None = None) -> None:
    """End what an earlier start has left running on this host."""
    if ended := fence(folder.identity.run_id, host, folder=folder.path):
        pids = ", ".join(map(str, ended))
        screen.say(
            "warning",
            f"Processes {pids} of an earlier start were still running; they were killed",
        )


def _machine_start(folder: RunFolder) -> int | None:
    """When this machine began to get ready for the run; None: it has run it before, or is no such.

    Unix nanoseconds.
    """
    started = machine_started_unix_ns()
    newest = attempts(folder).newest
    if started is None or (newest is not None and newest.created_unix_ns > started):
        return None
    return started


def _working_directory() -> str:
    """Where the command runs; raises ConfigurationError when that folder is gone."""
    try:
        return str(Path.cwd())
    except OSError as error:
        raise ConfigurationError(
            f"the working directory does not exist any more ({error}); change it"
        ) from error


def _obey(supervisor: Supervisor, inbox: ControlInbox) -> None:
    """What people asked for through the store; called by the upkeep thread."""
    try:
        taken = inbox.take()
    except HoldfastError:
        return  # the store is away: upkeep says so
    for words in taken.ignored:
        supervisor.say_later("warning", words)
    for asked in taken.requests:
        supervisor.post(event_of(asked))
