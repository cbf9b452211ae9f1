"""The power fails at any moment of a short run: what was promised is there when it comes back."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
import tempfile
from pathlib import Path

import pytest
from disk import digest
from examine import Promises, examine_tree
from life import Life, Place
from power_cut import (
    UNTIL,
    Moment,
    Recorded,
    bare_moments,
    broken,
    moments,
    record,
    syncs,
)
from recorder import Killed, Recorder

from holdfast.snapshot.keep import Keep

SEED = 1
LONG = os.environ.get("CRASH") == "long"

# Leaving out one of these fsyncs breaks no promise. Each is named by what it is of, and by the
# operation before it: a run does the same operations each time.
NOT_MISSED = {
    "r after named r/run.json": "for a predecessor that was killed between mkdir and fsync",
    "r after named r/lease/reserved": "the same",
    "r/lease/reserved after wrote r/lease/reserved": "room for the last words, and no more",
    "r/lease after named r/lease/reserved": "the same",
    "r/lease after named r/lease/000001.json": "the next one of that folder follows at once",
    "r/lease after named r/lease/000002.json": "the same",
    "r/lease/000001.json after wrote r/lease/000001.json": "a torn claim still counts by its name",
    "r/lease/000002.json after wrote r/lease/000002.json": "the same",
    "r/lease/000001.released after wrote r/lease/000001.released": "spares the next start a look",
    "r/lease/000002.released after wrote r/lease/000002.released": "the same",
    "r/lease after named r/lease/000001.released": "the same",
    "r/lease after named r/lease/000002.released": "the same",
    "r/ckpt after synced r/ckpt/0000-000000000001": "for a folder made by a rank that was killed",
    "r/ckpt after synced r/ckpt/0000-000000000002": "the same",
    "r/ckpt/first-commit.json after wrote r/ckpt/first-commit.json": "a second line of defence",
    "r/ckpt after named r/ckpt/first-commit.json": "the same",
    "r/ckpt after named r/ckpt/0000-000000000001": "what comes back of a deleted set is partial",
}


@functools.cache
def recorded() -> Recorded:
    with tempfile.TemporaryDirectory() as folder:
        return record(Path(folder))


@functools.cache
def all_moments() -> tuple[list[Moment], int]:
    return moments(recorded(), SEED, samples=0)


_judged: dict[tuple[str, int], str | None] = {}


def judged(run: Recorded, moment: Moment, jail: Path) -> str | None:
    """What is wrong after that power cut; what several runs leave alike is examined once."""
    key = (digest(moment.tree), moment.promises)
    if key not in _judged:
        _judged[key] = broken(run, moment, jail)
    return _judged[key]


@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.real), *([] if LONG else [8])])
def test_every_promise_survives_every_power_cut(jail: Path, long: bool, every: int, capsys) -> None:
    """All states for the changes nobody was told of; a few samples of the copies under way.

    Every state is examined in `make tests-real` and `make crash`, every eighth in `make test`.
    """
    run = recorded()
    found, sampled_moments = moments(run, SEED, samples=24) if long else all_moments()
    wrong = [words for moment in found[::every] if (words := judged(run, moment, jail))]
    with capsys.disabled():
        print(
            f"\n{len(found)} states after a power cut at {len(run.ops) + 1} moments"
            f" ({sampled_moments} of them sampled)"
        )
    assert wrong == []
    assert len(found) > 500


def missed(run: Recorded, sync: int, jail: Path, *, thorough: bool) -> str | None:
    """How it shows that this fsync was left out; None when it does not."""
    mutant = run.without(sync)
    node = run.ops[sync].node
    later = [n for n in syncs(run) if n > sync and run.ops[n].node == node]
    until = later[0] if later else len(run.ops)  # from there on it is made good
    for moment in bare_moments(mutant, range(sync + 1, until + 1)):
        if (words := judged(mutant, moment, jail)) is not None:
            return words
    if not thorough:
        return None
    near = range(sync + 1, min(until, sync + 9) + 1)
    known = {(digest(m.tree), m.promises) for m in moments(run, SEED, 0, near)[0]}
    for moment in moments(mutant, SEED, 0, near)[0]:
        is_new = (digest(moment.tree), moment.promises) not in known
        if is_new and (words := judged(mutant, moment, jail)) is not None:
            return words
    return None


def test_an_fsync_that_is_left_out_is_missed(jail: Path, long: bool) -> None:
    """Each fsync of the run has its reason: without it a promise breaks, or it is explained."""
    run = recorded()
    unseen = set()
    for sync in syncs(run):
        name = what(run, sync)
        if missed(run, sync, jail, thorough=long or name not in NOT_MISSED) is None:
            unseen.add(name)
    assert unseen == set(NOT_MISSED)


def what(run: Recorded, sync: int) -> str:
    """What an fsync is of, and what was done before it; without the names of drafts."""
    before = run.ops[sync - 1]
    words = f"{run.ops[sync].path} after {type(before).__name__.lower()} {before.path}"
    return re.sub(r"/\.([^/ ]+)\.[0-9a-f]{12}\.tmp", r"/\1", words)


def test_a_kill_and_then_a_power_cut(jail: Path, long: bool) -> None:
    """A process is killed, the next one goes on; the power fails before anything else is written.

    What the first one left was never synced, and is there for the second one to see: what the
    second one builds on it must be durable all the same.
    """
    kills = len(recorded().ops) // 2
    wrong = []
    for number in range(0, kills, 1 if long else 3):
        root = jail / f"killed-{number}"
        for part in ("store", "scratch"):
            (root / part).mkdir(parents=True)
        recorder, promises = Recorder(root / "store"), Promises()
        recorder.also = [root / "scratch"]
        place = Place(root / "store", root / "scratch")
        left = itertools.count(-number)

        def dying(what: str, path: str, recorder=recorder, left=left) -> None:
            if next(left) == 0:
                recorder.kill()

        recorder.hook = dying
        with recorder:
            with contextlib.suppress(Killed):
                Life(place, 2, promises.told, save_every=1, keep=Keep(last=1)).live()
            recorder.revive()
            Life(place, 3, promises.told, save_every=1, keep=Keep(last=1)).live()
        assert recorder.matches() == []
        try:
            examine_tree(jail / "after", recorder.disk.synced(), promises, UNTIL + 2)
        except Exception as error:
            wrong.append(f"killed before operation {number}: {type(error).__name__}: {error}")
    assert wrong == []
