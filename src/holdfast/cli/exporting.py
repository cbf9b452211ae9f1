"""The exporters behind `holdfast export` and `holdfast run --export`."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cli.door import say
from holdfast.config import run_store, scratch_folder, summaries_folder
from holdfast.config.settings import Settings
from holdfast.errors import EXIT_UNAVAILABLE, ConfigurationError, StoreUnavailable, needs_extra
from holdfast.export.asked import AskedExporters, parse
from holdfast.journal.store import RunFolder, RunStore

if TYPE_CHECKING:
    from holdfast.agent.exporter import ExportProcess
    from holdfast.agent.supervisor import Screen
    from holdfast.export.loop import Exporters

NICE = 15
EVERY_S = "5"  # beside a run: its journals are read anyway
LIBRARIES = {
    "prometheus": ("prometheus_client", "metrics"),
    "tensorboard": ("tensorboardX", "tensorboard"),
    "gcp": ("google.cloud.monitoring_v3", "gcp-export"),
}


def check_libraries(asked: AskedExporters) -> None:
    """Raises ConfigurationError for the first exporter whose library is not installed."""
    for name, (module, extra) in LIBRARIES.items():
        if getattr(asked, name) is not None and not _is_there(module):
            raise ConfigurationError(needs_extra(f"the exporter {name} needs", extra))


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def beside(
    settings: Settings, folder: RunFolder, environment: Mapping[str, str], screen: Screen
) -> ExportProcess | None:
    """The process that exports a supervised run; None: nothing is asked for."""
    from holdfast.agent.exporter import ExportProcess

    asked = parse(settings.export or "")
    if asked.nothing:
        return None
    arguments = [
        *flags(asked),
        *("--every", EVERY_S),
        "--store",
        str(folder.path.parent),
        "--until-eof",
        "--",
        folder.name,
    ]
    more = {} if settings.scratch is None else {"HOLDFAST_SCRATCH": settings.scratch}
    more["HOLDFAST_MIRROR"] = settings.mirror
    return ExportProcess(arguments, {**environment, **more}, partial(screen.say, "warning"))


def flags(asked: AskedExporters) -> list[str]:
    """What `holdfast export` takes for it."""
    found: list[str] = []
    if asked.prometheus is not None:
        found += ["--prometheus", "--port", str(asked.prometheus)]
    if asked.tensorboard is not None:
        found += ["--tensorboard", str(Path(asked.tensorboard).expanduser().absolute())]
    if asked.gcp is not None:
        found += ["--gcp", f"{asked.gcp.project}/{asked.gcp.zone}/{asked.gcp.accelerator}"]
    return found


def export_numbers(
    names: Sequence[str],
    store: str | None,
    asked: AskedExporters,
    *,
    every_s: float,
    once: bool,
    out: str | None,
    until_eof: bool,
) -> None:
    """Export until a signal comes, or standard input ends; `once`: one look."""
    from holdfast.export.loop import Exporters
    from holdfast.runs.listing import RunList

    check_libraries(asked)
    if until_eof:
        os.nice(NICE)
    place = RunStore.at(run_store(store))
    for name in names:
        place.get(name)  # raises UnknownRun now, and not at each look
    if place.is_missing:
        say(f"! {place.why_empty}")
    # A kept summary has no curve and no tier: for these, and of runs that are named, all is read.
    cache = None if names or asked.tensorboard else summaries_folder()
    runs = RunList(place, cache=cache, names=names or None, scratch=scratch_folder())
    is_fleet = len(names) != 1
    served = AskedExporters(None, asked.tensorboard, asked.gcp) if once else asked
    exporters = Exporters(runs, served, say, is_fleet=is_fleet)
    try:
        if once:
            _look_once(exporters, asked, out)
        else:
            if exporters.port is not None and not until_eof:
                say(f"http://127.0.0.1:{exporters.port}/metrics has the numbers; Ctrl-C ends it")
            _go_on(exporters.look, every_s, until_eof=until_eof)
            exporters.look()
    finally:
        delivered = exporters.close()
    if once and not delivered:
        sys.exit(EXIT_UNAVAILABLE)  # why was said


def _look_once(exporters: Exporters, asked: AskedExporters, out: str | None) -> None:
    from holdfast.export.prometheus import EXPORTER
    from holdfast.export.served import as_text

    look = exporters.look()
    if look is None:
        raise StoreUnavailable("nothing was exported: the store cannot be read")
    for problem in look.problems:
        say(problem)
    if asked.prometheus is not None:
        _write(out, as_text(exporters.collector, EXPORTER))


def _go_on(look: Callable[[], object], every_s: float, *, until_eof: bool) -> None:
    """Look, and look again, until it is time to end."""
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    if until_eof:
        threading.Thread(target=_await_eof, args=(over,), daemon=True).start()
    while not over.is_set():
        began_s = time.monotonic()
        look()
        # A store that is slow to read is not read all the time.
        over.wait(max(every_s - (time.monotonic() - began_s), every_s / 4))


def _await_eof(over: threading.Event) -> None:
    with contextlib.suppress(OSError):
        while os.read(sys.stdin.fileno(), 4096):
            pass
    over.set()


def _write(out: str | None, data: bytes) -> None:
    if out in (None, "-"):
        sys.stdout.write(data.decode())
        return
    from holdfast.cli.files import write_file

    write_file(str(out), data, "the metrics")
