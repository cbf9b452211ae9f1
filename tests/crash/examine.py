"""What must hold of whatever a crash has left: the product's own recovery, and questions to it.

`examine` is given a store folder as a power cut left it, and what the product had promised by then.
It takes the run over as the next process would, and raises AssertionError for any promise that is
not kept. Then a second life trains on from there, and everything is asked again.
"""

from __future__ import annotations

import itertools
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from disk import State
from life import JOURNAL, LOG, NAME, Life, Place, same, state_at
from recorder import Recorder, write_tree

from holdfast.errors import JournalError, UnknownRun
from holdfast.journal.attempts import AttemptRecord, attempts, next_number
from holdfast.journal.layout import Kind
from holdfast.journal.reader import read_journal
from holdfast.journal.recorded import load_run
from holdfast.journal.store import RunFolder, RunStore
from holdfast.session.load import load
from holdfast.snapshot.catalog import Catalog
from holdfast.snapshot.reader import verify
from holdfast.snapshot.restore import read_set
from holdfast.snapshot.retention import read_pins
from holdfast.snapshot.sets import list_sets


@dataclass
class Promises:
    """What the product has told to be done."""

    run_id: str | None = None
    epoch: int = 0
    attempts: dict[int, AttemptRecord] = field(default_factory=dict)
    committed: tuple[int, int] | None = None  # the newest: (attempt, step)
    durable: tuple[int, int] | None = None  # the newest set of which every shard is
    pins: dict[str, str] = field(default_factory=dict)
    ended: dict[int, str] = field(default_factory=dict)
    journal: dict[int, int] = field(default_factory=dict)  # attempt → records
    log: dict[int, bytes] = field(default_factory=dict)

    def told(self, what: str, of: Any) -> None:
        """Take a promise down."""
        match what:
            case "run":
                self.run_id = of
            case "lease" | "released":
                self.epoch = max(self.epoch, of)
            case "attempt":
                self.attempts[of.attempt] = of
            case "committed":
                self.committed = of
            case "pinned":
                self.pins[of[0]] = of[1]
            case "ended":
                self.ended[of[0]] = of[1]
            case "durable":
                self.durable = of
            case "at home":
                self.journal[of[0]], self.log[of[0]] = of[1:]
            case _:
                raise ValueError(what)


def examine(place: Place, promised: Promises, until: int) -> None:
    """Recover, hold the promises against what is found, train to `until`, and ask again."""
    folder = _open(place, promised)
    if folder is not None:
        _journals_read(folder, promised)
        _attempts_are_there(folder, promised)
        _nothing_partial_is_visible(folder)
        _readers_find(folder, promised)
        lease = place.take_lease(folder)
        assert lease.epoch > promised.epoch, f"lease {lease.epoch} after {promised.epoch}"
        promised.told("lease", lease.epoch)
        _chosen(folder, promised)
        _pins_hold(folder, promised, tidied=True)
    state = Life(place, until, promised.told).live()
    assert same(state, state_at(until)), "what was trained on is not what it would have been"
    folder = _open(place, promised)
    assert folder is not None
    _journals_read(folder, promised)
    _attempts_are_there(folder, promised)
    _chosen(folder, promised)
    _pins_hold(folder, promised, tidied=True)
    assert same(load(f"{place.store}/{NAME}"), state_at(until))


def _open(place: Place, promised: Promises) -> RunFolder | None:
    try:
        folder = RunStore.at(place.store).get(NAME)
    except UnknownRun:
        assert promised.run_id is None, "the run is gone"
        return None
    assert promised.run_id in (None, folder.identity.run_id), "it is another run"
    return RunStore.at(place.store).open(NAME)


def _attempts_are_there(folder: RunFolder, promised: Promises) -> None:
    known = attempts(folder)
    assert not known.damage, known.damage
    records = {record.attempt: record for record in known.records}
    for number, record in promised.attempts.items():
        assert number in records, f"attempt {number} is gone"
        found = records[number]
        assert (found.parent, found.restore_set) == (record.parent, record.restore_set)
        if number in promised.ended:
            assert found.end is not None, f"the end of attempt {number} is gone"
            assert found.end.cause == promised.ended[number]
    assert next_number(folder) > max(promised.attempts, default=-1), "a number is used again"


def _nothing_partial_is_visible(folder: RunFolder) -> None:
    sets, damage = list_sets(folder.ckpt_dir)
    assert not damage, damage
    for one in sets:
        assert verify(one.path) == ()
        assert same(read_set(one.path)["state"], state_at(one.step)), one.name


def _readers_find(folder: RunFolder, promised: Promises) -> None:
    """Somebody who only reads, and repairs nothing."""
    if promised.committed is not None:
        found = load(str(folder.path))
        assert same(found, state_at(found["step"]))
        assert found["step"] >= promised.committed[1], f"step {found['step']} is loaded"
    _pins_hold(folder, promised, tidied=False)


def _chosen(folder: RunFolder, promised: Promises) -> None:
    held: Any = SimpleNamespace(epoch=1, check=lambda: None)
    catalog = Catalog(folder, lease=held)
    catalog.tidy()
    _nothing_partial_is_visible(folder)
    resume, words = catalog.choose()
    newest = max(promised.committed or (-1, 0), promised.durable or (-1, 0))
    if newest >= (0, 0):
        assert resume.set_name is not None, f"silently from scratch: {words}"
        assert resume.parent is not None
        assert (resume.parent, resume.step) >= newest, f"{words}, not the newest"


def _pins_hold(folder: RunFolder, promised: Promises, *, tidied: bool) -> None:
    pins = read_pins(folder.pins_path)
    if tidied:
        for one in list_sets(folder.ckpt_dir)[0]:
            for tag in one.tags:
                assert tag in pins, f"{one.name} was tagged {tag}, and is not pinned"
    for tag, name in promised.pins.items():
        assert pins.get(tag) == name, f"tag {tag} is {pins.get(tag)}, not {name}"
    there = {one.name: one for one in list_sets(folder.ckpt_dir)[0]}
    for tag, name in pins.items():
        assert name in there, f"the set of tag {tag} is gone"


def _journals_read(folder: RunFolder, promised: Promises) -> None:
    for attempt, count in promised.journal.items():
        path = folder.attempt_journal_dir(attempt) / JOURNAL
        journal = read_journal(path)
        assert len(journal.records) >= count, f"{len(journal.records)} of {count} records"
        steps = journal.records[journal.records["kind"] == Kind.STEP]["step"]
        first = promised.attempts[attempt].resume_step + 1
        assert np.array_equal(steps, np.arange(first, first + len(steps)))
        notes = journal.records[journal.records["kind"] == Kind.NOTE]["value"]
        assert set(notes.tolist()) <= {line.offset for line in journal.sidecar}
        log = (folder.logs_dir(attempt) / LOG).read_bytes()
        assert log.startswith(promised.log[attempt]), "the log is not what was brought home"
    recorded = load_run(folder.path)
    try:
        account = recorded.account()
    except JournalError:
        assert not promised.journal, "a journal that was brought home is gone"
        return
    assert sum(account.kinds.values()) == account.elapsed_ns * account.chips


def examine_tree(root: Path, tree: State, promised: Promises, until: int) -> None:
    """`examine` of a tree that is written out first, on a host without scratch of the run."""
    shutil.rmtree(root, ignore_errors=True)
    write_tree(root / "store", tree)
    (root / "scratch").mkdir()
    place = Place(root / "store", root / "scratch", boot="later", lives=itertools.count(1000))
    with Recorder(root / "store", initial=tree) as recorder:
        recorder.also = [root / "scratch"]
        examine(place, promised, until)
    assert recorder.outside == [], "something outside the store was changed"
