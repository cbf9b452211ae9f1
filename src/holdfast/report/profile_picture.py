"""A profile in words and plain characters, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from holdfast.core.durations import in_words
from holdfast.core.ledger.program import scaled
from holdfast.core.visible import clean
from holdfast.profiles.summary import AHEAD, PART_WORDS, PARTS, Operation, ProfileSummary
from holdfast.report.words import counted, percent

WIDTH = 60
MARKS = dict(zip(PARTS, "█▓▒░·", strict=True))
SHOWN = 8  # operations
SHOWN_STEPS = 10
SHOWN_OTHERS = 15
HEADINGS = f"{'longest operations':<44} {'calls':>7} {'time':>9} {'share':>6}  FLOP/s"


def picture(found: ProfileSummary) -> Iterator[str]:
    """Its lines."""
    many = f"the first of its {found.devices} devices, " if found.devices > 1 else ""
    device = f", {clean(found.device)}" if found.device else ""
    steps = counted(len(found.steps), "step")
    yield (
        f"{steps} of rank {found.rank} in attempt {found.attempt}, {many}"
        f"{in_words(found.wall_ns / max(1, len(found.steps)))} each "
        f"({clean(found.framework)} {clean(found.version)}{device})"
    )
    if found.note:
        yield clean(found.note)
    yield ""
    for one in found.steps[:SHOWN_STEPS]:
        yield f"step {one.step:>8,}  {_bar(one.parts, one.wall_ns)}  {in_words(one.wall_ns)}"
    if (more := len(found.steps) - SHOWN_STEPS) > 0:
        yield f"and {more} more"
    if found.is_ahead:
        yield AHEAD
    yield ""
    for name in PARTS:
        ns = found.parts[name]
        share = f"{ns / found.wall_ns:6.1%}" if found.wall_ns else "     –"
        yield f"{MARKS[name]} {name:<10} {share}  {PART_WORDS[name]}"
    if found.others:
        yield ""
        yield "its other devices, in the whole window"
        for number, parts in enumerate(found.others[:SHOWN_OTHERS], 2):
            yield f"{number:>4}  {_bar(parts, found.wall_ns)}  {_shares(parts, found.wall_ns)}"
        if (more := len(found.others) - SHOWN_OTHERS) > 0:
            yield f"and {more} more"
    if found.operations:
        yield ""
        yield HEADINGS
        for operation in found.operations[:SHOWN]:
            yield _row(operation, found.wall_ns)


def _bar(parts: Mapping[str, int], wall_ns: int) -> str:
    """The parts as so many characters in all."""
    found, passed, drawn = "", 0, 0
    for name in PARTS:
        passed += parts[name]
        until = round(WIDTH * passed / wall_ns) if wall_ns else 0
        found += MARKS[name] * (until - drawn)
        drawn = until
    return found


def _row(one: Operation, wall_ns: int) -> str:
    share = f"{one.self_ns / wall_ns:6.1%}" if wall_ns else "–"
    return (
        f"{clean(one.name)[:44]:<44} {one.calls:>7,} {in_words(one.self_ns):>9} {share:>6}  "
        f"{rate_words(one)}"
    ).rstrip()


def rate_words(one: Operation) -> str:
    """`1.2 TFLOP/s, 340 FLOPs a byte`, as far as it is known."""
    if not one.flops or not one.self_ns:
        return ""
    words = f"{scaled(one.flops * 1e9 / one.self_ns)}FLOP/s"
    return f"{words}, {one.flops / one.nbytes:,.0f} FLOPs a byte" if one.nbytes else words


def parts_in_words(found: ProfileSummary) -> str:
    """`compute 61.0 %, collective 12.1 %`: those that took any time."""
    return _shares(found.parts, found.wall_ns)


def _shares(parts: Mapping[str, int], wall_ns: int) -> str:
    return ", ".join(f"{name} {percent(ns / (wall_ns or 1))}" for name, ns in parts.items() if ns)


def line_of(found: ProfileSummary) -> str:
    """For a report on a terminal."""
    many = counted(len(found.steps), "step")
    return f"profile of {many} of rank {found.rank}: {parts_in_words(found)}"
