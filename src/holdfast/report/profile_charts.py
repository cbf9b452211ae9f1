"""A profile on a page: where its steps' time went, and its operations under the device's roof.

The roofline is that of Williams, Waterman and Patterson (2009): an operation reaches at most the
peak, and at most its FLOPs a byte × what the memory brings.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from holdfast.core.durations import in_words
from holdfast.core.ledger.program import Basis, scaled
from holdfast.core.visible import clean
from holdfast.profiles.summary import AHEAD, PART_WORDS, PARTS, Operation, ProfileSummary
from holdfast.report.chart_parts import chart
from holdfast.report.charts import Figure, Table, altair, spec_of
from holdfast.report.kinds import BLUE, GREEN, GREY, ORANGE, VERMILLION, YELLOW
from holdfast.report.profile_picture import parts_in_words
from holdfast.report.words import MISSING, percent

COLOURS = dict(zip(PARTS, (GREEN, VERMILLION, ORANGE, YELLOW, GREY), strict=True))
STEPS_SHOWN, DEVICES_SHOWN = 20, 64
BAR_PX, ROOF_PX = 18, 220
NAME_CHARS = 48
NS_PER_S = 1_000_000_000


class Roof(NamedTuple):
    """What a chip reaches in a second; 0: not known. `nbytes`: of its memory, as calibrated."""

    flops: int = 0
    nbytes: int = 0

    @classmethod
    def of(cls, basis: Basis) -> Roof:
        """By the run's own words."""
        return cls(basis.peak_flops, basis.told.reached.bytes)

    def allows(self, one: Operation) -> float | None:
        """FLOP/s that the operation can reach at most; None: that is not known."""
        if not self.flops or not one.flops:
            return None
        if not self.nbytes or not one.nbytes:
            return float(self.flops)
        return min(float(self.flops), one.flops / one.nbytes * self.nbytes)

    @property
    def words(self) -> str:
        """Both, in a sentence."""
        if not self.flops:
            return "The device's peak is not known: set --peak-flops, or run holdfast calibrate."
        if not self.nbytes:
            return (
                f"The peak is {scaled(self.flops)}FLOP/s; what the memory brings is not known "
                "until holdfast calibrate has measured it."
            )
        return (
            f"The peak is {scaled(self.flops)}FLOP/s, the memory brings {scaled(self.nbytes)}B/s: "
            f"with fewer than {self.flops / self.nbytes:,.0f} FLOPs a byte it is the memory that "
            "limits an operation."
        )


def rate(one: Operation) -> float | None:
    """FLOP/s; None: not known."""
    return one.flops * NS_PER_S / one.self_ns if one.flops and one.self_ns else None


def title_words(found: ProfileSummary) -> str:
    """Of what the profile is."""
    steps = found.steps
    if not steps:
        return f"Rank {found.rank} in attempt {found.attempt}: no step."
    many = f", the first of its {found.devices} devices" if found.devices > 1 else ""
    note = f" {clean(found.note).capitalize()}." if found.note else ""
    note += f" {AHEAD}" if found.is_ahead else ""
    return (
        f"Steps {steps[0].step:,} to {steps[-1].step:,} of rank {found.rank} in attempt "
        f"{found.attempt}{many}, {in_words(found.wall_ns / len(steps))} each. Of the whole: "
        f"{parts_in_words(found)}.{note}"
    )


def step_parts(found: ProfileSummary) -> Figure:
    """Each step as a bar of its parts."""
    alt = altair()
    rows: list[dict[str, Any]] = []
    for one in found.steps[:STEPS_SHOWN]:
        at = 0
        for name in PARTS:
            ns = one.parts[name]
            rows.append({"step": one.step, "what": name, "from": at / 1e6, "to": (at + ns) / 1e6})
            at += ns
    drawn = (
        chart(rows)
        .mark_bar()
        .encode(
            y=alt.Y("step:O", title="step"),
            x=alt.X("from:Q", title="ms"),
            x2="to",
            color=alt.Color("what:N").scale(domain=PARTS, range=list(COLOURS.values())),
        )
    )
    wall = found.wall_ns or 1
    height = BAR_PX * max(2, min(len(found.steps), STEPS_SHOWN))
    return Figure(
        "profile-steps",
        "Where a step's time goes",
        title_words(found),
        spec_of(drawn.properties(width="container", height=height)),
        Table(
            ("part", "the device", "a step", "share"),
            tuple(
                (
                    name,
                    PART_WORDS[name],
                    in_words(ns / max(1, len(found.steps))),
                    percent(ns / wall),
                )
                for name, ns in found.parts.items()
            ),
        ),
    )


def devices(found: ProfileSummary) -> Table:
    """The parts of the window, of each of the rank's devices; without rows where there is one."""
    wall = found.wall_ns or 1
    each = [found.parts, *found.others] if found.others else []
    rows = (
        (str(number), *(percent(one[name] / wall) for name in PARTS))
        for number, one in enumerate(each[:DEVICES_SHOWN], 1)
    )
    return Table(("device", *PARTS), tuple(rows))


def roofline(found: ProfileSummary, roof: Roof) -> Figure | None:
    """The operations whose FLOPs and bytes are known, under the roof; None: there are none."""
    known = [one for one in found.operations if one.flops and one.nbytes and one.self_ns]
    if not known or not roof.flops or not roof.nbytes:
        return None
    alt = altair()
    rows = [
        {"x": one.flops / one.nbytes, "y": rate(one), "what": clean(one.name)[:NAME_CHARS]}
        for one in known
    ]
    ridge = roof.flops / roof.nbytes
    intensities = [ridge, *(one.flops / one.nbytes for one in known)]
    low, high = min(intensities) / 2, max(intensities) * 2
    edge = [
        {"x": x, "y": min(roof.flops, x * roof.nbytes), "what": "roof"} for x in (low, ridge, high)
    ]
    x = alt.X("x:Q", title="FLOPs a byte").scale(type="log")
    y = alt.Y("y:Q", title="FLOP/s").scale(type="log").axis(format="~s")
    drawn = chart(edge).mark_line(color=GREY).encode(x=x, y=y)
    drawn += chart(rows).mark_point(color=BLUE, filled=True, size=60).encode(x=x, y=y)
    drawn += chart(rows).mark_text(align="left", dx=7, fontSize=10).encode(x=x, y=y, text="what:N")
    return Figure(
        "profile-roof",
        "Under the roof",
        roof.words,
        spec_of(drawn.properties(width="container", height=ROOF_PX)),
        operations(found, roof),
    )


def operations(found: ProfileSummary, roof: Roof) -> Table:
    """The longest operations, with what they reach of what the device allows."""
    wall = found.wall_ns or 1
    rows = []
    for one in found.operations:
        reached, allowed = rate(one), roof.allows(one)
        rows.append(
            (
                clean(one.name)[:NAME_CHARS],
                one.work,
                f"{one.calls:,}",
                in_words(one.self_ns),
                percent(one.self_ns / wall),
                MISSING if reached is None else f"{scaled(reached)}FLOP/s",
                f"{one.flops / one.nbytes:,.1f}" if one.flops and one.nbytes else MISSING,
                percent(reached / allowed) if reached and allowed else MISSING,
            )
        )
    heads = (
        "operation", "for", "calls", "time", "share of the window", "reaches", "FLOPs a byte",
        "of what the device allows",
    )  # fmt: skip
    return Table(heads, tuple(rows))
