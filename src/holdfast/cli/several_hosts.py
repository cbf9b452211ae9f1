"""`holdfast run` on several hosts: the agent of this one, and the controller.

The controller is a process of its own, so that its end harms no rank. It is started with the same
command line, and takes the run's lease itself.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gc
import hmac
import os
import platform
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from holdfast.agent.launch import forget_imports, imports_path
from holdfast.agent.linked_agent import AgentPlace, LinkedAgent
from holdfast.agent.linked_hosts import LinkedHosts
from holdfast.agent.own_addresses import is_loopback, own_addresses
from holdfast.agent.standbys import StandbyJob
from holdfast.agent.supervisor import Screen, Supervisor
from holdfast.cli.exporting import beside
from holdfast.cli.job_end import end_lost_job
from holdfast.cli.supervise import (
    NoticeSources,
    RunAsked,
    RunStart,
    end_strays,
    memory_job,
    own_scratch,
    standby_job,
)
from holdfast.config import cluster_place, cluster_slice
from holdfast.config.kinds import HOT, ON, REPLACE
from holdfast.config.secret_file import read_secret_file
from holdfast.config.settings import Settings
from holdfast.controller.host_care import CarePolicy
from holdfast.controller.opening import running
from holdfast.core.durations import SECOND_NS
from holdfast.core.hosts.adoption import believed
from holdfast.core.hosts.alike import Alike, command_told
from holdfast.core.hosts.membership import HostLimits, Membership
from holdfast.core.hosts.placement import place
from holdfast.core.hosts.regroup import ElasticLimits
from holdfast.core.hosts.says import Over
from holdfast.core.hosts.stragglers import StragglerPolicy
from holdfast.core.hosts.suspicion import SuspicionPolicy
from holdfast.core.visible import clean
from holdfast.distribution import VERSION
from holdfast.errors import (
    EXIT_DONE,
    EXIT_SAVED_START_ME_AGAIN,
    ConfigurationError,
    RunHeld,
    StoreUnavailable,
)
from holdfast.journal.adopt import bring_home
from holdfast.journal.attempts import attempts
from holdfast.journal.hosts_table import read_hosts, tell_hosts
from holdfast.journal.learned_imports import ImportsKeeper
from holdfast.journal.lease import (
    LastWords,
    Lease,
    LeaseState,
    LeaseView,
    WatchedHolder,
    acquire,
    over_meanwhile,
    view,
)
from holdfast.journal.listening import Listening, run_secret, tell_listening
from holdfast.journal.quarantine import put_in_quarantine, quarantined, release
from holdfast.journal.store import RunFolder
from holdfast.journal.unlinked import unlinked_hosts
from holdfast.link.certificate import Certificate, make_certificate
from holdfast.link.server import LinkServer
from holdfast.link.values import Trust, beat_s

TRY_S = 0.2
# Objects before Python looks for garbage. It looks for cycles each 700, which the messages of ten
# hosts are; nearly all of them are gone by the end of a turn without that.
MOST_YOUNG = 50_000
MOST_SLICE = 64  # characters of a slice's name
FOR_LONG_NS = 2**62  # of silence: longer than anybody is waited for
AS_CONTROLLER = "--as-controller"
LOOPBACK = "127.0.0.1"
EVERYWHERE = "0.0.0.0"  # noqa: S104 - whoever dials proves that it knows the secret


def take_part(asked: RunAsked, controls: Sequence[str], *, ends_job: bool = False) -> int:
    """Be the agent of this host until the run is over; the exit code.

    `controls`: what the controller is started with, too. `ends_job`: see `cli.job_end`.
    """
    settings, folder, screen = asked.settings, asked.folder, asked.screen
    index = host_index(settings)
    secret = _secret(settings, folder)
    scratch = own_scratch(folder, settings, f"-host{index}")
    with _only_one(scratch, folder.identity.run_id, index, settings.host_lost_s) as mine:
        mine.callback(forget_imports, scratch)
        end_strays(folder, screen, index)
        for sentence in bring_home(folder, scratch, is_locked=True):
            screen.say("warning", sentence)
        memory = memory_job(settings, folder, screen, f"-host{index}")
        job = asked.job(scratch, memory, _standbys(asked), index)
        hosts = settings.hosts + settings.spares
        address = settings.host_address or ""
        of_slice = clean(settings.slice or cluster_slice())[:MOST_SLICE]
        told = address, _runs(asked, secret), secret, _listens_at(), of_slice
        here = AgentPlace(index, hosts, *told, settings.host_chips or 0)
        agent = LinkedAgent(folder, job, here, screen, partial(_start, controls))
        agent.listener = asked.notices.listener(agent.noticed, agent.say_later, job.grace_ns)
        asked.notices.say(screen)
        agent.upkeep.tasks.append(ImportsKeeper(folder, imports_path(scratch, 0)))
        over = agent.run()
    level = "info" if over.exit_code == EXIT_DONE else "warning"
    screen.say(level, f"host {index}: {over.words}")
    if ends_job:
        around = asked.notices.around.environment
        end_lost_job(folder, index, over.exit_code, around, screen.say)
    screen.close()
    return over.exit_code


def control(asked: RunAsked, watched: str) -> int:
    """Be the controller of the run, if nobody else is; the exit code.

    `watched`: what the agent has seen of the one before (`journal.lease.WatchedHolder`).
    """
    settings, folder, screen = asked.settings, asked.folder, asked.screen
    gc.set_threshold(MOST_YOUNG, *gc.get_threshold()[1:])
    secret = _secret(settings, folder)
    before = view(folder)
    is_left = before.state is LeaseState.RELEASED and before.last_words is None
    takes_over = is_left or before.state in (LeaseState.DEAD, LeaseState.UNKNOWN)
    known = _parse(watched)
    try:
        lease = acquire(folder, watched=known)
    except RunHeld:
        return EXIT_DONE  # another host's controller was faster
    if (words := over_meanwhile(lease, known.over_before)) is not None:
        lease.release(words)  # the agents read there how the run has ended
        return EXIT_DONE
    silent_ns = _silent_ns(folder, before) if lease.epoch == before.epoch + 1 else {}
    # The agents listen for notices, each on its own host.
    start = RunStart.of(asked._replace(notices=NoticeSources((), asked.notices.around)), lease)
    try:
        scratch = own_scratch(folder, settings, "-controller")
        runs = running(attempts(folder))
        start.adopt(scratch, but=None if runs is None else runs.attempt)
        start.since = None if runs is None else runs.epoch
        job = replace(asked.job(scratch, None, StandbyJob()), cache_bytes=None)
        addresses, at = own_addresses() or (LOOPBACK,), _listens_at()
        members = settings.hosts + settings.spares
        run, term = folder.identity.run_id, lease.epoch
        certificate = _certificate(at, screen)
        server = LinkServer(run, term, Trust(secret, certificate), (at,), hosts=members)
        limits = _limits(settings, takes_over=takes_over)
        linked: list[LinkedHosts] = []

        def hosts(supervisor: Supervisor) -> LinkedHosts:
            membership = Membership(settings.hosts, settings.spares, limits)
            found = LinkedHosts(
                supervisor,
                server,
                membership,
                _runs(asked, secret),
                job.policy.notice,
                place(job.policy.ranks, range(job.policy.hosts)),
                _care(settings),
                is_done=before.last_words is not None and before.last_words.exit_code == EXIT_DONE,
                elastic=_elastic(settings),
                store=settings.store,
                chips=settings.total_chips,
                silent_ns=silent_ns,
            )
            linked.append(found)
            with contextlib.suppress(StoreUnavailable):  # upkeep looks again
                found.quarantined(_quarantine(folder))
            found.care.has_store = lambda: supervisor.upkeep.has_store
            tasks = supervisor.upkeep.tasks
            tasks.append(partial(_tell_hosts, lease, found))
            tasks.append(partial(_look_who_is_unlinked, lease, found, supervisor.later))
            tasks.append(partial(_look_who_is_in_quarantine, lease, found, supervisor.later))
            return found

        def ended(words: LastWords) -> LastWords | None:
            return None if linked[0].has_given_up else words

        def told(words: LastWords) -> None:
            linked[0].end(Over(words.exit_code, words.words, words.leaves_memory))

        start.exporter = beside(settings, folder, asked.command.environment, screen)
        shown = "" if certificate is None else certificate.digest
        tell_listening(lease, Listening(addresses, server.port, VERSION, shown))
        code = start.run(job, hosts, ended, told)
        return EXIT_SAVED_START_ME_AGAIN if linked[0].has_given_up else code
    finally:
        start.close()


def _silent_ns(folder: RunFolder, before: LeaseView) -> dict[int, int]:
    """By part of the run, for how long its host was silent for the controller before this one.

    As that one has told of its hosts last. One that was followed for its own silence was on a
    machine that has been silent for longer than any host is waited for.
    """
    rows = read_hosts(folder, before.epoch) or ()
    parts = {row.trains_as: row.silent_ns for row in rows if row.trains_as is not None}
    found = believed({part: ns for part, ns in parts.items() if ns is not None}, len(parts))
    if before.state is LeaseState.UNKNOWN and before.holder is not None:
        boot = before.holder.boot_id
        there = [row.trains_as for row in rows if boot and row.boot == boot]
        if len(there) == 1 and there[0] is not None:
            found[there[0]] = FOR_LONG_NS
    return found


def _listens_at() -> str:
    """Where other hosts come to: a machine without a network is alone."""
    return LOOPBACK if all(map(is_loopback, own_addresses())) else EVERYWHERE


def _certificate(at: str, screen: Screen) -> Certificate | None:
    """For what goes over a network; on loopback only root can listen."""
    if is_loopback(at):
        return None
    certificate = make_certificate()
    if certificate is None:
        screen.say(
            "warning",
            "What the hosts tell one another is proved, but not encrypted: this host has neither "
            "openssl nor Python's cryptography (pip install 'holdfast-ml[tls]')",
        )
    return certificate


def _parse(watched: str) -> WatchedHolder:
    try:
        return WatchedHolder.parse(watched)
    except ValueError:
        raise ConfigurationError(
            f"{AS_CONTROLLER} {watched!r} is nothing that an agent says: it is for agents alone, "
            "which start the controller themselves"
        ) from None


def _standbys(asked: RunAsked) -> StandbyJob:
    settings = asked.settings
    if settings.standby == HOT:
        words = "--standby hot is for one host; with several, standbys import ahead, and no more"
        asked.screen.say("warning", words)
    return standby_job(settings, tuple(asked.command.argv))


def _tell_hosts(lease: Lease, hosts: LinkedHosts) -> None:
    """For people to look at; called by the upkeep thread."""
    rows = hosts.new_rows()
    with contextlib.suppress(StoreUnavailable):  # upkeep says so
        if rows is not None:
            tell_hosts(lease, rows)


def _look_who_is_unlinked(
    lease: Lease, hosts: LinkedHosts, later: Callable[[Callable[[], None]], None]
) -> None:
    """Others may go on without this controller, if it cannot; called by the upkeep thread."""
    if not hosts.lacks_hosts:
        return
    with contextlib.suppress(StoreUnavailable):
        if found := unlinked_hosts(lease.folder, lease.epoch):
            later(partial(hosts.unlinked, found))


def _look_who_is_in_quarantine(
    lease: Lease, hosts: LinkedHosts, later: Callable[[Callable[[], None]], None]
) -> None:
    """As people want it, and the run itself; called by the upkeep thread."""
    folder, care = lease.folder, hosts.care
    with contextlib.suppress(StoreUnavailable):
        for index in care.unreleased:
            release(folder, index, is_automatic=True)
        written = dict(care.unwritten)
        for index, why in written.items():
            put_in_quarantine(folder, index, why, is_automatic=True)
        later(partial(hosts.quarantined, _quarantine(folder), tuple(written)))


def _quarantine(folder: RunFolder) -> dict[int, tuple[str, bool]]:
    found = quarantined(folder).items()
    return {index: (clean(one.reason), one.is_automatic) for index, one in found}


def _care(settings: Settings) -> CarePolicy:
    suspicion = SuspicionPolicy(settings.quarantine_after)
    stragglers = StragglerPolicy(
        settings.straggler_percent,
        for_ns=round(settings.straggler_after_s * SECOND_NS),
        replaces=settings.straggler == REPLACE,
    )
    return CarePolicy(suspicion, stragglers, has_preflight=settings.preflight == ON)


def _limits(settings: Settings, *, takes_over: bool) -> HostLimits:
    """`takes_over`: from a controller that has died; hosts that live are heard at once then."""
    beat_ns = round(beat_s(settings.hosts + settings.spares) * SECOND_NS)
    usual, lost_ns = HostLimits(), max(round(settings.host_lost_s * SECOND_NS), 4 * beat_ns)
    gather_ns = lost_ns if takes_over else usual.gather_ns
    suspect_ns = max(min(usual.suspect_ns, lost_ns // 2), 2 * beat_ns)
    return HostLimits(suspect_ns, lost_ns, gather_ns)


def _elastic(settings: Settings) -> ElasticLimits | None:
    """None: all hosts are waited for."""
    if settings.elastic is None:
        return None
    back_ns, lost_ns = (round(s * SECOND_NS) for s in (settings.host_back_s, settings.host_lost_s))
    return ElasticLimits(settings.elastic, back_ns, lost_ns // 2)


def _start(controls: Sequence[str], watched: WatchedHolder) -> subprocess.Popen[bytes]:
    """In a session of its own: what a terminal sends is for the agents, which pass it on."""
    program = (sys.executable, "-P", "-m", "holdfast.cli.main")
    return subprocess.Popen(
        [*program, "run", AS_CONTROLLER, str(watched), *controls],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )


def _runs(asked: RunAsked, secret: bytes) -> Alike:
    """What is the same on all hosts."""
    settings = asked.settings
    return (
        ("Holdfast", VERSION),
        ("Python", platform.python_version()),
        command_told(asked.command.argv, partial(_digest, secret)),
        ("--hosts", str(settings.hosts)),
        ("--spares", str(settings.spares)),
        ("--ranks", str(settings.local_ranks)),
        ("--elastic", "off" if settings.elastic is None else str(settings.elastic)),
    )


def _digest(secret: bytes, text: str) -> str:
    return hmac.digest(secret, text.encode(errors="surrogatepass"), "sha256").hex()


def host_index(settings: Settings) -> int:
    """The flag's, else the cluster's; raises ConfigurationError."""
    hosts = settings.hosts + settings.spares
    of = f"--hosts {settings.hosts} and --spares {settings.spares} make hosts 0 to {hosts - 1}"
    if settings.host_index is not None:
        index, told_by = settings.host_index, "--host-index"
    else:
        place = cluster_place()
        if place is None:
            raise ConfigurationError(
                f"which of the hosts 0 to {hosts - 1} is this? Give each its own --host-index"
            )
        index, told_by = place.index, place.told_by
        if place.hosts is not None and place.hosts != hosts:
            raise ConfigurationError(
                f"{of}, and by {told_by} there are {place.hosts}: have one number in both"
            )
    if index >= hosts:
        raise ConfigurationError(f"host {index}, by {told_by}, cannot be: {of}")
    return index


def _secret(settings: Settings, folder: RunFolder) -> bytes:
    if settings.secret_file is None:
        return run_secret(folder)
    return read_secret_file(settings.secret_file, "the secret of the run's hosts")


def _only_one(scratch: Path, name: str, index: int, limit_s: float) -> ExitStack:
    """That nobody else is this host on this machine; raises RunHeld when another process is.

    The folder is locked for who looks at what lies there. A process of another scratch folder has
    a folder of its own, so a name that the machine gives to one process only is taken as well.
    Anybody may take it: where somebody else has, the folder is all there is.
    """
    give_up_s, alone_name = time.monotonic() + limit_s, f"holdfast/{name}/{index}"
    with ExitStack() as stack:
        lock = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        stack.callback(os.close, lock)
        alone = stack.enter_context(socket.socket(socket.AF_UNIX))
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                alone.bind(f"\0{alone_name}")  # it is nobody's file: it ends with us
            except OSError as error:
                if error.errno not in (errno.EWOULDBLOCK, errno.EADDRINUSE):
                    raise
                if time.monotonic() > give_up_s:
                    if error.errno == errno.EADDRINUSE and not _is_taken_by_us(alone_name):
                        return stack.pop_all()
                    raise RunHeld(
                        f"another process runs as host {index} of this run on this machine; give "
                        "each host an index of its own, or this run another name"
                    ) from None
                time.sleep(TRY_S)
            else:
                return stack.pop_all()


def _is_taken_by_us(name: str) -> bool:
    """Whether a process of this user holds that name of the machine's."""
    rows = Path("/proc/net/unix").read_text(errors="replace").splitlines()
    sockets = {f"socket:[{row.split()[6]}]" for row in rows if row.endswith(f" @{name}")}
    for held in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if str(held.readlink()) in sockets:
                return held.parents[1].stat().st_uid == os.getuid()
    return False
