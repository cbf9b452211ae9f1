"""What is said of rows that were placed: what had to be assumed, and what was odd."""

from __future__ import annotations

from holdfast.convert.notes import Notes
from holdfast.convert.place import Placed

NO_TIMES = (
    "lines without times: steps follow one another, and what passed between processes, or was not "
    "a step, is missing: goodput is an upper bound"
)


def tell(notes: Notes, placed: Placed, pause: float, warm_up: str) -> None:
    """What had to be assumed to place these rows."""
    for at in placed.overlapping:
        notes.odd(at, "the steps before took until later: its measured time is cut")
    for at in placed.held_up:
        notes.odd(
            at,
            f"took over {pause:g} times as long as usual: the excess is no step (--pause)",
        )
    for at in placed.no_time:
        notes.odd(at, "nothing tells how long its steps took: they are counted without any time")
    if placed.without_line:
        notes.assume("steps without a line of their own lie between their neighbours", "without")
    if placed.first_start_is_guessed:
        notes.assume(
            "a process that does not say when it started, started with its first step, which "
            "took the usual time",
            "first",
        )
    if placed.warm_up_ns:
        notes.assume(
            f"what the first steps of a process take beyond the usual is {warm_up}, no step",
            "warm",
        )
