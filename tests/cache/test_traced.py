"""Marks beside the programs: when one was right last, and which is no longer."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.cache.loads import clear
from holdfast.cache.tier import CacheTier
from holdfast.cache.traced import TRACED, Traced, is_void, last_traced, note_traced, void, voids

NAME = "step_f-0123456789abcdef0123456789abcdef.hfx"
HOT, COLD = "0123456789abcdef", "fedcba9876543210"
DIGEST = "ab" * 32


def test_the_newest_mark_counts(tmp_path: Path) -> None:
    assert last_traced(tmp_path, NAME) is None
    note_traced(tmp_path, NAME, HOT, 3)
    note_traced(tmp_path, NAME, COLD, 4)
    note_traced(tmp_path, f"x{NAME}", HOT, 9)  # another program's
    (mark,) = tmp_path.glob(f"{NAME}.*{TRACED}")
    os.utime(mark, (50.0, 50.0))
    assert last_traced(tmp_path, NAME) == Traced(COLD, 4, 50.0)


def test_what_is_no_mark_is_passed_over(tmp_path: Path) -> None:
    for words in (f"{HOT}.x", f"{HOT[:-1]}.3", f"{HOT}.{10**10}", HOT, f"{HOT}.3.3"):
        (tmp_path / f"{NAME}.{words}{TRACED}").touch()
    assert last_traced(tmp_path, NAME) is None
    (tmp_path / "ab.void").touch()
    (tmp_path / f"{DIGEST[:-1]}Z.void").touch()
    assert voids(tmp_path) == set()


def test_what_is_void_stays_so(tmp_path: Path) -> None:
    assert not is_void(tmp_path, DIGEST)
    void(tmp_path, DIGEST)
    void(tmp_path, DIGEST)
    assert is_void(tmp_path, DIGEST)
    assert voids(tmp_path) == {f"{DIGEST}.void"}
    assert not is_void(tmp_path, None)


def test_where_nothing_can_be_written_nothing_is_noted(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    note_traced(gone, NAME, HOT, 3)
    void(gone, DIGEST)
    assert last_traced(gone, NAME) is None
    assert not is_void(gone, DIGEST)


def test_they_go_with_the_run_and_are_no_programs(tmp_path: Path) -> None:
    note_traced(tmp_path, NAME, HOT, 3)
    void(tmp_path, DIGEST)
    assert CacheTier(tmp_path).entries() == []
    clear(tmp_path)
    assert list(tmp_path.iterdir()) == []
