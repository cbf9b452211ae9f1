"""The charts of a run: its time line, its badput, its step times. For page, notebook and picture.

The numbers are the ledger's; here they get axes, colours and words.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.core.ledger.account import Account
from holdfast.core.ledger.course import Course, Piece, coarser
from holdfast.core.ledger.kinds import STEP
from holdfast.core.ledger.step_times import StepTimes
from holdfast.core.visible import clean
from holdfast.report.chart_parts import Step, chart, waterfall
from holdfast.report.charts import Figure, Table, altair, spec_of, thinned
from holdfast.report.kinds import BLUE, GREEN, GREY, VERMILLION, place_of, style_of, words_of
from holdfast.report.overview import badput
from holdfast.report.words import chip_hours, counted, digits_for, duration, percent, seconds

STRIP_PX, STEPS_PX = 72, 220
DRAWN_PIECES = 360  # of a picture: more are narrower than its pixels
# As on the time line that a script draws; Vega's own would say 09 PM between 08:55 and 09:05.
_OF_24_HOURS = {"hours": "%H:%M", "minutes": "%H:%M", "seconds": "%H:%M:%S"}
LEAST_LOSS = 0.0005  # of all time: smaller kinds are put together in the waterfall
_NS_PER_MS = 1_000_000


def time_line(course: Course, account: Account, most: int = DRAWN_PIECES, *, dated: bool) -> Figure:
    """The whole run as one strip: each moment in the colour of its kind, notices above.

    A piece that has several kinds is divided from the bottom up by their shares. `dated`: the run's
    clock is unix time; else the axis counts from the request. `most`: about so many pieces. Where
    the account, which counts chips, has other shares than the time, the words say so.
    """
    alt = altair()
    shown = coarser(course.pieces, most)
    rows = [row for piece in shown for row in _bars(course, piece, dated=dated)]
    names = sorted({str(row["what"]) for row in rows}, key=place_of)
    x = _time_axis(course, dated=dated)
    drawn = (
        chart(rows)
        .mark_rect()
        .encode(
            x=x,
            x2="to",
            y=alt.Y("low:Q", axis=None).scale(domain=[0, 1.25], nice=False),
            y2="high",
            color=alt.Color("what:N", **({} if names else {"legend": None})).scale(
                domain=names, range=[style_of(name).colour for name in names]
            ),
        )
    )
    marks = list(_notices(course, dated=dated))
    if marks:
        drawn += (
            chart(marks)
            .mark_point(shape="triangle-down", color=VERMILLION, size=60)
            .encode(x=x, y=alt.datum(1.14))
        )
    totals = _totals(course)
    whole = sum(totals.values())
    digits = digits_for(whole)
    return Figure(
        "timeline",
        "Time line",
        _course_in_words(course) + _chips_in_words(totals, account),
        spec_of(drawn.properties(width="container", height=STRIP_PX)),
        Table(
            ("kind", "what", "seconds", "of the time"),
            tuple(
                (kind, words_of(kind), seconds(ns, digits), percent(ns / whole if whole else None))
                for kind, ns in sorted(totals.items(), key=lambda pair: place_of(pair[0]))
            ),
        ),
    )


def lost_time(account: Account) -> Figure:
    """The badput waterfall: from all time, kind by kind, to goodput."""
    whole = account.elapsed or 1
    kinds = list(badput(account))
    large = [(kind, ns) for kind, ns in kinds if ns / whole >= LEAST_LOSS]
    rest = sum(ns for _, ns in kinds) - sum(ns for _, ns in large)
    steps = [Step(clean(kind), ns / whole, style_of(kind).colour) for kind, ns in large]
    if rest:
        steps.append(Step("the others", rest / whole, GREY))
    left = Step("goodput", account.goodput or 0.0, GREEN)
    rows = [
        (clean(kind), clean(words_of(kind)), chip_hours(ns), percent(ns / whole))
        for kind, ns in (*kinds, (STEP, account.productive))
    ]
    return Figure(
        "badput",
        "Where the time went",
        f"Of all time paid for ({duration(account.wall_ns(account.elapsed))}), each kind of loss "
        "takes its share, those of scheduling first; what is left are steps that were kept.",
        spec_of(waterfall(steps, Step("all time", 1.0, GREY), left)),
        Table(("kind", "what", "chip-hours", "of all chip-hours"), tuple(rows)),
    )


def step_times(course: Course, steps: StepTimes, *, dated: bool) -> Figure:
    """Step time over the run: the median, the middle nine tenths, and the slowest."""
    alt = altair()
    least_ns = max(1, steps.usual_ns // 100)  # a logarithm shows no 0, and nobody asks for less
    rows = [
        {
            "at": _place(course, (one.start_ns + one.end_ns) // 2, dated=dated),
            "low": max(one.low_ns, least_ns) / _NS_PER_MS,
            "median": max(one.median_ns, least_ns) / _NS_PER_MS,
            "high": max(one.high_ns, least_ns) / _NS_PER_MS,
            "longest": one.longest_ns / _NS_PER_MS,
        }
        for one in steps.bins
    ]
    x = _time_axis(course, dated=dated, column="at")
    base = chart(rows).encode(x=x)
    drawn = base.mark_area(color=BLUE, opacity=0.25).encode(
        y=alt.Y("low:Q", title="ms a step").scale(type="log", nice=False), y2="high"
    )
    drawn += base.mark_line(color=BLUE, point=len(rows) == 1).encode(y="median:Q")
    slow = [row for row in rows if row["longest"] * _NS_PER_MS > 2 * steps.usual_ns]
    if slow:
        drawn += chart(slow).mark_point(color=VERMILLION, size=36).encode(x=x, y="longest:Q")
    return Figure(
        "step-times",
        "Step time",
        _steps_in_words(steps),
        spec_of(drawn.properties(width="container", height=STEPS_PX)),
        Table(
            ("after", "steps", "5 %", "median", "95 %", "longest"),
            tuple(
                (
                    duration(max(0, one.start_ns - course.start_ns)),
                    f"{one.steps:,}",
                    *(duration(ns) for ns in one[3:]),
                )
                for one in thinned(steps.bins)
            ),
        ),
    )


def _bars(course: Course, piece: Piece, *, dated: bool) -> Iterator[dict[str, Any]]:
    """A rectangle for each kind of a piece, productive time at the bottom."""
    whole, at = piece.end_ns - piece.start_ns, 0.0
    start, end = (_place(course, ns, dated=dated) for ns in (piece.start_ns, piece.end_ns))
    for kind in sorted(piece.kinds, key=lambda kind: (kind != STEP, place_of(kind))):
        share = piece.kinds[kind] / whole
        yield {
            "from": start,
            "to": end,
            "low": round(at, 4),
            "high": round(at + share, 4),
            "what": clean(kind.partition(":")[0]),
        }
        at += share


def _notices(course: Course, *, dated: bool) -> Iterator[dict[str, Any]]:
    for notice in course.notices[-DRAWN_PIECES:]:  # of more, one covers the other
        if course.start_ns <= notice.at_ns <= course.end_ns:
            yield {"from": _place(course, notice.at_ns, dated=dated)}


def _place(course: Course, at_ns: int, *, dated: bool) -> float:
    """On the axis: unix milliseconds, or seconds from the request."""
    return at_ns / _NS_PER_MS if dated else (at_ns - course.start_ns) / 1e9


def _time_axis(course: Course, *, dated: bool, column: str = "from") -> Any:
    alt = altair()
    ends = [_place(course, ns, dated=dated) for ns in (course.start_ns, course.end_ns)]
    if ends[0] == ends[1]:
        ends[1] += 1.0
    if dated:
        x = alt.X(f"{column}:T", title=None).scale(type="utc", domain=ends, nice=False)
        return x.axis(grid=False, tickCount=8, labelOverlap=True, format=_OF_24_HOURS)
    x = alt.X(f"{column}:Q", title="seconds from the request").scale(domain=ends, nice=False)
    return x.axis(grid=False, tickCount=8, labelOverlap=True, format="~s")


def _totals(course: Course) -> dict[str, int]:
    totals: dict[str, int] = {}
    for piece in course.pieces:
        for kind, ns in piece.kinds.items():
            totals[clean(kind)] = totals.get(clean(kind), 0) + ns
    return totals


def _chips_in_words(totals: dict[str, int], account: Account) -> str:
    """What to say where time and chip-time have other shares: the run is elastic."""
    shares: dict[str, float] = {}
    for kind, ns in account.kinds.items():
        shares[clean(kind)] = shares.get(clean(kind), 0.0) + ns / (account.paid or 1)
    whole = sum(totals.values()) or 1
    differ = any(
        abs(totals.get(kind, 0) / whole - shares.get(kind, 0.0)) > LEAST_LOSS
        for kind in totals.keys() | shares.keys()
    )
    if not differ:
        return ""
    return (
        " A moment counts as one here, however many chips the run had; where the time went, and "
        "goodput, count chips."
    )


def _course_in_words(course: Course) -> str:
    lasts = duration(course.end_ns - course.start_ns)
    size = f"{lasts}, {counted(len(course.launches), 'attempt')}"
    if course.notices:
        size += f", {counted(len(course.notices), 'notice')} (triangles)"
    return size + "."


def _steps_in_words(steps: StepTimes) -> str:
    if not steps.steps:
        return "No step was completed."
    summary = (
        f"{counted(steps.steps, 'step')}, {duration(steps.usual_ns)} is the median; the latest "
        f"take {duration(steps.recent_ns)}. The band holds nine steps of ten"
    )
    if steps.slow:
        summary += f"; {counted(steps.slow, 'step')} took three times as long or longer"
    if steps.together > 1:
        summary += (
            f"; the script runs ahead of its device, so {steps.together} steps are looked at as one"
        )
    return f"{summary}; dots are the longest where they stand out."
