"""A time line in a few numbers."""

from __future__ import annotations

from holdfast.core.ledger.course import Course, Piece, shares


def test_parts_have_what_lies_in_them() -> None:
    pieces = (
        Piece(100, 200, {"startup": 100}),
        Piece(200, 350, {"step": 150}),
        Piece(350, 500, {"step": 75, "lost": 75}),
    )
    assert shares(Course(100, 500, pieces, (), (), False), 4) == (0, 100, 75, 50)
    assert shares(Course(100, 500, pieces, (), (), False), 1) == (56,)
    assert shares(Course(100, 100, (), (), (), False), 4) == ()
