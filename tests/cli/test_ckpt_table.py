"""The list of checkpoints on a terminal: no cell is cut, and 80 columns do for the usual ones."""

from __future__ import annotations

import io
import sys

import pytest

from holdfast.cli.ckpt import CheckpointRow, _show, newest

NS = 1_000_000_000


class Terminal(io.StringIO):
    """What a terminal has been sent."""

    def isatty(self) -> bool:
        return True


def row(step: int, tags: tuple[str, ...] = (), why: str = "") -> CheckpointRow:
    name = f"0000-{step:012d}"
    state = "abandoned" if why else "good"
    return CheckpointRow(name, 0, step, state, why, 1, 9 << 10, 1_795_898_222 * NS, tags)


@pytest.mark.parametrize("columns", [40, 80, 200])
@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([row(111), row(21)], ["111", "1", "9.0 KiB", "2026-11-28 20:37:02", "store", "good"]),
        ([row(5, ("best", "shipped"))], ["good", "best, shipped"]),
        ([row(7, why="the run continued from another one")], ["abandoned", "from another one"]),
    ],
)
def test_no_cell_is_cut(
    rows: list[CheckpointRow], said: list[str], columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    _show(rows)
    text = terminal.getvalue()
    assert "…" not in text
    for words in (rows[0].name, *said):
        assert words in text


def test_the_usual_list_fits_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    _show([row(9999)])
    assert max(map(len, terminal.getvalue().splitlines())) <= 80


def test_the_newest_is_none_that_the_run_went_back_from() -> None:
    """A run went back to step 10, and died before it saved: an export is of step 10."""
    left = "attempt 1 rolled back to step 10"
    rows = [row(40, why=left), row(30, why=left), row(10), row(5)]
    assert newest(rows) is rows[2]
    assert newest(rows[:2]) is rows[0]
