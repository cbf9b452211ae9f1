"""Numbers and causes in words: the same everywhere that people read them."""

from __future__ import annotations

from datetime import UTC, datetime

NANO = 1_000_000_000
MISSING = "—"

# Only where the cause's own name, with its underscores as spaces, does not say it well.
CAUSES = {
    "stopped": "asked to stop",
    "failed": "the command failed",
    "crashed": "crashed by a signal that it caused itself",
    "killed": "killed by a signal from outside",
    "accelerator": "accelerator fault",
    "peer_lost": "lost contact with another rank",
    "hang": "hung",
    "rolled_back": "asked to go back",
    "bad_checkpoint": "no checkpoint that can be trusted",
    "not_fetched": "its part of a checkpoint in memory did not come from another host",
    "exited_early": "exited before the run was done",
    "machine_preempted": "its machine was preempted",
    "machine_maintenance": "its machine was too long in maintenance",
    "supervisor_lost": "its supervisor died without shutting down",
    "unknown": "unknown cause",
}


SHARED_DOWNTIME = (
    "Disruptions that end with the same step share the time until then: each one's numbers have it."
)


def cause_in_words(cause: str) -> str:
    """A cause as the ledger knows it, for people; one of other people's histories as it stands."""
    return CAUSES.get(cause, cause.replace("_", " "))


def percent(share: float | None) -> str:
    """A share as `62.5 %`; what is not known is a dash, and what is not zero never reads zero."""
    if share is None:
        return MISSING
    if 0 < share < 0.0005:
        return "<0.1 %"
    if 0.9995 <= share < 1:
        return ">99.9 %"
    return f"{share * 100:.1f} %"


def seconds(ns: int, digits: int) -> str:
    """Nanoseconds as seconds for a column of numbers with `digits` after the point."""
    least = 10**-digits
    value = ns / NANO
    if 0 < value < least / 2:
        return f"<{least:.{digits}f}"
    return f"{value:,.{digits}f}"


def digits_for(longest_ns: int) -> int:
    """How many digits after the point mean something beside a value as long as this."""
    return 1 if longest_ns >= 1000 * NANO else 2 if longest_ns >= 10 * NANO else 3


def first_start_in_words(took_ns: int, *, is_over: bool) -> str:
    """How long it was, or has been, until the first step of a run was done."""
    until = "until the first step was done" if is_over else "so far, without a step"
    return f"{duration(took_ns)} {until}"


def duration(ns: int | None) -> str:
    """A span of time for a sentence: 21 ms, 0.42 s, 12.3 s, 4 min 05 s, 3 h 20 min, 2 d 04 h."""
    if ns is None:
        return MISSING
    value = ns / NANO
    if value < 0.0995:
        return "<1 ms" if 0 < value < 0.0005 else f"{value * 1000:.0f} ms" if ns else "0 s"
    if value < 10:
        return f"{value:.2f} s"
    if value < 60:
        return f"{value:.1f} s"
    whole = round(value)
    for unit, size, part, smaller in (
        ("d", 86_400, "h", 3_600),
        ("h", 3_600, "min", 60),
        ("min", 60, "s", 1),
    ):
        if whole >= size:
            rest = whole % size // smaller
            return (
                f"{whole // size} {unit} {rest:02d} {part}" if rest else f"{whole // size} {unit}"
            )
    return f"{whole} s"


def chip_hours(chip_ns: int) -> str:
    """Chip-nanoseconds as chip-hours, with two significant digits where they are few."""
    value = chip_ns / (3600 * NANO)
    if value == 0:
        return "0"
    if value >= 100:
        return f"{value:,.0f}"
    if value >= 1:
        return f"{value:.1f}"
    return f"{value:.2g}" if value >= 0.001 else "<0.001"


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """`1 step`, `12 steps`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {plural or noun + 's'}"


def shortened(text: str, most: int) -> str:
    """The text, cut with an ellipsis where it is longer."""
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"


def moment(unix_ns: int) -> str:
    """A time as people read it: `2026-03-01 14:07:03 UTC`."""
    return datetime.fromtimestamp(unix_ns // NANO, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def iso(unix_ns: int | None) -> str | None:
    """A moment for programs: ISO 8601, in milliseconds."""
    if unix_ns is None:
        return None
    return datetime.fromtimestamp(unix_ns / NANO, UTC).isoformat(timespec="milliseconds")


def money(amount: float) -> str:
    """An amount of whatever currency the price was given in."""
    return f"{amount:,.0f}" if amount >= 100 else f"{amount:,.2f}"


def size(nbytes: int) -> str:
    """`512 B`, `3.2 GiB`."""
    value, unit = float(nbytes), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
