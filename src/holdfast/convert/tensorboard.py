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

from holdfast.convert.asked import NS_PER_S, Asked
from holdfast.convert.events import Scalar, scalars
from holdfast.convert.notes import Notes
from holdfast.convert.seen import Alive, Began, Ended, Paused, Place, Seen, Stepped
from holdfast.core.ledger.facts import DONE
from holdfast.errors import ConfigurationError

WARM_UP = "startup"
EVENTS = "*tfevents*"
LOOK_AT = 5000  # so many values tell which scalar is which
MOST_FILES = 10_000
_WITHOUT_TRAINING = re.compile(
    r"(?:^|[/_.\-])(?:val|valid|validation|validate|eval|evaluation|test|testing|predict)(?:$|[/_.\-])"
)
_NO_STEPS = ("epoch", "train/epoch", "hp_metric", "")
_EVAL_SECONDS = "eval/runtime"  # of Hugging Face, as is the next
_TRAINED = "train/train_runtime"


def read(paths: list[Path], asked: Asked, notes: Notes) -> Iterator[Seen]:
    """What event files, or all of those under folders, tell; in the order of their times."""
    yield from curves(event_files(paths), asked, notes, None)


def read_lightning(paths: list[Path], asked: Asked, notes: Notes) -> Iterator[Seen]:
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


def curves(files: list[Path], asked: Asked, notes: Notes, shift: int | None) -> Iterator[Seen]:
    """What the files tell, one process each; `shift` is added to their steps (None: found out)."""
    begun = []
    for path in files:
        with closing(scalars(path, Notes())) as found:
            first = next(found, None)
        if first is not None:
            begun.append((first.at_ns, str(path), path))
    if len(begun) > 1:
        notes.assume(f"the {len(begun)} event files are one run, a process each")
    notes.assume("a process that was killed lost what TensorBoard had not written yet")
    before: _File | None = None
    for at_ns, _, path in sorted(begun):
        if before is not None and at_ns < before.over_ns - NS_PER_S:
            notes.odd(Place(str(path), 0), f"begun while {before.path} was written: left out")
            continue
        file = _File(path, asked, notes, shift)
        yield from file.read()
        before = file if file.has_steps else before


class _File:
    """One event file."""

    def __init__(self, path: Path, asked: Asked, notes: Notes, shift: int | None) -> None:
        self.path = path
        self.over_ns = 0
        self.has_steps = False
        self._asked = asked
        self._notes = notes
        self._shift = shift
        self._held_up: str | None = (
            None  # the scalar that tells of evaluations without their length
        )
        self._started: Began | None = None

    def read(self) -> Iterator[Seen]:
        found = scalars(self.path, self._notes)
        head = list(islice(found, LOOK_AT))
        tag = self._asked.tag or tag_of_steps(head)
        if tag is None:
            self._notes.odd(Place(str(self.path), 0), "no scalar of training in it: left out")
            return
        tags = {scalar.tag for scalar in head}
        if self._shift is None:
            is_lightning = "epoch" in tags and "train/epoch" not in tags
            from_0 = is_lightning or any(s.tag == tag and s.step == 0 for s in head)
            self._shift = 1 if from_0 else 0
            if from_0:
                self._notes.assume(f"{self.path} counts steps from 0; here the first is 1")
        self._notes.assume(f"the steps are those of the scalar {tag!r} (--tag)", f"tag {tag}")
        if _EVAL_SECONDS not in tags:
            self._held_up = next((s.tag for s in head if _WITHOUT_TRAINING.search(s.tag)), None)
            if self._held_up is not None:
                self._notes.assume(
                    f"a row of steps in which {self._held_up!r} was written is longer than usual "
                    "because of an evaluation",
                    "evaluations",
                )
        self._started = Began(head[0].place, head[0].at_ns, "file", sure=True)
        for scalar in chain(head, found):
            yield from self._scalar(scalar, tag)

    def _scalar(self, scalar: Scalar, tag: str) -> Iterator[Seen]:
        self.over_ns = max(self.over_ns, scalar.at_ns)
        if scalar.tag == tag:
            if self._started is not None:
                yield self._started
                self._started, self.has_steps = None, True
            yield Stepped(scalar.place, scalar.step + (self._shift or 0), scalar.at_ns)
        elif self._started is not None:
            return
        elif scalar.tag == _EVAL_SECONDS:
            if 0 <= scalar.value * NS_PER_S <= abs(scalar.at_ns):
                took_ns = round(scalar.value * NS_PER_S)
                yield Paused(scalar.place, "custom:eval", scalar.at_ns - took_ns, scalar.at_ns)
        elif scalar.tag == _TRAINED:
            yield Ended(scalar.place, scalar.at_ns, DONE)
        elif scalar.tag == self._held_up:
            yield Paused(scalar.place, "custom:eval", end_ns=scalar.at_ns)
        else:
            yield Alive(scalar.at_ns)


def tag_of_steps(found: Iterable[Scalar]) -> str | None:
    """The scalar that is written as steps go: one of training, a loss if there is one."""
    steps: dict[str, set[int]] = {}
    for scalar in found:
        if scalar.tag not in _NO_STEPS and not _WITHOUT_TRAINING.search(scalar.tag):
            steps.setdefault(scalar.tag, set()).add(scalar.step)
    most = max(map(len, steps.values()), default=0)
    often = [tag for tag, those in steps.items() if 2 * len(those) >= most]
    return min(often, key=lambda t: ("loss" not in t, -len(steps[t]), t), default=None)
