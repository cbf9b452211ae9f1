"""The results as tables: medians, spread, and how far each peer is behind."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from entrants import SYSTEMS
from rows import Row, best, percentile, rows

RACE = ("system", "goodput", "kill → next new step", "lost", "never", "SIGTERM", "hang", "race")
CAMPAIGN = ("system", "kills", "back", "never", "median", "p95", "most", "lost", "warm", "cold")


def table(folder: Path) -> str:
    """For the terminal."""
    return "\n".join(aligned(block) for block in tables(folder)) + "\n".join(["", *words(folder)])


def markdown(folder: Path) -> str:
    """For a page."""
    return "\n".join(piped(block) for block in tables(folder)) + "\n".join(["", *words(folder)])


def tables(folder: Path) -> list[list[Sequence[str]]]:
    """The race and the many kills, each with its head."""
    found = rows(folder)
    races = [race_cells(row) for row in found if not row.campaign]
    campaigns = [campaign_cells(row) for row in found if row.campaign]
    return [[head, *cells] for head, cells in ((RACE, races), (CAMPAIGN, campaigns)) if cells]


def aligned(block: list[Sequence[str]]) -> str:
    widths = [max(len(cell) for cell in column) for column in zip(*block, strict=True)]
    return "".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        + "\n"
        for line in block
    )


def piped(block: list[Sequence[str]]) -> str:
    head, *lines = block
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, ["---"] * len(head), *lines))


def race_cells(row: Row) -> Sequence[str]:
    return (
        row.title,
        "–" if row.goodput is None else f"{row.goodput:.1%}",
        spread(row.new_s),
        mean(row.lost),
        f"{row.never} of {len(row.struck)}",
        stop_words(row.result.get("stop")),
        hang_words(row.result.get("hang")),
        row.length,
    )


def campaign_cells(row: Row) -> Sequence[str]:
    back = sum(one["back"] for one in row.struck)
    return (
        row.title,
        f"{len(row.struck)} of {row.result['settings']['kills']}",
        str(back),
        str(row.never),
        f"{row.median_s:.2f} s" if row.new_s else "–",
        f"{percentile(row.new_s, 0.95):.2f} s" if row.new_s else "–",
        f"{max(row.new_s):.2f} s" if row.new_s else "–",
        mean(row.lost),
        many(row.new_s_of(warm=True)),
        many(row.new_s_of(warm=False)),
    )


def spread(values: list[float]) -> str:
    if not values:
        return "–"
    return f"{statistics.median(values):.2f} s ({min(values):.2f} … {max(values):.2f})"


def many(values: list[float]) -> str:
    return f"{len(values)}: {statistics.median(values):.2f} s" if values else "0"


def mean(values: Sequence[float]) -> str:
    return f"{statistics.mean(values):.1f}" if values else "–"


def stop_words(stop: dict[str, Any] | None) -> str:
    if stop is None:
        return "–"
    if "lost_steps" not in stop:
        return "fell"
    left = f", {stop['left_behind']} left behind" if stop["left_behind"] else ""
    return f"{stop['gone_s']:.1f} s, {stop['lost_steps']} lost{left}"


def hang_words(hang: dict[str, Any] | None) -> str:
    if hang is None:
        return "–"
    if "back" not in hang:
        return "fell"
    if hang["new_s"] is None:
        return "never"
    # A survivor went on without the frozen one, which nobody replaced.
    return f"{hang['new_s']:.1f} s" if hang["back"] else f"{hang['new_s']:.1f} s, not replaced"


def words(folder: Path) -> list[str]:
    """What the cells do not say: what fell, what is missing, who is how far behind."""
    found = rows(folder)
    if not found:
        return [f"nothing in {folder}"]
    out = [f"{row.title} ({row.length}) fell: {row.fell}" for row in found if row.fell]
    out += [because(row) for row in found if row.campaign]
    races = best([row for row in found if not row.campaign and row.goodput is not None])
    if missing := [x.title for x in SYSTEMS if races and x.name not in {row.name for row in races}]:
        out.append(f"not measured: {'; '.join(missing)}")
    for ours in races:
        if ours.ours:
            out.extend(beside(ours, [row for row in races if not row.ours]))
    return [line for line in out if line]


def beside(ours: Row, peers: list[Row]) -> list[str]:
    """Holdfast beside the peers of its framework, and its report beside the ruler."""
    out = []
    peers = [row for row in peers if row.framework == ours.framework]
    if peers:
        least = min(peers, key=lambda row: row.badput)
        less = f"{least.badput / ours.badput:.1f} × less" if ours.badput else "none"
        out.append(f"{ours.title}: badput {ours.badput:.2%}, {less} than {least.name}")
    if ours.median_s and (timed := [(row.name, row.median_s) for row in peers if row.median_s]):
        sooner = ", ".join(f"{name} {median_s / ours.median_s:.1f} ×" for name, median_s in timed)
        out.append(f"{ours.title}: back sooner than {sooner}")
    report = ours.measured.get("report") or {}
    if "difference_points" in report:
        out.append(
            f"{ours.title}: its own report says {report['goodput']:.2%}, the ruler "
            f"{report['ruler']:.2%} of the same time: {report['difference_points']:+.2f} points "
            f"({report.get('difference_to_own_points', 0):+.2f} by the steps' own times)"
        )
    if "error" in report:
        out.append(f"{ours.title}: its own report failed: {report['error'].strip()}")
    return out


def because(row: Row) -> str:
    """Why ranks began cold."""
    restarts = (row.measured.get("report") or {}).get("restarts", {})
    whys = restarts.get("ranks_cold_because", {})
    told = "; ".join(f"{count} × {why}" for why, count in whys.items())
    return f"{row.title}: ranks that began cold: {told}" if told else ""
