"""`holdfast agent`: the host's daemon for jobs that Holdfast did not start, and its status."""

from __future__ import annotations

import json
import os
import shlex
import sys
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.agent.daemon.holders import DEVICES, SPARED, Scan
from holdfast.agent.daemon.release import ReleaseStep
from holdfast.agent.daemon.state_folder import StateFolder, default_folder, read_status
from holdfast.cli.seconds import Seconds
from holdfast.config.trusted import Untrusted, own_uids
from holdfast.core.daemon.autocheckpoint import GRACE_NS, Autocheckpoint, Policy
from holdfast.core.durations import SECOND_NS, seconds_in_words
from holdfast.errors import ConfigurationError

if TYPE_CHECKING:
    from holdfast.agent.daemon.autocheckpoint import AutocheckpointAgent
    from holdfast.core.daemon.events import DeviceHolder
    from holdfast.core.notices.board import Notice
    from holdfast.notices.protocol import SourceSurroundings
    from holdfast.notices.registry import WantedSource

LONGEST_GRACE_S = 86_400.0


@click.group(invoke_without_command=True)
@click.option(
    "--autocheckpoint",
    is_flag=True,
    help="Signal the processes; without this flag nothing is done.",
)
@click.option("--notice", metavar="SOURCES", help="Where warnings come from: gce,file:PATH; auto.")
@click.option(
    "--devices",
    metavar="GLOBS",
    default=",".join(DEVICES),
    show_default=True,
    help="Which files are devices; with commas between them.",
)
@click.option(
    "--spare",
    metavar="NAMES",
    default=",".join(SPARED),
    show_default=True,
    help="Programs that are neither signalled nor waited for.",
)
@click.option(
    "--grace",
    "grace_s",
    metavar="S",
    type=Seconds(most=LONGEST_GRACE_S),
    default=GRACE_NS / SECOND_NS,
    show_default=True,
    help="How long processes get to save and leave.",
)
@click.option(
    "--release", metavar="COMMAND", help="Run when they have; split into words, no shell."
)
@click.option("--release-file", metavar="FILE", help="Touch FILE when they have.")
@click.option(
    "--release-event",
    is_flag=True,
    help="When all have left, tell the cloud that its event need not wait (Azure).",
)
@click.option(
    "--metrics", metavar="PORT", type=click.IntRange(0, 65535), help="For Prometheus, on loopback."
)
@click.option("--state", metavar="FOLDER", help="Where it keeps its state.")
@click.option("--dry-run", is_flag=True, help="Say what a notice would do now, and do nothing.")
@click.pass_context
def agent(context: click.Context, /, **flags: Any) -> None:
    """Have jobs that Holdfast did not start save and leave before their host is taken.

    Upon a notice every process that holds an accelerator gets one SIGTERM. When all have left, or
    the time is over, the release step is run, and it is said who has left and who has not.
    """
    if context.invoked_subcommand is not None:
        return
    scan = Scan(_words(flags["devices"], "--devices"), _words(flags["spare"], None))
    release = _release(flags["release"], flags["release_file"])
    if flags["dry_run"]:
        _rehearse(scan, release, flags)
        return
    if not flags["autocheckpoint"]:
        raise ConfigurationError(
            "the agent does nothing that is not asked for: start it with --autocheckpoint, or see "
            "what it would do with --dry-run"
        )
    sys.exit(_serve(scan, release, flags))


@agent.command()
@click.option("--state", metavar="FOLDER", help="The agent's folder, if it was given one.")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
def status(state: str | None, as_json: bool) -> None:
    """Say what the agent of this host does, and what came of the last notice."""
    known = read_status(_folder(state))
    if as_json:
        json.dump(known, sys.stdout, indent=1)
        print()
        return
    for line in _status_lines(known):
        click.echo(line)


def _serve(scan: Scan, release: ReleaseStep, flags: dict[str, Any]) -> int:
    from holdfast.agent.daemon.autocheckpoint import AutocheckpointAgent
    from holdfast.cli.printer import Printer, RawText
    from holdfast.config import inherited_environment
    from holdfast.core.visible import sentence
    from holdfast.journal.clocks import read_clock_pair
    from holdfast.notices.listener import Listener
    from holdfast.notices.protocol import Clocks, SourceSurroundings

    around = SourceSurroundings(inherited_environment())
    sources = _sources(flags["notice"], around)
    folder = StateFolder(_folder(flags["state"]))
    folder.claim()
    printer, stderr = Printer(), RawText(sys.stderr.fileno())

    def say(level: str, words: str) -> None:
        mark = "" if level == "info" else "! "
        printer.put(lambda: print(f"holdfast: {mark}{sentence(words)}", file=stderr))

    machine = Autocheckpoint(Policy(_grace_ns(flags)), folder.inherit())
    daemon = AutocheckpointAgent(machine, scan, folder, release, say)
    daemon.listener = Listener(
        sources,
        around,
        clock=lambda: Clocks(*read_clock_pair()),
        heard=daemon.noticed,
        say=daemon.say_later,
        changed=daemon.write_later,
        grace_ns=_grace_ns(flags),
        since_unix_ns=folder.since_unix_ns,
        trusted_uids=own_uids(),
    )
    if flags["release_event"]:
        daemon.settle = partial(_settle, daemon, sources, around)
    for one in sources:
        say("info", f"Listening for notices from {one.name}: {one.why}")
    close = None
    if flags["metrics"] is not None:
        from holdfast.agent.daemon.metrics import AgentCollector
        from holdfast.export.served import serve

        collector = AgentCollector(lambda: daemon.snapshot)
        port, close = serve(collector, flags["metrics"], "--metrics")
        say("info", f"metrics: http://127.0.0.1:{port}/metrics")
    try:
        daemon.run()
    finally:
        if close is not None:
            close()
        folder.close()
        printer.close()
    return 0


def _settle(
    daemon: AutocheckpointAgent,
    sources: tuple[WantedSource, ...],
    around: SourceSurroundings,
    notices: Sequence[Notice],
) -> None:
    """Tell the cloud, in a thread beside: the agent goes on meanwhile."""
    from holdfast.journal.clocks import read_clock_pair
    from holdfast.notices.protocol import Clocks
    from holdfast.notices.settle import settle

    clock = lambda: Clocks(*read_clock_pair())  # noqa: E731
    tell = partial(settle, sources, around, notices, clock=clock, say=daemon.say_later)
    threading.Thread(target=tell, name="holdfast-settle", daemon=True).start()


def _sources(text: str | None, around: SourceSurroundings) -> tuple[WantedSource, ...]:
    """What it listens to; raises ConfigurationError where there is nothing to hear."""
    from holdfast.config import resolve
    from holdfast.notices.registry import wanted

    sources = wanted(resolve({"notice": text}).settings.notice, around)
    if not sources:
        raise ConfigurationError(
            "there is no source of notices on this host that the agent could listen to: name one "
            "with --notice, for example --notice file:/run/holdfast/notice"
        )
    return sources


def _rehearse(scan: Scan, release: ReleaseStep, flags: dict[str, Any]) -> None:
    """What a notice would do now."""
    sight = scan.look()
    click.echo(f"{sight.processes} processes, of which {sight.unreadable} may not be looked at")
    for one in sight.holders:
        what = "would get SIGTERM"
        if one.works_for is not None:
            what = f"would be waited for: it works for process {one.works_for.pid}"
        elif not _may_signal(one):
            what = "would be waited for: this user may not signal it"
        click.echo(f"{_named(one)} {what}")
    for one in sight.spared:
        click.echo(f"{_named(one)} would be spared")
    if not sight.holders:
        click.echo("no process holds a device")
    grace = seconds_in_words(flags["grace_s"])
    click.echo(f"all would have {grace}, or until just before the deadline; then:")
    click.echo(f"would {release.words}")


def _may_signal(one: DeviceHolder) -> bool:
    try:
        os.kill(one.process.pid, 0)
    except PermissionError:
        return False
    except ProcessLookupError:
        return True
    return True


def _named(one: DeviceHolder) -> str:
    return f"process {one.process.pid} ({one.command}, {', '.join(one.devices)})"


def _status_lines(known: dict[str, Any]) -> list[str]:
    lines = [f"agent: {'running, pid ' + str(known['pid']) if known['running'] else 'not running'}"]
    if known["running"]:
        lines.append(f"now: {known['phase']}")
    for one in known["announced"]:
        lines.append(f"announced: {one['words']}")
    for one in known["sources"]:
        state = one["trouble"] or ("answers" if one["has_answered"] else "has not answered yet")
        lines.append(f"source {one['name']}: {state} ({one['failures']} failures)")
    now = known["round"] or known["last_round"]
    if now is not None:
        title = "round" if known["round"] else f"last round ({now['outcome']})"
        lines.append(f"{title}: {now['about']}")
        lines += [
            f"  process {one['pid']} ({one['command']}): {_fate(one)}" for one in now["processes"]
        ]
    totals = known["totals"]
    lines.append(
        f"since its start: {totals['signalled']} signalled, {totals['left_behind']} left behind, "
        f"{totals['releases']} releases, {totals['failed_releases']} failed"
    )
    return lines


def _fate(one: dict[str, Any]) -> str:
    if one["has_ended"]:
        return str(one.get("fate", "has ended"))
    return one["refused"] or "has not ended"


def _release(command: str | None, file: str | None) -> ReleaseStep:
    try:
        argv = shlex.split(command or "")
    except ValueError as error:
        raise ConfigurationError(
            f"--release {command!r} cannot be split into words: {error}"
        ) from None
    step = ReleaseStep(argv, None if file is None else Path(file).expanduser())
    try:
        step.check()
    except Untrusted as error:
        raise ConfigurationError(
            f"--release-file {file}: {error}; name one in a folder that is your own"
        ) from None
    return step


def _words(text: str, flag: str | None) -> tuple[str, ...]:
    words = tuple(filter(None, (one.strip() for one in text.split(","))))
    if flag is not None and not words:
        raise ConfigurationError(f"{flag} names nothing: write globs, for example /dev/accel*")
    if flag is not None and (wrong := [one for one in words if not one.startswith("/")]):
        raise ConfigurationError(f"{flag} {wrong[0]!r} is not an absolute path: write /dev/accel*")
    return words


def _grace_ns(flags: dict[str, Any]) -> int:
    return int(flags["grace_s"] * SECOND_NS)


def _folder(state: str | None) -> Path:
    return default_folder(os.getuid()) if state is None else Path(state).expanduser()
