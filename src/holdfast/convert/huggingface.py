"""Hugging Face's Trainer: its output folder, or what it printed.

`trainer_state.json` has no times. The event files under the folder have; checkpoints' files tell
when they were written; and a progress bar on the console shows seconds since the training began.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from holdfast.convert.asked import NS_PER_S, Asked
from holdfast.convert.lines import head, lines
from holdfast.convert.notes import Notes
from holdfast.convert.seen import (
    Alive,
    Began,
    Ended,
    NewFile,
    Paused,
    Place,
    Seen,
    Stepped,
)
from holdfast.convert.tensorboard import curves, event_files
from holdfast.core.ledger.facts import DONE
from holdfast.errors import ConfigurationError

WARM_UP = "startup"
MOST_CHECKPOINTS = 100_000
LATE_NS = 60 * NS_PER_S  # a checkpoint's files are not newer than the run by more
_CHECKPOINT = re.compile(r"checkpoint-(\d{1,12})", re.ASCII)
BAR = re.compile(
    r"\s*\d{1,3}%\|[^|]*\|\s*(\d{1,12})/(\d{1,12}) \[(?:(\d{1,6}):)?(\d\d):(\d\d)<", re.ASCII
)
_EVALUATED = re.compile(r"'eval_runtime': '?(\d{1,9}(?:\.\d{1,9})?)", re.ASCII)


class _Saved(NamedTuple):
    """A checkpoint by its files: the first and the last of them to be finished."""

    place: Place
    step: int
    start_ns: int
    end_ns: int


def read(paths: list[Path], asked: Asked, notes: Notes) -> Iterator[Seen]:
    """What output folders and console logs tell; folders first, as one run."""
    folders = [p.parent if p.name == "trainer_state.json" else p for p in paths]
    folders = [p for p in folders if p.is_dir()]
    logs = [p for p in paths if not p.is_dir() and p.name != "trainer_state.json"]
    if folders:
        yield from _folders(folders, asked, notes)
    bars = _Bars(asked, notes)
    for log in logs:
        yield NewFile(Place(str(log), 0))
        yield from bars.read(log)


def _folders(folders: list[Path], asked: Asked, notes: Notes) -> Iterator[Seen]:
    saved = sorted(
        (one for folder in folders for one in _checkpoints(folder)), key=lambda one: one.end_ns
    )
    files = event_files(folders)
    if saved:
        notes.assume(
            "a save lasted at least from its first file's last change to its last file's: so much "
            "counts"
        )
    if files:
        yield from _among(curves(files, asked, notes, 0), saved, notes)
        return
    if not saved:
        raise ConfigurationError(
            f"{folders[0]} holds neither event files nor checkpoint-N folders; trainer_state.json "
            "alone has no times: give what the Trainer printed, or the folder of its event files"
        )
    notes.assume("no event files: steps were over when checkpoints were written, evenly in between")
    for one in saved:
        yield Stepped(one.place, one.step, one.start_ns)
        yield Paused(one.place, "save", one.start_ns, one.end_ns)


def _checkpoints(folder: Path) -> Iterator[_Saved]:
    """The checkpoints in a folder, each from its files."""
    count = 0
    for path in folder.glob("checkpoint-*"):
        count += 1
        found = _CHECKPOINT.fullmatch(path.name)
        if found is None or count > MOST_CHECKPOINTS or path.is_symlink() or not path.is_dir():
            continue
        times = [at_ns for p in path.rglob("*") if (at_ns := _changed_ns(p)) is not None]
        if times:
            yield _Saved(Place(str(path), 0), int(found[1]), min(times), max(times))


def _changed_ns(path: Path) -> int | None:
    """When a file was last changed; None for what is none, or is deleted meanwhile."""
    try:
        return path.lstat().st_mtime_ns if path.is_file() else None
    except OSError:
        return None


def _among(curve: Iterator[Seen], saved: list[_Saved], notes: Notes) -> Iterator[Seen]:
    """What was seen, and the saves at their times; those of another time are left out."""
    first_ns = last_ns = None
    waiting = iter(saved)
    save = next(waiting, None)
    for seen in curve:
        at_ns = _time_of(seen)
        if at_ns is not None:
            first_ns = at_ns if first_ns is None else first_ns
            while save is not None and save.end_ns <= at_ns:
                yield from _save(save, first_ns, notes)
                save = next(waiting, None)
            last_ns = at_ns
        yield seen
    while save is not None:
        if last_ns is not None and save.end_ns <= last_ns + LATE_NS:
            yield from _save(save, first_ns, notes)
        else:
            notes.odd(save.place, "its files are newer than the run (copied?): not counted")
        save = next(waiting, None)


def _save(save: _Saved, first_ns: int | None, notes: Notes) -> Iterator[Seen]:
    if first_ns is None or save.start_ns < first_ns:
        notes.odd(save.place, "its files are older than the run: not counted")
    else:
        yield Paused(save.place, "save", save.start_ns, save.end_ns)


def _time_of(seen: Seen) -> int | None:
    match seen:
        case Stepped() | Began() | Ended() | Alive():
            return seen.at_ns
        case Paused():
            return seen.end_ns
    return None


def _total_of_training(text: str) -> int | None:
    """How many steps the training's bar has: that under which a loss is printed.

    An evaluation ahead of the training has a bar, too. None: the text, a log's head, has no loss.
    """
    total = None
    for line in text.splitlines():
        if "%|" in line and (found := BAR.match(line)):
            total = int(found[2])
        elif total is not None and ("'loss':" in line or "'train_runtime'" in line):
            return total
    return None


class _Bars:
    """The Trainer's progress bar: steps done, and whole seconds since the training began."""

    def __init__(self, asked: Asked, notes: Notes) -> None:
        self._notes = notes
        self._base_ns = asked.start_ns or 0
        self._total: int | None = None
        self._elapsed_s: int | None = None
        self._last: Stepped | None = None  # not told yet
        self._done = 0

    def read(self, path: Path) -> Iterator[Seen]:
        self._notes.assume("the progress bar shows whole seconds: times are that exact")
        self._notes.assume(
            "what passed before a bar, and between two processes, is missing: goodput is an upper "
            "bound"
        )
        if self._total is None and path.is_file():
            self._total = _total_of_training(head(path).decode("utf-8", "replace"))
        for number, text in lines(path, self._notes):
            place = Place(str(path), number)
            if "%|" in text and (found := BAR.match(text)):
                yield from self._bar(place, found)
            elif found := _EVALUATED.search(text):
                took_ns = round(float(found[1]) * NS_PER_S)
                yield Paused(place, "custom:eval", took_ns=took_ns, after=self._done)
            elif "'train_runtime'" in text:
                yield from self._over()
                yield Ended(place, None, DONE)
            elif "Traceback (most" in text:
                yield from self._over()
                yield Ended(place, None, "failed")
        yield from self._over()

    def _bar(self, place: Place, found: re.Match[str]) -> Iterator[Seen]:
        done, total = int(found[1]), int(found[2])
        elapsed_s = int(found[3] or 0) * 3600 + int(found[4]) * 60 + int(found[5])
        if self._total is None:
            self._total = total
        if total != self._total:
            return  # an evaluation's, usually
        if self._elapsed_s is None or elapsed_s < self._elapsed_s or done < self._done:
            yield from self._over()
            self._base_ns += (self._elapsed_s or 0) * NS_PER_S
            self._done, self._elapsed_s = 0, elapsed_s
            yield Began(place, self._base_ns, "bar", sure=True)
        if done > self._done:
            step = Stepped(place, done, self._base_ns + elapsed_s * NS_PER_S)
            if elapsed_s > self._elapsed_s:
                self._last = None
                yield step
            else:
                self._last = step
            self._done = done
        self._elapsed_s = elapsed_s

    def _over(self) -> Iterator[Seen]:
        if self._last is not None:
            yield self._last
            self._last = None
