"""Draws docs/images/recovery.svg from the results of the race: two panels, one row per system.

    python bench/recovery/picture.py [--results build/recovery] [--ranks 2] [--to FILE]

Left: a dot for each kill, at the seconds until the next new step (a logarithmic axis), a bar at the
median, a cross where it never came. Right: goodput. Its own panel, light or dark as the reader's
system is.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

from systems import LEVELS
from table import Row, rows

ROOT = Path(__file__).resolve().parents[2]

WIDTH, ROW, TOP = 960, 34, 96
NAMES_X, DOTS_X, DOTS_END, BARS_X, BARS_END = 24, 330, 670, 710, 900
SHORTEST_S, LONGEST_S = 0.05, 60.0
OURS, PEER = "#009e73", "#8a8f98"

STYLE = """
  text { font: 13px ui-sans-serif, system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
         fill: #1f2328 }
  .title { font-size: 16px; font-weight: 600 } .ours { font-weight: 600 }
  .soft { fill: #59636e } .panel { fill: #ffffff; stroke: #d8dee4 }
  .grid { stroke: #d8dee4; stroke-width: 1 } .rest { fill: #e4e8ec }
  .cross { stroke: #d55e00; stroke-width: 2 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .soft { fill: #9aa4af } .panel { fill: #0d1117; stroke: #30363d }
    .grid { stroke: #30363d } .rest { fill: #30363d }
  }
"""


def x_of(seconds: float) -> float:
    """Where so many seconds stand on the left axis."""
    inside = min(max(seconds, SHORTEST_S), LONGEST_S)
    share = math.log(inside / SHORTEST_S) / math.log(LONGEST_S / SHORTEST_S)
    return DOTS_X + share * (DOTS_END - DOTS_X)


def text(x: float, y: float, words: str, css: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{css}" text-anchor="{anchor}">{words}</text>'


def axis(height: int) -> list[str]:
    """The decades, and what is drawn above them."""
    out = []
    for seconds, words in ((0.1, "0.1 s"), (1.0, "1 s"), (10.0, "10 s"), (60.0, "60 s")):
        x = x_of(seconds)
        out.append(f'<path class="grid" d="M{x:.1f} {TOP - 8} V{height - 20}"/>')
        out.append(text(x, TOP - 14, words, "soft", "middle"))
    out.append(text(DOTS_X, TOP - 36, "from a kill to the next new step", "soft"))
    out.append(text(BARS_X, TOP - 36, "goodput", "soft"))
    return out


def one(row: Row, y: float) -> list[str]:
    """A system's dots and its bar."""
    ours = row.name.startswith("holdfast")
    colour = OURS if ours else PEER
    out = [text(NAMES_X, y + 5, row.title, "ours" if ours else "")]
    if row.goodput is None:
        return [*out, text(DOTS_X, y + 5, "did not get through the race", "soft")]
    for seconds in row.new_s:
        out.append(
            f'<circle cx="{x_of(seconds):.1f}" cy="{y}" r="4" fill="{colour}" opacity="0.55"/>'
        )
    if row.median_s is not None:
        x = x_of(row.median_s)
        out.append(f'<path d="M{x:.1f} {y - 11} V{y + 11}" stroke="{colour}" stroke-width="3"/>')
    for index in range(row.never):
        x = DOTS_END + 6 - 12 * index
        out.append(f'<path class="cross" d="M{x - 4} {y - 4} l8 8 m0 -8 l-8 8"/>')
    width = BARS_END - BARS_X
    out.append(f'<rect x="{BARS_X}" y="{y - 9}" width="{width}" height="18" rx="3" class="rest"/>')
    out.append(
        f'<rect x="{BARS_X}" y="{y - 9}" width="{row.goodput * width:.1f}" height="18" rx="3" '
        f'fill="{colour}"/>'
    )
    out.append(text(BARS_END + 6, y + 5, f"{row.goodput:.1%}", "ours" if ours else ""))
    return out


def picture(found: list[Row], ranks: int) -> str:
    """The whole SVG."""
    height = TOP + ROW * len(found) + 44
    faults = next(row.kills for row in found)
    every = found[0].result["settings"]["every"]
    body = [
        text(NAMES_X, 36, f"The same {faults} kills, one each {every:.0f} s on average", "title"),
        *axis(height),
    ]
    for index, row in enumerate(found):
        body.extend(one(row, TOP + ROW * index + ROW / 2))
    names = {1: "one rank", 2: "two ranks"}.get(ranks, f"{ranks} ranks")
    body.append(
        text(
            NAMES_X, height - 14, f"{names}; crosses: never came back, started from outside", "soft"
        )
    )
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" role="img" aria-label="Recovery time and goodput of each system under '
        'the same kills">'
    )
    panel = f'<rect x="1" y="1" width="{WIDTH - 2}" height="{height - 2}" rx="10" class="panel"/>'
    return "\n".join([head, f"<style>{STYLE}</style>", panel, *body, "</svg>", ""])


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--results", type=Path, default=ROOT / "build" / "recovery")
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--to", type=Path, default=ROOT / "docs" / "images" / "recovery.svg")
    args = p.parse_args()
    levels = {system.name for system in LEVELS}
    found = [r for r in rows(args.results / f"{args.ranks}-ranks") if r.name not in levels]
    if not found:
        sys.exit(f"no results in {args.results}: run bench/recovery/race.py")
    args.to.write_text(picture(found, args.ranks))
    print(f"wrote {args.to}")


if __name__ == "__main__":
    main()
