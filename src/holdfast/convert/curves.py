"""TensorBoard's curves as logs of steps: each value was written at a time that the file keeps.

One scalar, the training loss if there is one, tells of the steps; each event file is a process.
PyTorch Lightning counts steps from 0, Hugging Face's Trainer from 1; others are taken to count from
0 if they begin with 0. Beside them, the files in a Trainer's checkpoints tell when those were
written.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import chain, islice
from pathlib import Path

from holdfast.convert.asked import MAX_NS, ConvertOptions
from holdfast.convert.events import Scalar, scalars
from holdfast.convert.notes import LogPlace, Notes
from holdfast.convert.seen import Seen
from holdfast.core.durations import SECOND_NS
from holdfast.core.ledger.facts import DONE

EVENTS = "*tfevents*"
LOOK_AT = 5000  # so many values tell which scalar is which
MOST_FILES = 10_000
MOST_CHECKPOINTS = 100_000
LATE_NS = 60 * SECOND_NS  # a checkpoint's files are not newer than the run by more
_CHECKPOINT = re.compile(r"checkpoint-(\d{1,12})", re.ASCII)
# Pax says of each step whether it is_valid: that is no evaluation.
WITHOUT_TRAINING = re.compile(
    r"(?:^|[/_.\-])(?<!is_)"
    r"(?:val|valid|validation|validate|eval|evaluation|test|testing|predict)(?:$|[/_.\-])"
)
_NO_STEPS = ("epoch", "train/epoch", "hp_metric", "")
_EVAL_SECONDS = "eval/runtime"  # of Hugging Face, as is the next
_TRAINED = "train/train_runtime"


def event_files(paths: Iterable[Path]) -> list[Path]:
    """The event files among the paths and under them, as many as a run can have."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            found += islice((p for p in sorted(path.rglob(EVENTS)) if p.is_file()), MOST_FILES)
        else:
            found.append(path)
    return found


def curves(
    files: list[Path], asked: ConvertOptions, notes: Notes, first_step: int | None
) -> Iterator[Seen]:
    """What the files tell, one process each; `first_step`: as they count (None: found out)."""
    begun = []
    for path in files:
        with closing(scalars(path, Notes())) as found:
            begun += [(first.at_ns, str(path), path) for first in islice(found, 1)]
    if len(begun) > 1:
        notes.assume(f"the {len(begun)} event files are one run, a process each")
    notes.assume("a process that was killed lost what TensorBoard had not written yet")
    before, over_ns = "", None  # the last file that has steps, and when it was over
    for at_ns, name, path in sorted(begun):
        if over_ns is not None and at_ns < over_ns - SECOND_NS:
            notes.odd(LogPlace(name), f"begun while {before} was written: left out")
            continue
        for seen in _curve(path, asked, notes, first_step):
            over_ns = max(over_ns or 0, seen.at_ns or 0)
            before = name
            yield seen


def _curve(
    path: Path, asked: ConvertOptions, notes: Notes, first_step: int | None
) -> Iterator[Seen]:
    """What one file tells, from its first step on."""
    found = scalars(path, notes)
    first = list(islice(found, LOOK_AT))
    tag = asked.tag or _tag_of_steps(first)
    if tag is None:
        notes.odd(LogPlace(str(path)), "no scalar of training in it: left out")
        return
    tags = {scalar.tag for scalar in first}
    if first_step is None:
        is_lightning = "epoch" in tags and "train/epoch" not in tags
        first_step = int(not (is_lightning or any(s.tag == tag and not s.step for s in first)))
        if not first_step:
            notes.assume(f"{path} counts steps from 0; here the first is 1")
    notes.assume(f"the steps are those of the scalar {tag!r} (--tag)", f"tag {tag}")
    held_up = None  # the scalar that tells of evaluations without their length
    if _EVAL_SECONDS not in tags:
        held_up = next((s.tag for s in first if WITHOUT_TRAINING.search(s.tag)), None)
    if held_up is not None:
        notes.evaluates(held_up)
    has_steps = False
    for place, at_ns, step, name, value in chain(first, found):
        if name == tag:
            if not has_steps:
                yield Seen("began", first[0].place, first[0].at_ns, is_sure=True)
            has_steps = True
            yield Seen("step", place, at_ns, step + 1 - first_step)
        elif not has_steps:
            continue
        elif name == _EVAL_SECONDS:
            if 0 <= value * SECOND_NS <= abs(at_ns):
                took_ns = round(value * SECOND_NS)
                yield Seen("pause", place, at_ns, took_ns=took_ns, name="custom:eval")
        elif name == _TRAINED:
            yield Seen("ended", place, at_ns, name=DONE)
        elif name == held_up:
            yield Seen("pause", place, at_ns, name="custom:eval")
        else:
            yield Seen("line", place, at_ns)


def _tag_of_steps(found: Iterable[Scalar]) -> str | None:
    """The scalar that is written as steps go: one of training, a loss if there is one."""
    steps: dict[str, set[int]] = {}
    for scalar in found:
        if scalar.tag not in _NO_STEPS and not WITHOUT_TRAINING.search(scalar.tag):
            steps.setdefault(scalar.tag, set()).add(scalar.step)
    most = max(map(len, steps.values()), default=0)
    often = [tag for tag, those in steps.items() if 2 * len(those) >= most]
    return min(often, key=lambda t: ("loss" not in t, -len(steps[t]), t), default=None)


# --- checkpoints of Hugging Face's Trainer ---


def saves(folders: Iterable[Path]) -> list[Seen]:
    """The checkpoints in folders, by their times: from the first to the last of their files."""
    found: list[Seen] = []
    for path in islice(chain(*(f.glob("checkpoint-*") for f in folders)), MOST_CHECKPOINTS):
        name = _CHECKPOINT.fullmatch(path.name)
        if name is not None and path.is_dir() and not path.is_symlink():
            times = [at_ns for p in path.rglob("*") if (at_ns := _changed_ns(p)) is not None]
            if times:
                place, took_ns = LogPlace(str(path)), max(times) - min(times)
                step = int(name[1])
                found.append(Seen("pause", place, max(times), step, took_ns=took_ns, name="save"))
    return sorted(found, key=_at_ns)


def _at_ns(seen: Seen) -> int:
    return seen.at_ns or 0


def _changed_ns(path: Path) -> int | None:
    """When a file was last changed; None for what is none, or is deleted meanwhile."""
    try:
        return path.lstat().st_mtime_ns if path.is_file() else None
    except OSError:
        return None


def with_saves(curve: Iterator[Seen], found: list[Seen], notes: Notes) -> Iterator[Seen]:
    """What was seen, and the saves at their times; those of another time are left out."""
    waiting, first_ns, last_ns = deque(found), MAX_NS, -MAX_NS
    for seen in chain(curve, [None]):
        if seen is not None and seen.at_ns is not None:
            last_ns = seen.at_ns
            first_ns = min(first_ns, last_ns)
        late_ns = LATE_NS if seen is None else 0
        while waiting and _at_ns(waiting[0]) <= last_ns + late_ns:
            save = waiting.popleft()
            if _at_ns(save) - (save.took_ns or 0) < first_ns:
                notes.odd(save.place, "its files are older than the run: not counted")
            else:
                yield save
        if seen is not None:
            yield seen
    for save in waiting:
        notes.odd(save.place, "its files are newer than the run (copied?): not counted")
