"""The results as a table: medians, spread, and how far the best peer is behind."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from systems import LEVELS, SYSTEMS


@dataclass(frozen=True)
class Row:
    """One system's result, in the numbers that are compared."""

    name: str
    title: str
    framework: str
    goodput: float | None
    kills: int
    never: int
    new_s: list[float]
    lost: list[int]
    result: dict[str, Any]

    @property
    def badput(self) -> float | None:
        return None if self.goodput is None else 1 - self.goodput

    @property
    def median_s(self) -> float | None:
        return statistics.median(self.new_s) if self.new_s else None


def rows(folder: Path) -> list[Row]:
    """In the order of the systems; those that were not run are left out."""
    found = []
    for system in [*SYSTEMS, *LEVELS]:
        path = folder / f"{system.name}.json"
        if path.exists():
            result = json.loads(path.read_text())
            measured = result.get("kills", {})
            struck = measured.get("kills", [])
            back = [one for one in struck if one["back"]]
            found.append(
                Row(
                    system.name,
                    system.title,
                    system.framework,
                    measured.get("goodput"),
                    len(struck),
                    measured.get("never", 0),
                    [one["new_s"] for one in back if one["new_s"] is not None],
                    [one["lost_steps"] for one in back if one["lost_steps"] is not None],
                    result,
                )
            )
    return found


def table(folder: Path) -> str:
    """For the terminal."""
    found = rows(folder)
    if not found:
        return f"nothing in {folder}"
    out = [
        f"{'system':<42}{'goodput':>9}{'kill → next new step':>30}{'lost':>7}{'never':>9}"
        f"{'SIGTERM':>18}{'hang':>9}"
    ]
    for row in found:
        out.append(line(row))
    out.extend(ratios(found))
    return "\n".join(out)


def line(row: Row) -> str:
    """One system."""
    if row.goodput is None:
        return f"{row.title:<42}fell: {row.result.get('fell', '').strip().splitlines()[-1]}"
    took = spread(row.new_s)
    lost = f"{statistics.mean(row.lost):.1f}" if row.lost else "–"
    never = f"{row.never}/{row.kills}"
    return (
        f"{row.title:<42}{row.goodput:>9.1%}{took:>30}{lost:>7}{never:>9}"
        f"{stop_words(row.result):>18}{hang_words(row.result):>9}"
    )


def spread(values: list[float]) -> str:
    if not values:
        return "–"
    return f"{statistics.median(values):.2f} s ({min(values):.2f} … {max(values):.2f})"


def stop_words(result: dict[str, Any]) -> str:
    stop = result.get("stop")
    if stop is None:
        return "–"
    return f"{stop['gone_s']:.1f} s, {stop['lost_steps']} lost"


def hang_words(result: dict[str, Any]) -> str:
    hang = result.get("hang")
    if hang is None:
        return "–"
    if hang["new_s"] is None:
        return "never"
    # A survivor went on without the frozen one, which nobody replaced.
    return f"{hang['new_s']:.1f} s" if hang["back"] else f"{hang['new_s']:.1f} s *"


def ratios(found: list[Row]) -> list[str]:
    """Holdfast beside the best peer of its framework, and its report beside the ruler."""
    out = []
    for ours in found:
        if ours.name not in ("holdfast", "holdfast-jax") or ours.goodput is None:
            continue
        peers = [
            row
            for row in found
            if row.framework == ours.framework
            and not row.name.startswith("holdfast")
            and row.goodput is not None
        ]
        if peers and ours.median_s:
            best = min(peers, key=lambda row: row.badput)
            fast = min((p for p in peers if p.median_s), key=lambda row: row.median_s)
            out.append(
                f"{ours.title}: badput {ours.badput:.2%}, {best.badput / ours.badput:.1f} × less "
                f"than {best.name}; back {fast.median_s / ours.median_s:.1f} × sooner than "
                f"{fast.name}"
            )
        report = ours.result["kills"].get("report") or {}
        if "difference_points" in report:
            out.append(
                f"{ours.title}: its own report says {report['goodput']:.2%}, the ruler "
                f"{report['ruler']:.2%} of the same time: {report['difference_points']:+.2f} points"
            )
    return out
