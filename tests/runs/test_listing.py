"""The runs of a store in numbers: as the ledger has them, cached or not, whatever lies there."""

from __future__ import annotations

import json
import os
import shutil
import time
from multiprocessing import get_context
from pathlib import Path

import pytest
from made_runs import Made, make_run

from holdfast.core.ledger.summary import ALL, RunSummary, Window, rolling
from holdfast.journal.lease import acquire
from holdfast.journal.live import live_journals
from holdfast.journal.recorded import load_run
from holdfast.journal.store import RunStore
from holdfast.runs import listing as listing_module
from holdfast.runs.cache import outside
from holdfast.runs.listing import Listing, RunList

S = 1_000_000_000
DAY = 86_400 * S
NOW = 1_790_000_000 * S
LONG = [Made(100, cause="killed"), Made(50, cause="failed"), Made(200)]


@pytest.fixture
def stored(store: Path) -> RunStore:
    """Four runs: one of today, one of last month, one that began before the last day, one new."""
    runs = RunStore(store)
    make_run(runs, "today", LONG, requested_ns=NOW - 2 * 3600 * S, ideal_step_s=8.0)
    make_run(runs, "old", [Made(20)], requested_ns=NOW - 30 * DAY, chips=8)
    make_run(runs, "long", [Made(140, 600.0)], requested_ns=NOW - DAY - 3600 * S)
    runs.create("new")
    age(store)
    return runs


def age(place: Path, s: float = 3600) -> None:
    """All files below were written so long ago."""
    at_ns = time.time_ns() - round(s * S)
    for folder, _, names in os.walk(place):
        for name in names:
            os.utime(Path(folder) / name, ns=(at_ns, at_ns))
        os.utime(folder, ns=(at_ns, at_ns))


def by_name(listing: Listing) -> dict[str, RunSummary]:
    return {run.name: run for run in listing.runs}


def look(runs: RunStore, cache: Path | None = None) -> Listing:
    return RunList(runs, cache=cache).look(NOW)


def test_numbers_are_the_ledgers(stored: RunStore) -> None:
    listing = look(stored)
    assert listing.problems == ()
    runs = by_name(listing)
    assert {name: run.state for name, run in runs.items()} == {
        "today": "done", "old": "done", "long": "done", "new": "new",
    }  # fmt: skip
    for name in ("today", "old", "long"):
        folder = stored.get(name)
        recorded = load_run(folder.path, live_journals(folder))
        whole = recorded.account(NOW)
        run = runs[name]
        assert run.spent().kinds == {k: ns for k, ns in whole.kinds.items() if ns}
        assert run.spent().steps_kept == whole.steps_kept
        assert (run.chips, run.start_ns, run.end_ns) == (whole.chips, whole.start_ns, whole.end_ns)
        for window, from_ns in rolling(NOW)[1:]:
            within_ns = max(0, whole.end_ns - max(from_ns or 0, whole.start_ns))
            assert run.spent(window).elapsed == within_ns * whole.chips, (name, window)
            if within_ns:
                part = recorded.account(NOW, within_ns)
                assert run.spent(window).productive == part.productive
    assert (runs["today"].step, runs["today"].attempts) == (350, 3)
    assert [loss.cause for loss in runs["today"].spent().losses] == ["killed", "failed"]
    assert runs["today"].spent().program == pytest.approx(0.8)
    assert runs["old"].spent().program is None
    assert runs["new"].spent().elapsed == 0


def test_a_cached_listing_says_the_same_and_reads_nothing_but_what_a_window_cuts(
    stored: RunStore, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    first, again = look(stored, cache), look(stored, cache)
    assert first.runs == again.runs == look(stored).runs
    assert by_name(again)["old"].metrics["loss"] == 1 / 20
    assert (first.read, again.read) == (
        4,
        2,
    )  # an hour begins in the midst of one, a day in another
    whole = RunList(stored, cache=cache).look(NOW, [Window(ALL, None)])
    assert (whole.read, len(whole.runs)) == (0, 4)


def test_what_is_written_is_read_again(stored: RunStore, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    look(stored, cache)
    folder = stored.get("old")
    journal = next(folder.journal_dir.glob("*.hfj"))
    before = outside(folder.path)
    os.utime(journal, ns=(1, 1))
    assert outside(folder.path) != before
    listing = RunList(stored, cache=cache).look(NOW, [Window(ALL, None)])
    assert listing.read == 1
    shutil.rmtree(folder.path)
    assert "old" not in by_name(look(stored, cache))
    assert "old" not in json.dumps(json.loads(next(cache.glob("*.json")).read_text()))


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b'{"version": 2, "runs": []}', b'{"version": 3, "runs": [{}]}',
     b'{"version": 3, "runs": 7}', b"\xff\xfe"],
)  # fmt: skip
def test_a_damaged_cache_costs_time_alone(stored: RunStore, tmp_path: Path, data: bytes) -> None:
    cache = tmp_path / "cache"
    first = look(stored, cache)
    next(cache.glob("*.json")).write_bytes(data)
    assert look(stored, cache).runs == first.runs


def test_a_cache_that_cannot_be_written_is_no_trouble(stored: RunStore, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert len(look(stored, tmp_path / "file" / "cache").runs) == 4


def test_a_supervised_run_is_always_read_and_followed(
    stored: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing_module, "SETTLED_NS", 600 * S)  # two looks may take two seconds
    folder = stored.get("old")
    lease = acquire(folder)
    runs = RunList(stored, cache=tmp_path / "cache")
    whole = [Window(ALL, None)]
    assert [runs.look(NOW, whole).read for _ in range(3)] == [4, 1, 1]
    assert by_name(runs.look(NOW, whole))["old"].state == "running"
    lease.release()
    assert [runs.look(NOW, whole).read for _ in range(2)] == [1, 1]  # that was just now
    age(folder.path, 700)
    assert [runs.look(NOW, whole).read for _ in range(2)] == [1, 0]


@pytest.mark.parametrize(("state", "new_s"), [("done", -3600), ("interrupted", 5)])
def test_what_was_just_written_is_not_trusted(
    store: Path, tmp_path: Path, state: str, new_s: float
) -> None:
    """A second write may leave the file's look as it is: in the same tick, or through a map."""
    folder, _ = make_run(RunStore(store), "r", [Made(9)], requested_ns=NOW - DAY)
    if state == "interrupted":
        (folder.attempt_dir(0) / "end.json").unlink()
    for ago_s, reads in ((new_s, [1, 1]), (90, [1, 0])):
        age(store, ago_s)
        runs = RunList(RunStore(store), cache=tmp_path / "cache")
        looks = [runs.look(NOW, [Window(ALL, None)]) for _ in range(2)]
        assert [one.read for one in looks] == reads
        assert {run.state for one in looks for run in one.runs} == {state}


def test_what_cannot_be_read_is_said_and_the_rest_is_told(stored: RunStore) -> None:
    (stored.root / "broken").mkdir()
    (stored.root / "broken" / "run.json").write_text("{")
    newer = stored.get("old").path / "run.json"
    newer.write_text(json.dumps({**json.loads(newer.read_text()), "format": 99}))
    journal = next(stored.get("today").journal_dir.glob("*.hfj"))
    data = bytearray(journal.read_bytes())
    data[8] = 9  # a newer version of the journal
    journal.write_bytes(data)
    listing = look(stored)
    assert sorted(by_name(listing)) == ["long", "new", "today"]
    words = " ".join(listing.problems)
    assert "broken" in words
    assert "newer Holdfast" in words
    assert "format version" in words


@pytest.mark.real
def test_several_processes_read_what_one_reads(
    stored: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that cannot be read is left to the one who asks, and is told of as ever."""
    monkeypatch.setattr(listing_module, "WORTH_A_PROCESS", 1)
    (stored.root / "new" / "run.json").write_text("{")
    # A server of forks outlives the pool, and this test may leave no process.
    monkeypatch.setattr("holdfast.runs.ahead.get_context", lambda _how: get_context("fork"))
    alone = look(stored)
    together = RunList(stored, cache=tmp_path, processes=2)
    assert together.look(NOW) == alone
    again = together.look(NOW, [Window(ALL, None)])
    assert (again.read, len(again.runs)) == (0, 3)  # what they read is kept


def test_where_there_are_no_processes_to_be_had_one_reads_all(
    stored: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError("no processes")

    monkeypatch.setattr(listing_module, "WORTH_A_PROCESS", 1)
    monkeypatch.setattr("holdfast.runs.ahead.ProcessPoolExecutor", refused)
    assert RunList(stored, processes=2).look(NOW) == look(stored)
