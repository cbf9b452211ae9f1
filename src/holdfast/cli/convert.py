"""`holdfast convert`: logs of a run that Holdfast did not see, as a history."""

from __future__ import annotations

import re
import sys
from datetime import UTC, timedelta, timezone, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.door import say
from holdfast.cli.moments import NS_PER_S, moment_ns
from holdfast.errors import ConfigurationError

if TYPE_CHECKING:
    from holdfast.convert.asked import TableColumn

OFFSET = re.compile(r"([+-])(\d{1,2})(?::(\d{1,2}))?", re.ASCII)
KINDS = ("maxtext", "huggingface", "lightning", "tensorboard", "table")


@click.command()
@click.argument("logs", nargs=-1, required=True, metavar="LOG...")
@click.option(
    "--from",
    "kind",
    type=click.Choice(KINDS),
    help="What wrote the logs; found out from the first of them, if not given.",
)
@click.option("--out", metavar="FILE", help="Write there instead of to standard output.")
@click.option(
    "--map",
    "mapped",
    metavar="NAME=COLUMN[:UNIT],...",
    multiple=True,
    help="Columns of a table: step, time, seconds (of each step), row_seconds (of all steps since "
    "the last line), elapsed (since the process started), attempt, rank. UNIT: s, ms, us, ns, min.",
)
@click.option(
    "--start", metavar="T", help="When the first process started, for logs without times."
)
@click.option("--requested", metavar="T", help="When the run's resources were asked for.")
@click.option("--end", metavar="T", help="When the run ended, if later than the log's last line.")
@click.option("--name", metavar="NAME", help="The run's name.")
@click.option(
    "--chips", metavar="N", type=click.IntRange(1, 2**31 - 1), help="How many chips it had."
)
@click.option(
    "--gap", metavar="S", type=float, default=600.0, show_default=True,
    help="Silence, beyond what steps take, that counts as a restart.",
)  # fmt: skip
@click.option(
    "--pause", metavar="X", type=float, default=3.0, show_default=True,
    help="Where only ends of steps are known: what took over X times as long as usual was held up, "
    "and the excess is no step.",
)  # fmt: skip
@click.option("--timezone", "zone", metavar="ZONE", default="UTC", show_default=True,
              help="Of times that name none: Europe/Berlin, or +02:00.")  # fmt: skip
@click.option("--tag", metavar="TAG", help="The scalar of TensorBoard that tells of the steps.")
@click.option(
    "--file-times", is_flag=True, help="A log without times ended when its file last changed."
)
def convert(
    logs: tuple[str, ...],
    kind: str | None,
    out: str | None,
    mapped: tuple[str, ...],
    start: str | None,
    requested: str | None,
    end: str | None,
    name: str | None,
    chips: int | None,
    gap: float,
    pause: float,
    zone: str,
    tag: str | None,
    file_times: bool,
) -> None:
    """Turn the logs of a run that Holdfast did not see into a history.

    `holdfast report --history` and `holdfast plan --from-run` read it. LOG is MaxText's log, a
    folder or console log of Hugging Face's Trainer, a folder of PyTorch Lightning, TensorBoard's
    event files, or a table of steps (CSV, JSON); several are one run. What was assumed, and
    what was odd, is said on standard error and kept in the history.
    """
    from holdfast.convert.asked import ConvertOptions
    from holdfast.convert.formats import convert as converted
    from holdfast.convert.formats import kind_of
    from holdfast.convert.notes import Notes
    from holdfast.journal.history_file import write_history

    paths = [Path("/dev/stdin") if log == "-" else Path(log) for log in logs]
    for path in paths:
        if not path.exists():
            raise ConfigurationError(f"there is no log {path}; check the path")
    if kind is None:
        kind = kind_of(paths[0]) if paths[0].is_file() or paths[0].is_dir() else None
        if kind is None and (paths[0].is_dir() or _is_empty(paths[0])):
            what = "holds no log of a known kind" if paths[0].is_dir() else "is empty"
            raise ConfigurationError(f"{logs[0]} {what}: there is nothing to convert in it")
        if kind is None:
            raise ConfigurationError(
                f"the format of {logs[0]} is not recognized; name it with --from "
                f"({', '.join(KINDS)}), and of a table its columns with --map"
            )
    place = _zone(zone)
    start_ns, requested_ns, end_ns = (
        None if text is None else moment_ns(text, flag, place)
        for text, flag in ((start, "--start"), (requested, "--requested"), (end, "--end"))
    )
    asked = ConvertOptions(
        name=name,
        chips=chips,
        start_ns=start_ns,
        requested_ns=requested_ns,
        end_ns=end_ns,
        gap_ns=round(_positive(gap, "--gap") * NS_PER_S),
        pause=_positive(pause, "--pause"),
        zone=place,
        file_times=file_times,
        columns=_columns(mapped),
        tag=tag,
    )
    notes = Notes()
    facts = converted(paths, kind, asked, notes)
    write_history(sys.stdout if out in (None, "-") else out, facts)
    for sentence in notes.assumptions():
        say(f"assumed: {sentence}")
    for sentence in notes.oddities():
        say(f"note: {sentence}")


def _is_empty(path: Path) -> bool:
    return path.is_file() and path.stat().st_size == 0


def _positive(value: float, flag: str) -> float:
    if not 0 < value < 1e9:
        raise ConfigurationError(f"{flag} {value}: give a positive number")
    return value


def _zone(text: str) -> tzinfo:
    from zoneinfo import ZoneInfo

    if text.upper() in ("UTC", "Z"):
        return UTC
    if found := OFFSET.fullmatch(text):
        hours, minutes = int(found[2]), int(found[3] or 0)
        if hours < 24 and minutes < 60:
            offset = timedelta(hours=hours, minutes=minutes)
            return timezone(-offset if found[1] == "-" else offset)
    try:
        return ZoneInfo(text)
    except (OSError, ValueError, KeyError):
        raise ConfigurationError(
            f"--timezone {text}: give a zone like Europe/Berlin (its data must be installed), or "
            "an offset like +02:00"
        ) from None


def _columns(mapped: tuple[str, ...]) -> dict[str, TableColumn]:
    from holdfast.convert.asked import TableColumn
    from holdfast.convert.table import UNITS_NS, USUAL

    found: dict[str, TableColumn] = {}
    for one in (part for words in mapped for part in words.split(",")):
        what, equals, column = one.partition("=")
        name, colon, unit = column.rpartition(":")
        if not colon or unit not in UNITS_NS:
            name, unit = column, ""
        if not equals or not name or what not in USUAL:
            raise ConfigurationError(
                f"--map {one}: give NAME=COLUMN, where NAME is one of {', '.join(USUAL)}"
            )
        found[what] = TableColumn(name, UNITS_NS.get(unit, 0))
    return found
