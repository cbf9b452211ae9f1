from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.report.bars import bar, split

SHARES = st.floats(0, 1)


@given(SHARES, SHARES, st.integers(1, 80), st.booleans())
def test_a_bar_fills_its_cells_and_is_never_invisible(
    a: float, b: float, width: int, ascii_only: bool
) -> None:
    begin, end = sorted((a, b))
    text = bar(begin, end, width, ascii_only=ascii_only)
    assert len(text) == width
    assert bool(text.strip()) == (end > begin)
    if ascii_only:
        assert text.isascii()


@given(st.integers(0, 79), st.integers(1, 80))
def test_whole_cells_are_drawn_exactly(first: int, cells: int) -> None:
    last = min(first + cells, 80)
    text = bar(first / 80, last / 80, 80)
    assert text == " " * first + "█" * (last - first) + " " * (80 - last)


def test_an_eighth_shows() -> None:
    assert bar(0, 1 / 8, 1) == "▏"
    assert bar(0, 0.5, 3) == "█▌ "
    assert bar(0.5, 1, 3) == " ▐█"


@given(st.lists(st.integers(0, 10**18), max_size=20), st.integers(0, 120))
def test_split_uses_every_cell_and_forgets_nobody(parts: list[int], width: int) -> None:
    segments = split(parts, width)
    if sum(parts) == 0 or width == 0:
        assert segments == []
        return
    assert sum(segment.cells for segment in segments) == width
    present = [i for i, part in enumerate(parts) if part > 0]
    if len(present) <= width:
        assert [segment.piece for segment in segments] == present
    for piece, cells in segments:
        exact = parts[piece] * width / sum(parts)
        assert cells == 1 or cells <= exact + 1
