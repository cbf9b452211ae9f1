"""The time line as the page's script takes it: compact JSON, microseconds from the request.

Pieces come as columns: `d` their lengths, `k` the place of their kind in `kinds`, `n` how many
steps ended in them, `s` how much further the last of these is than the one before, `x` the longest
where there are several. A piece of several kinds has -1 for its kind; `m` holds their compositions
in turn: how many kinds, then each kind's place and its length.
"""

from __future__ import annotations

from typing import Any

from holdfast.core.ledger.course import Course
from holdfast.core.ledger.kinds import level_of
from holdfast.core.visible import clean
from holdfast.report.kinds import hatch_of, place_of, style_of, words_of
from holdfast.report.overview import Overview
from holdfast.report.words import cause_in_words

NS_PER_US = 1000
MARKS = LAUNCHES = 2000  # attempts, and of each sort of marks: the newest
FORMAT = 1


def course_data(view: Overview, saves: tuple[tuple[int, int], ...] = ()) -> dict[str, Any]:
    """All that the script draws. `saves`: when sets were complete, and their steps."""
    course = view.course
    kinds = sorted({kind for piece in course.pieces for kind in piece.kinds}, key=place_of)
    return {
        "format": FORMAT,
        "unix_ms": course.start_ns // 1_000_000 if view.unix_clock else None,
        "end": _us(course, course.end_ns),
        "live": view.is_live,
        "kinds": [
            {
                "name": clean(kind),
                "words": clean(words_of(kind)),
                "colour": style_of(kind).colour,
                "level": level_of(kind).value,
                "hatch": hatch_of(kind),
            }
            for kind in kinds
        ],
        **_columns(course, {kind: place for place, kind in enumerate(kinds)}),
        "launches": [
            {
                "attempt": one.attempt,
                "start": _us(course, one.start_ns),
                "end": None if one.end_ns is None else _us(course, one.end_ns),
                "cause": None if one.cause is None else clean(cause_in_words(one.cause)),
            }
            for one in course.launches[-LAUNCHES:]
        ],
        "notices": [
            {
                "at": _us(course, one.at_ns),
                "deadline": None if one.deadline_ns is None else _us(course, one.deadline_ns),
                "source": clean(one.source),
            }
            for one in course.notices[-MARKS:]
        ],
        "saves": [[_us(course, at_ns), step] for at_ns, step in saves[-MARKS:]],
        "incidents": [[_us(course, one.at_ns), one.attempt] for one in view.incidents[-MARKS:]],
    }


def _columns(course: Course, places: dict[str, int]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {key: [] for key in "dknsxm"}
    at, step = 0, 0
    for piece in course.pieces:
        end = _us(course, piece.end_ns)
        found["d"].append(end - at)
        at = end
        found["n"].append(piece.steps)
        found["s"].append(piece.last_step - step if piece.steps else 0)
        step = piece.last_step if piece.steps else step
        found["x"].append(piece.longest_ns // NS_PER_US if piece.steps > 1 else 0)
        if len(piece.kinds) == 1:
            found["k"].append(places[next(iter(piece.kinds))])
            continue
        found["k"].append(-1)
        found["m"].append(len(piece.kinds))
        for kind, ns in piece.kinds.items():
            found["m"] += [places[kind], ns // NS_PER_US]
    return found


def _us(course: Course, at_ns: int) -> int:
    return (at_ns - course.start_ns) // NS_PER_US
