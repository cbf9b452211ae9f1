"""TensorBoard's curves as logs of steps: each value was written at a time that the file keeps.

One scalar, the training loss if there is one, tells of the steps; each event file is a process.
PyTorch Lightning counts steps from 0, Hugging Face's Trainer from 1; others are taken to count from
0 if they begin with 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import chain, islice
from pathlib import Path

from holdfast.convert.asked import NS_PER_S, ConvertOptions
from holdfast.convert.events import Scalar, scalars
from holdfast.convert.notes import Notes
from holdfast.convert.seen import Began, LogEnded, LogEntry, LogPlace, Paused, Stepped
from holdfast.core.ledger.facts import DONE
from holdfast.errors import ConfigurationError

EVENTS = "*tfevents*"
LOOK_AT = 5000  # so many values tell which scalar is which
MOST_FILES = 10_000
_WITHOUT_TRAINING = re.compile(
    r"(?:^|[/_.\-])(?:val|valid|validation|validate|eval|evaluation|test|testing|predict)(?:$|[/_.\-])"
)
_NO_STEPS = ("epoch", "train/epoch", "hp_metric", "")
_EVAL_SECONDS = "eval/runtime"  # of Hugging Face, as is the next
_TRAINED = "train/train_runtime"


def read(paths: list[Path], asked: ConvertOptions, notes: Notes) -> Iterator[LogEntry]:
    """What event files, or all of those under folders, tell; in the order of their times."""
    yield from curves(event_files(paths), asked, notes, None)


def read_lightning(paths: list[Path], asked: ConvertOptions, notes: Notes) -> Iterator[LogEntry]:
    """The same of PyTorch Lightning's folders; its metrics.csv has no times."""
    files = event_files(paths)
    if not files:
        raise ConfigurationError(
            f"{paths[0]} holds no TensorBoard event file; Lightning's metrics.csv has no times, "
            "unless the script logs one: with such a column, use --from table --map "
            "step=step,time=COLUMN"
        )
    notes.assume("Lightning counts steps from 0; here the first is 1")
    yield from curves(files, asked, notes, 1)


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
    files: list[Path], asked: ConvertOptions, notes: Notes, shift: int | None
) -> Iterator[LogEntry]:
    """What the files tell, one process each; `shift` is added to their steps (None: found out)."""
    begun = []
    for path in files:
        with closing(scalars(path, Notes())) as found:
            begun += [(first.at_ns, str(path), path) for first in islice(found, 1)]
    if len(begun) > 1:
        notes.assume(f"the {len(begun)} event files are one run, a process each")
    notes.assume("a process that was killed lost what TensorBoard had not written yet")
    before, over_ns = "", None  # the last file that has steps, and when it was over
    for at_ns, name, path in sorted(begun):
        if over_ns is not None and at_ns < over_ns - NS_PER_S:
            notes.odd(LogPlace(name), f"begun while {before} was written: left out")
            continue
        for seen in _curve(path, asked, notes, shift):
            over_ns = max(over_ns or 0, seen.at_ns or 0)
            before = name
            yield seen


def _curve(
    path: Path, asked: ConvertOptions, notes: Notes, shift: int | None
) -> Iterator[LogEntry]:
    """What one file tells, from its first step on."""
    found = scalars(path, notes)
    head = list(islice(found, LOOK_AT))
    tag = asked.tag or _tag_of_steps(head)
    if tag is None:
        notes.odd(LogPlace(str(path)), "no scalar of training in it: left out")
        return
    tags = {scalar.tag for scalar in head}
    if shift is None:
        is_lightning = "epoch" in tags and "train/epoch" not in tags
        shift = int(is_lightning or any(s.tag == tag and s.step == 0 for s in head))
        if shift:
            notes.assume(f"{path} counts steps from 0; here the first is 1")
    notes.assume(f"the steps are those of the scalar {tag!r} (--tag)", f"tag {tag}")
    held_up = None  # the scalar that tells of evaluations without their length
    if _EVAL_SECONDS not in tags:
        held_up = next((s.tag for s in head if _WITHOUT_TRAINING.search(s.tag)), None)
    if held_up is not None:
        notes.assume(
            f"a row of steps in which {held_up!r} was written is longer than usual because of an "
            "evaluation",
            "evaluations",
        )
    has_steps = False
    for place, at_ns, step, name, value in chain(head, found):
        if name == tag:
            if not has_steps:
                yield Began(head[0].place, head[0].at_ns, what="file", sure=True)
            has_steps = True
            yield Stepped(place, at_ns, last=step + shift)
        elif not has_steps:
            continue
        elif name == _EVAL_SECONDS:
            if 0 <= value * NS_PER_S <= abs(at_ns):
                start_ns = at_ns - round(value * NS_PER_S)
                yield Paused(place, at_ns, kind="custom:eval", start_ns=start_ns)
        elif name == _TRAINED:
            yield LogEnded(place, at_ns, cause=DONE)
        elif name == held_up:
            yield Paused(place, at_ns, kind="custom:eval")
        else:
            yield LogEntry(place, at_ns)


def _tag_of_steps(found: Iterable[Scalar]) -> str | None:
    """The scalar that is written as steps go: one of training, a loss if there is one."""
    steps: dict[str, set[int]] = {}
    for scalar in found:
        if scalar.tag not in _NO_STEPS and not _WITHOUT_TRAINING.search(scalar.tag):
            steps.setdefault(scalar.tag, set()).add(scalar.step)
    most = max(map(len, steps.values()), default=0)
    often = [tag for tag, those in steps.items() if 2 * len(those) >= most]
    return min(often, key=lambda t: ("loss" not in t, -len(steps[t]), t), default=None)
