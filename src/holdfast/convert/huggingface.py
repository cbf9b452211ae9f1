"""Hugging Face's Trainer: its output folder, or what it printed.

`trainer_state.json` has no times. The event files under the folder have; checkpoints' files tell
when they were written; and a progress bar on the console shows seconds since the training began.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from holdfast.convert.asked import NS_PER_S, ConvertOptions
from holdfast.convert.lines import Rules, head, lines
from holdfast.convert.notes import Notes
from holdfast.convert.seen import Began, LogEnded, LogEntry, LogPlace, NewFile, Paused, Stepped
from holdfast.convert.tensorboard import curves, event_files
from holdfast.core.ledger.facts import DONE
from holdfast.errors import ConfigurationError

MOST_CHECKPOINTS = 100_000
LATE_NS = 60 * NS_PER_S  # a checkpoint's files are not newer than the run by more
_CHECKPOINT = re.compile(r"checkpoint-(\d{1,12})", re.ASCII)
BAR = re.compile(
    r"\s*\d{1,3}%\|[^|]*\|\s*(\d{1,12})/(\d{1,12}) \[(?:(\d{1,6}):)?(\d\d):(\d\d)<", re.ASCII
)
_RULES = Rules(
    ("eval", "'eval_runtime': ", r"'?(\d{1,9}(?:\.\d{1,9})?)"),
    (DONE, "'train_runtime'"),
    ("failed", "Traceback (most"),
)


def read(paths: list[Path], asked: ConvertOptions, notes: Notes) -> Iterator[LogEntry]:
    """What output folders and console logs tell; folders first, as one run."""
    folders = [p.parent if p.name == "trainer_state.json" else p for p in paths]
    folders = [p for p in folders if p.is_dir()]
    if folders:
        yield from _folders(folders, asked, notes)
    console = _Console(asked, notes)
    for path in paths:
        if not path.is_dir() and path.name != "trainer_state.json":
            yield NewFile(LogPlace(str(path)))
            yield from console.read(path)


def _folders(folders: list[Path], asked: ConvertOptions, notes: Notes) -> Iterator[LogEntry]:
    saves = [(save, step) for folder in folders for save, step in _saves(folder)]
    saves.sort(key=lambda save: save[0].at_ns or 0)
    files = event_files(folders)
    if saves:
        notes.assume(
            "a save lasted at least from its first file's last change to its last file's: so much "
            "counts"
        )
    if files:
        yield from _among(curves(files, asked, notes, 0), [save for save, _ in saves], notes)
        return
    if not saves:
        raise ConfigurationError(
            f"{folders[0]} holds neither event files nor checkpoint-N folders; trainer_state.json "
            "alone has no times: give what the Trainer printed, or the folder of its event files"
        )
    notes.assume("no event files: steps were over when checkpoints were written, evenly in between")
    for save, step in saves:
        yield Stepped(save.place, save.start_ns, last=step)
        yield save


def _saves(folder: Path) -> Iterator[tuple[Paused, int]]:
    """The checkpoints in a folder: from the first to the last of its files, and its step."""
    for count, path in enumerate(folder.glob("checkpoint-*")):
        found = _CHECKPOINT.fullmatch(path.name)
        if found is None or count >= MOST_CHECKPOINTS or path.is_symlink() or not path.is_dir():
            continue
        times = [at_ns for p in path.rglob("*") if (at_ns := _changed_ns(p)) is not None]
        if times:
            place = LogPlace(str(path))
            yield Paused(place, max(times), kind="save", start_ns=min(times)), int(found[1])


def _changed_ns(path: Path) -> int | None:
    """When a file was last changed; None for what is none, or is deleted meanwhile."""
    try:
        return path.lstat().st_mtime_ns if path.is_file() else None
    except OSError:
        return None


def _among(curve: Iterator[LogEntry], saves: list[Paused], notes: Notes) -> Iterator[LogEntry]:
    """What was seen, and the saves at their times; those of another time are left out."""
    first_ns = last_ns = None
    for seen in curve:
        if seen.at_ns is not None:
            last_ns = seen.at_ns
            first_ns = last_ns if first_ns is None else first_ns
            while saves and (saves[0].at_ns or 0) <= last_ns:
                yield from _save(saves.pop(0), first_ns, notes)
        yield seen
    for save in saves:
        if last_ns is not None and (save.at_ns or 0) <= last_ns + LATE_NS:
            yield from _save(save, first_ns, notes)
        else:
            notes.odd(save.place, "its files are newer than the run (copied?): not counted")


def _save(save: Paused, first_ns: int | None, notes: Notes) -> Iterator[LogEntry]:
    if first_ns is None or (save.start_ns or 0) < first_ns:
        notes.odd(save.place, "its files are older than the run: not counted")
    else:
        yield save


class _Console:
    """The Trainer's progress bar: steps done, and whole seconds since the training began."""

    def __init__(self, asked: ConvertOptions, notes: Notes) -> None:
        self._notes = notes
        self._base_ns = asked.start_ns or 0
        self._total: int | None = None
        self._elapsed_s: int | None = None
        self._held: Stepped | None = None  # a later step of the same second may follow
        self._done = 0

    def read(self, path: Path) -> Iterator[LogEntry]:
        self._notes.assume("the progress bar shows whole seconds: times are that exact")
        self._notes.assume(
            "what passed before a bar, and between two processes, is missing: goodput is an upper "
            "bound"
        )
        if self._total is None and path.is_file():
            self._total = _total_of_training(head(path).decode("utf-8", "replace"))
        for number, text in lines(path, self._notes):
            place = LogPlace(str(path), number)
            if bar := BAR.match(text):
                yield from self._bar(place, bar)
                continue
            match _RULES.find(text):
                case "eval", found:
                    took_ns = round(float(found[1]) * NS_PER_S)
                    yield Paused(place, kind="custom:eval", took_ns=took_ns, after=self._done)
                case cause, _:
                    yield from self._over()
                    yield LogEnded(place, cause=cause)
        yield from self._over()

    def _bar(self, place: LogPlace, found: re.Match[str]) -> Iterator[LogEntry]:
        done, total = int(found[1]), int(found[2])
        elapsed_s = int(found[3] or 0) * 3600 + int(found[4]) * 60 + int(found[5])
        self._total = self._total or total
        if total != self._total:
            return  # an evaluation's, usually
        if self._elapsed_s is None or elapsed_s < self._elapsed_s or done < self._done:
            yield from self._over()
            self._base_ns += (self._elapsed_s or 0) * NS_PER_S
            self._done, self._elapsed_s = 0, elapsed_s
            yield Began(place, self._base_ns, what="bar", sure=True)
        if done > self._done:
            step = Stepped(place, self._base_ns + elapsed_s * NS_PER_S, last=done)
            self._held = step if elapsed_s == self._elapsed_s else None
            if self._held is None:
                yield step
            self._done = done
        self._elapsed_s = elapsed_s

    def _over(self) -> Iterator[LogEntry]:
        if self._held is not None:
            yield self._held
            self._held = None


def _total_of_training(text: str) -> int | None:
    """How many steps the training's bar has: that under which a loss is printed.

    An evaluation ahead of the training has a bar, too. None: the text, a log's head, has no loss.
    """
    total = None
    for line in text.splitlines():
        if found := BAR.match(line):
            total = int(found[2])
        elif total is not None and ("'loss':" in line or "'train_runtime'" in line):
            return total
    return None
