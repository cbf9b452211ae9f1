"""`holdfast preload`: read into this host's memory what a start of a run will read."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.door import say
from holdfast.cli.run import tell_defaults
from holdfast.core.preloaded import PreloadedPart, in_order_of_need, most_bytes
from holdfast.errors import ConfigurationError

if TYPE_CHECKING:
    from holdfast.config.settings import Settings
    from holdfast.journal.store import RunFolder, RunStore

DATA_BYTES = 1 << 30


@click.command(short_help="Read into this host's memory what a start of RUN will read.")
@click.argument("run")
@click.option("--store", metavar="PLACE", help="Where runs live.")
@click.option(
    "--data", "data", multiple=True, metavar="PATH",
    help="A file or folder of data, of which the first is read; may be given again.",
)  # fmt: skip
@click.option(
    "--data-bytes", type=click.IntRange(0), default=DATA_BYTES, show_default=True, metavar="N",
    help="So much of all data together.",
)  # fmt: skip
@click.option(
    "--max-bytes", type=click.IntRange(0), metavar="N",
    help="Read no more than this.  [default: half of the memory that is free]",
)  # fmt: skip
@click.option(
    "--limit", "limit_s", type=click.FloatRange(0), default=600.0, show_default=True, metavar="S",
    help="Take no longer than this.",
)  # fmt: skip
@click.option("--ranks", type=int, metavar="N", help="Training processes on this host.")
@click.option("--hosts", type=int, metavar="N", help="Hosts that train.")
@click.option("--spares", type=int, metavar="S", help="More hosts, that wait for a loss.")
@click.option("--host-index", type=int, metavar="I", help="Which of them this is, from 0.")
@click.option("--scratch", metavar="FOLDER", help="A local folder for live journals.")
@click.option(
    "--cache-key-file", metavar="FILE",
    help="A secret of the run's hosts that seals those programs in the store.",
)  # fmt: skip
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def preload(
    run: str,
    data: Sequence[str],
    data_bytes: int,
    max_bytes: int | None,
    limit_s: float,
    command: Sequence[str],
    **flags: Any,
) -> None:
    """Have the next start of RUN on this host find in memory what it reads.

    While the host waits for its part: the packages that the run imports (as an earlier start has
    learned, else by COMMAND's sources; write it after `--`), its compiled programs, the newest
    checkpoint of a store that is a folder, and the first of the data. Nothing of the store is
    executed.
    """
    from holdfast.config import inherited_environment, resolve
    from holdfast.journal.store import RunStore

    settings = resolve(flags).settings
    store = RunStore.at(
        settings.store, mirror=settings.mirror, instance=settings.store_credentials == "instance"
    )
    folder = _known(store, run, is_first=bool(command or data))
    done = [] if folder is None else _programs(folder, settings)
    asked, left_out = _asked(folder, settings, command)
    if data:
        from holdfast.agent.preload import data_asked

        asked.append(data_asked([os.path.abspath(one) for one in data], data_bytes))  # noqa: PTH100
    for words in left_out:
        say(f"left out: {words}")
    if asked:
        done += _read(asked, max_bytes, limit_s, command, inherited_environment())
    for part in done:
        click.echo(part.words)
    if folder is None or not any(part.nbytes or part.files for part in done):
        return
    from holdfast.journal.machine_facts import MachineFacts

    facts = MachineFacts(folder, say)
    facts.preloaded(done, time.time_ns())
    facts.close()


def _known(store: RunStore, run: str, *, is_first: bool) -> RunFolder | None:
    """None: before its first start, where a command or data say what that will read."""
    from holdfast.errors import UnknownRun

    try:
        return store.get(run)
    except UnknownRun as error:
        if not is_first:
            raise
        say(f"{error}; its report will not have what is read here")
        return None


def _asked(
    folder: RunFolder | None, settings: Settings, command: Sequence[str]
) -> tuple[list[dict[str, Any]], list[str]]:
    """What is to be read, and why something is not."""
    from holdfast.agent.preload import checkpoint_asked, packages_asked
    from holdfast.journal.learned_imports import learned_imports

    left_out, asked = [], []
    learned = None if folder is None else learned_imports(folder)
    packages = packages_asked(learned, command, str(Path.cwd()))
    if packages is not None:
        asked.append(packages)
    elif command:
        left_out.append("packages: no import is found in the sources of the command")
    else:
        left_out.append(
            "packages: the run has not trained yet, so nothing is learned of its imports; write "
            "its command after `--`"
        )
    if folder is None:
        return asked, left_out
    world_size = settings.local_ranks * settings.hosts
    checkpoint, why = checkpoint_asked(folder, _ranks(settings), world_size)
    if checkpoint is not None:
        asked.append(checkpoint)
    else:
        left_out.append(f"checkpoint: {why}")
    return asked, left_out


def _ranks(settings: Settings) -> Sequence[int]:
    """Those that this host has, if it gets the part that its number says; none of a spare's."""
    index = _host_index(settings)
    if index >= settings.hosts:
        return ()
    return range(index * settings.local_ranks, (index + 1) * settings.local_ranks)


def _host_index(settings: Settings) -> int:
    if not settings.has_several_hosts:
        return 0
    from holdfast.cli.several_hosts import host_index

    return host_index(settings)


def _programs(folder: RunFolder, settings: Settings) -> list[PreloadedPart]:
    """Of the compile cache, as `holdfast run` would take them."""
    limit_bytes = settings.compile_cache_bytes
    if limit_bytes is None:
        return []
    from holdfast.agent.programs import preload_programs
    from holdfast.cache.seal import read_seal
    from holdfast.cli.supervise import own_scratch
    from holdfast.journal.scratch import CACHE_FOLDER

    key = settings.cache_key_file
    seal = None if key is None else read_seal(key)
    part = f"-host{_host_index(settings)}" if settings.has_several_hosts else ""
    local = own_scratch(folder, settings, part) / CACHE_FOLDER
    done = preload_programs(folder, local, limit_bytes, seal, say)
    return [done] if done.files or done.why else []


def _read(
    asked: Sequence[dict[str, Any]],
    max_bytes: int | None,
    limit_s: float,
    command: Sequence[str],
    environment: dict[str, str],
) -> list[PreloadedPart]:
    from holdfast.agent.preload import ReadAhead
    from holdfast.snapshot.room import memory_free_bytes

    most, why = most_bytes(memory_free_bytes(), max_bytes)
    if not most:
        raise ConfigurationError(f"nothing may be read: {why}")
    process = ReadAhead(in_order_of_need(asked), most, command, environment)
    done = process.run(limit_s)
    if any(part.is_cut for part in done):
        say(f"not all of it was read: at most {most:,} bytes are, {why}")
    if process.trouble:
        say(process.trouble)
    return done


tell_defaults(preload)
