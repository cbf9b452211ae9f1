"""The kinds of logs that can be converted, and which one a file is."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from holdfast.convert import huggingface, maxtext, table, tensorboard
from holdfast.convert.asked import ConvertOptions
from holdfast.convert.lines import head
from holdfast.convert.notes import Notes
from holdfast.convert.seen import Began, LogEntry, NewFile
from holdfast.convert.story import LogStory
from holdfast.core.ledger.facts import Fact
from holdfast.errors import ConfigurationError


class Format(NamedTuple):
    """A kind of log: its reader, how it is called, and the span kind of slow first steps."""

    read: Callable[[list[Path], ConvertOptions, Notes], Iterator[LogEntry]]
    title: str
    warm_up: str = "startup"


FORMATS = {
    "maxtext": Format(maxtext.read, "MaxText's log", "compile"),
    "huggingface": Format(huggingface.read, "Hugging Face's Trainer (output folder or console)"),
    "lightning": Format(tensorboard.read_lightning, "PyTorch Lightning's event files"),
    "tensorboard": Format(tensorboard.read, "TensorBoard's event files"),
    "table": Format(table.read, "a table of steps (CSV, JSON)"),
}


def convert(paths: list[Path], kind: str, asked: ConvertOptions, notes: Notes) -> Iterator[Fact]:
    """The facts of a history, the run last; ConfigurationError where nothing can be told.

    `notes` is filled on the way, and complete when the run has come.
    """
    form = FORMATS[kind]
    asked = replace(asked, warm_up=form.warm_up)
    story = LogStory(asked, notes)
    started = {str(p): _started_ns(p, form, asked) for p in paths} if asked.file_times else {}
    for seen in form.read(paths, asked, notes):
        start_ns = started.get(seen.place.file) if isinstance(seen, NewFile) else None
        if start_ns is not None:
            notes.assume(
                f"{seen.place}: its last step ended when the file was last changed (--file-times)"
            )
            yield from story.feed(Began(seen.place, start_ns, what="file", sure=True))
        yield from story.feed(seen)
    if not story.steps:
        odd = next(notes.oddities(), None)
        raise ConfigurationError(
            f"{', '.join(map(str, paths[:3]))}: no step was found; it was read as {form.title}"
            + (f" ({odd})" if odd else "")
            + "; see holdfast convert --help for --from and --map"
        )
    yield from story.finish()


def _started_ns(path: Path, form: Format, asked: ConvertOptions) -> int | None:
    """When a log began if it ended with its last change; None: its lines have times."""
    if not path.is_file() and not path.is_dir():
        raise ConfigurationError(
            f"--file-times: {path} is not a file, and has no time of its last change"
        )
    trial = LogStory(replace(asked, requested_ns=None, end_ns=None), Notes())
    for seen in form.read([path], asked, Notes()):
        deque(trial.feed(seen), maxlen=0)
    deque(trial.finish(), maxlen=0)
    if trial.has_times:
        return None
    return path.stat().st_mtime_ns - (trial.clock_ns - (asked.start_ns or 0))


def kind_of(path: Path) -> str | None:
    """Which kind of log a file or folder is; None: none that is known."""
    if path.is_dir():
        return _kind_of_folder(path)
    if "tfevents" in path.name:
        return "tensorboard"
    if path.name == "trainer_state.json":
        return "huggingface"
    text = head(path).decode("utf-8", "replace")
    if re.search(r"completed step: \d{1,18}, seconds:|Config param \w+: ", text):
        return "maxtext"
    read = text.splitlines()
    if any(huggingface.BAR.match(line) for line in read):
        return "huggingface"
    first = next((line for line in read if line.strip()), "")
    is_header = re.search(r"step|iter", first) and any(sign in first for sign in ",\t;")
    return "table" if first.startswith(("{", "[")) or is_header else None


def _kind_of_folder(path: Path) -> str | None:
    if any(path.glob("checkpoint-*")) or (path / "trainer_state.json").exists():
        return "huggingface"
    if "lightning_logs" in path.resolve().parts or (path / "lightning_logs").is_dir():
        return "lightning"
    if next(path.rglob("metrics.csv"), None) is not None:
        return "lightning"
    return "tensorboard" if next(path.rglob(tensorboard.EVENTS), None) is not None else None
