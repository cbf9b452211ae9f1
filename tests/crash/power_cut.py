"""A short run on record, and every state that a power cut may leave of it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from disk import Disk, Op, State, Synced, digest
from examine import Promises, examine_tree
from life import Life, Place
from recorder import Recorder

from holdfast.snapshot.keep import Keep

UNTIL = 3  # the step to which a second life trains on


class Mark(NamedTuple):
    """The product promised something after so many operations."""

    after: int
    what: str
    of: Any


class Moment(NamedTuple):
    """What may be found after a power cut, and how much had been promised by then."""

    after: int  # operations
    promises: int
    tree: State


@dataclass(frozen=True)
class Recorded:
    """A run: what it did to the disk, and what it was promised."""

    ops: tuple[Op, ...]
    marks: tuple[Mark, ...]

    def promised(self, count: int) -> Promises:
        """The first so many promises."""
        promises = Promises()
        for mark in self.marks[:count]:
            promises.told(mark.what, mark.of)
        return promises

    def made_by(self, after: int) -> int:
        """How many promises had been made after so many operations."""
        return sum(mark.after <= after for mark in self.marks)

    def without(self, sync: int) -> Recorded:
        """The same run, had this fsync done nothing."""
        ops = list(self.ops)
        node = ops[sync]
        assert isinstance(node, Synced)
        ops[sync] = Synced(-1, node.path)
        return Recorded(tuple(ops), self.marks)

    def said(self, after: int) -> str:
        """The last operation before a power cut, for people."""
        op = self.ops[after - 1] if after else None
        return f"after operation {after} ({type(op).__name__} {getattr(op, 'path', '')})"


def record(root: Path) -> Recorded:
    """Two saves, the second one tagged, retention after each, the end; and a second attempt."""
    store, scratch = root / "store", root / "scratch"
    store.mkdir()
    scratch.mkdir()
    recorder = Recorder(store)
    recorder.also = [scratch]
    marks: list[Mark] = []
    place = Place(store, scratch)

    def told(what: str, of: Any) -> None:
        marks.append(Mark(len(recorder.ops), what, of))

    with recorder:
        Life(place, 2, told, save_every=1, keep=Keep(last=1), tags={2: "best"}).live()
        Life(place, 2, told).live()
    assert recorder.matches() == [], "something was changed that the recorder did not see"
    assert recorder.outside == []
    return Recorded(tuple(recorder.ops), tuple(marks))


def is_background(path: str) -> bool:
    """Heartbeats, and files that grow: they wait long for the disk, and nothing follows them."""
    return ".alive" in path or path.endswith((".hfj", ".jsonl", ".log"))


def moments(
    run: Recorded, seed: int, samples: int, within: range | None = None
) -> tuple[list[Moment], int]:
    """Each state once (with what was promised by then), and at how many moments it is a sample.

    `within`: only moments after so many operations.
    """
    chance = random.Random(seed)
    found: dict[tuple[str, int], Moment] = {}
    sampled = 0
    for after, disk in _disks(run, within):
        trees, are_all = disk.after_crash(chance, is_background, samples)
        sampled += not are_all
        for tree in trees:
            made = run.made_by(after)
            # Without samples, one state of the background for each of the rest is enough.
            key = digest(tree if samples else _foreground(tree))
            found.setdefault((key, made), Moment(after, made, tree))
    return list(found.values()), sampled


def bare_moments(run: Recorded, within: range | None = None) -> Iterator[Moment]:
    """The same, with nothing left but what was synced."""
    seen: set[tuple[str, int]] = set()
    for after, disk in _disks(run, within):
        tree, made = disk.synced(), run.made_by(after)
        if (digest(tree), made) not in seen:
            seen.add((digest(tree), made))
            yield Moment(after, made, tree)


def _foreground(tree: State) -> State:
    return {path: data for path, data in tree.items() if not is_background(path)}


def _disks(run: Recorded, within: range | None) -> Iterator[tuple[int, Disk]]:
    disk = Disk()
    for after in range(len(run.ops) + 1):
        if after:
            disk.apply(run.ops[after - 1])
        if within is None or after in within:
            yield after, disk


def broken(run: Recorded, moment: Moment, jail: Path) -> str | None:
    """What is wrong after that power cut, in words; None when every promise is kept."""
    try:
        examine_tree(jail / "after", moment.tree, run.promised(moment.promises), UNTIL)
    except Exception as error:
        return f"{run.said(moment.after)}: {type(error).__name__}: {error}"
    return None


def syncs(run: Recorded) -> list[int]:
    """Where in the run's operations the fsyncs are."""
    return [n for n, op in enumerate(run.ops) if isinstance(op, Synced)]
