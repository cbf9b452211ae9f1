"""The kinds of logs that can be converted, as data; which one a file is, and its conversion."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast.convert import table
from holdfast.convert.asked import ConvertOptions
from holdfast.convert.curves import EVENTS, curves, event_files, saves, with_saves
from holdfast.convert.lines import head
from holdfast.convert.notes import Notes
from holdfast.convert.seen import Seen
from holdfast.convert.story import LogStory
from holdfast.convert.text import LineRule, TextReader, rules
from holdfast.core.ledger.facts import DONE, Fact
from holdfast.errors import ConfigurationError

_STEP, _SECONDS = r"(?P<step>\d{1,18})", r"(?P<took_ns>\d{1,9}(?:\.\d{1,9})?)"
_DONE = f"ended: {DONE}"


@dataclass(frozen=True, slots=True)
class Format:
    """A kind of log.

    The kind of a path is found out by the path itself (a folder's ends with a slash), by what a
    folder holds, else by the beginning of the text. `rules`: what lines tell; `has_stamps`: each
    line may have a time. `of_folders`: event files are read, and of text only files; where a
    folder has none, `timeless` says so. `has_checkpoints`: folders checkpoint-N tell of saves.
    `is_table`: rows have columns. `first_step`: how it is numbered (None: found out). `warm_up`:
    the span kind of slow first steps.
    """

    title: str
    path: str = r"(?!)"
    holds: tuple[str, ...] = ()
    begins: str = r"(?!)"
    rules: tuple[LineRule, ...] = ()
    has_stamps: bool = False
    of_folders: bool = False
    timeless: str = ""
    has_checkpoints: bool = False
    is_table: bool = False
    first_step: int | None = 1
    assumed: tuple[str, ...] = ()
    warm_up: str = "startup"


MAXTEXT = Format(
    "MaxText's log",
    begins=r"completed step: \d{1,18}, seconds:|Config param \w+: ",
    rules=rules(
        # A step's line is written when the next step is over, and its seconds run from the end of
        # the step before: they contain saves, evaluations, and the wait for data.
        ("step", "completed step: ", rf"{_STEP}, seconds:\s*{_SECONDS},"),
        ("step", "completed profiler activation/deactivation step: ", rf"{_STEP}(?=,)"),
        ("torn", "completed step:"),
        # A checkpoint "at step 7" contains that step.
        (
            "pause: save",
            "inished blocking save in ",
            rf"{_SECONDS} seconds(?:.*?/{_STEP}\b[^/]*$)?",
        ),
        ("restoring", "restoring from this run's directory ", rf"(?:latest )?step\W+{_STEP}\b"),
        ("restored", "inished ", r"(?:blocking )?(?:restoring|load\b|restore\b)"),
        ("began: banner", "System Information: Jax Version"),
        ("began: environment", "Updating keys from env"),
        ("pause began: custom:eval", "Starting eval after train step ", rf"{_STEP}\b"),
        ("pause part", "Completed eval step: ", rf"\d+, seconds:\s*{_SECONDS},"),
        ("pause over", "Completed eval after train step"),
        ("pause over", "eval metrics after step"),
        ("about", "Config param run_name: ", r"(?P<name>\S+)"),
        ("about", "Config param steps: ", r"(?P<wanted>\d{1,18})(?!\S)"),
        ("about", "Num_devices: ", r"(?P<chips>\d{1,9})\b"),
        (_DONE, "Training stopped"),
        (_DONE, "EXIT_CODE=0"),
        ("ended: host_lost", "Slice down event"),
        ("ended: preempted", "reemption ", "(?:sync|notice)"),
        ("ended: preempted", "eached preemption"),
        ("ended: preempted", "was preempted"),
        ("ended: preempted", "eceived SIGTERM"),
        ("ended: failed", "Traceback (most"),
        ("ended: failed", "EXIT_CODE="),
    ),
    has_stamps=True,
    first_step=0,
    assumed=("MaxText counts steps from 0; here the first is 1",),
    warm_up="compile",
)

_BAR = r"[^|\n]*\|\s*(\d{1,12})/(\d{1,12}) \[(?:(\d{1,6}):)?(\d\d):(\d\d)<"
HUGGINGFACE = Format(
    "Hugging Face's Trainer (output folder or console)",
    path=r"/trainer_state\.json$",
    holds=("checkpoint-*", "trainer_state.json"),
    begins=r"(?m)(?:^|\r)[^\S\r\n]*+\d{1,3}%\|" + _BAR,
    rules=rules(
        ("bar", "%|", _BAR),
        ("pause: custom:eval", "'eval_runtime': ", rf"'?{_SECONDS}"),
        (_DONE, "'train_runtime'"),
        ("ended: failed", "Traceback (most"),
    ),
    of_folders=True,
    has_checkpoints=True,
    assumed=(
        "the progress bar shows whole seconds: times are that exact",
        "what passed before a bar, and between two processes, is missing: goodput is an upper "
        "bound",
    ),
    timeless="{} holds neither event files nor checkpoint-N folders; trainer_state.json alone has "
    "no times: give what the Trainer printed, or the folder of its event files",
)

LIGHTNING = Format(
    "PyTorch Lightning's event files",
    path=r"/lightning_logs/(?:.*/)?$",
    holds=("lightning_logs/", "**/metrics.csv"),
    of_folders=True,
    timeless="{} holds no TensorBoard event file; Lightning's metrics.csv has no times, unless the "
    "script logs one: with such a column, use --from table --map step=step,time=COLUMN",
    first_step=0,
    assumed=("Lightning counts steps from 0; here the first is 1",),
)

TENSORBOARD = Format(
    "TensorBoard's event files",
    path=r"tfevents[^/]*$",
    holds=(f"**/{EVENTS}",),
    of_folders=True,
    first_step=None,
)

TABLE = Format(
    "a table of steps (CSV, JSON)",
    begins=r"\A\s*+(?:[{\[]|(?=[^\n]*(?:step|iter))[^\n]*[,\t;])",
    is_table=True,
)

FORMATS = {
    "maxtext": MAXTEXT,
    "huggingface": HUGGINGFACE,
    "lightning": LIGHTNING,
    "tensorboard": TENSORBOARD,
    "table": TABLE,
}


def kind_of(path: Path) -> str | None:
    """Which kind of log a file or folder is; None: none that is known."""
    for kind, form in FORMATS.items():
        is_held = path.is_dir() and any(next(path.glob(one), None) for one in form.holds)
        if is_held or _is_named(path, form):
            return kind
    if path.is_dir():
        return None
    begin = head(path).decode("utf-8", "replace")
    return next((kind for kind, form in FORMATS.items() if re.search(form.begins, begin)), None)


def read(form: Format, paths: list[Path], asked: ConvertOptions, notes: Notes) -> Iterator[Seen]:
    """What logs of that kind tell; folders first, as one run."""
    if form.is_table:
        yield from table.read(paths, asked, notes)
        return
    # A file that stands for its folder, as a Trainer's state, is that folder.
    stands = [p.parent if form.rules and p.is_file() and _is_named(p, form) else p for p in paths]
    folders = [p for p in stands if form.of_folders and (p.is_dir() or not form.rules)]
    texts = [p for p in stands if p not in folders]
    for sentence in form.assumed if texts or not form.rules else ():
        notes.assume(sentence)
    if folders:
        yield from _of_folders(form, folders, asked, notes)
    if texts:
        reader = TextReader(form.rules, asked, notes, 1 - (form.first_step or 0))
        yield from reader.read(texts, have_stamps=form.has_stamps)


def _is_named(path: Path, form: Format) -> bool:
    # Not resolved: a link is called as its owner calls it.
    return re.search(form.path, os.path.abspath(path) + "/" * path.is_dir()) is not None  # noqa: PTH100


def _of_folders(
    form: Format, folders: list[Path], asked: ConvertOptions, notes: Notes
) -> Iterator[Seen]:
    saved = saves(folders) if form.has_checkpoints else []
    if saved:
        notes.assume(
            "a save lasted at least from its first file's last change to its last file's: so much "
            "counts"
        )
    files = event_files(folders)
    if files:
        curve = curves(files, asked, notes, form.first_step)
        yield from with_saves(curve, saved, notes)
        return
    if not saved and form.timeless:
        raise ConfigurationError(form.timeless.format(folders[0]))
    if saved:
        notes.assume(
            "no event files: steps were over when checkpoints were written, evenly in between"
        )
    for save in saved:
        yield Seen("step", save.place, (save.at_ns or 0) - (save.took_ns or 0), save.step)
        yield save


def convert(paths: list[Path], kind: str, asked: ConvertOptions, notes: Notes) -> Iterator[Fact]:
    """The facts of a history, the run last; ConfigurationError where nothing can be told.

    `notes` is filled on the way, and complete when the run has come.
    """
    form = FORMATS[kind]
    asked = replace(asked, warm_up=form.warm_up)
    story = LogStory(asked, notes)
    started = {str(p): _started_ns(p, form, asked) for p in paths} if asked.file_times else {}
    for seen in read(form, paths, asked, notes):
        start_ns = started.get(seen.place.file) if seen.what == "file" else None
        if start_ns is not None:
            notes.assume(
                f"{seen.place}: its last step ended when the file was last changed (--file-times)"
            )
            yield from story.feed(Seen("began", seen.place, start_ns, is_sure=True))
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
    for seen in read(form, [path], asked, Notes()):
        deque(trial.feed(seen), maxlen=0)
    deque(trial.finish(), maxlen=0)
    if trial.has_times:
        return None
    return path.stat().st_mtime_ns - (trial.clock_ns - (asked.start_ns or 0))
