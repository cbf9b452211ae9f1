"""Draws docs/images/recovery.svg from the results of the race: two panels, one row per system.

    python bench/recovery/picture.py [--results build/recovery] [--ranks 2,1] [--to FILE]

Left: a dot for each kill, at the seconds until the next new step (a logarithmic axis), a bar at the
median, a cross where it never came. Right: goodput. Of each system the longest race; its length
stands in its row. Its own panel, light or dark as the reader's system is.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

from entrants import LEVELS
from rows import Row, best, rows

ROOT = Path(__file__).resolve().parents[2]

WIDTH, ROW, TOP, SECTION = 960, 38, 98, 34
NAMES_X, DOTS_X, DOTS_END, BARS_X, BARS_END = 24, 330, 670, 710, 900
SHORTEST_S, LONGEST_S = 0.05, 60.0
OURS, PEER = "#009e73", "#8a8f98"
RANKS = {1: "One rank", 2: "Two ranks"}

STYLE = """
  text { font: 13px ui-sans-serif, system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
         fill: #1f2328 }
  .small { font-size: 11px; fill: #59636e }
  .title { font-size: 16px; font-weight: 600 } .ours { font-weight: 600 }
  .soft { fill: #59636e } .panel { fill: #ffffff; stroke: #d8dee4 }
  .grid { stroke: #d8dee4; stroke-width: 1 } .rest { fill: #e4e8ec }
  .cross { stroke: #d55e00; stroke-width: 2 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .soft, .small { fill: #9aa4af } .panel { fill: #0d1117; stroke: #30363d }
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
        out.append(f'<path class="grid" d="M{x:.1f} {TOP - 4} V{height - 34}"/>')
        out.append(text(x, TOP - 10, words, "soft", "middle"))
    out.append(text(DOTS_X, TOP - 30, "from a kill to the next new step", "soft"))
    out.append(text(BARS_X, TOP - 30, "goodput", "soft"))
    return out


def one(row: Row, y: float) -> list[str]:
    """A system's dots and its bar."""
    colour = OURS if row.ours else PEER
    out = [
        text(NAMES_X, y, row.title, "ours" if row.ours else ""),
        text(NAMES_X, y + 14, row.length, "small"),
    ]
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
    out.append(text(BARS_END + 6, y + 5, f"{row.goodput:.1%}", "ours" if row.ours else ""))
    return out


def picture(sections: list[tuple[int, list[Row]]]) -> str:
    """The whole SVG: the systems with so many ranks, and with so many."""
    every = sections[0][1][0].result["settings"]["every"]
    body, y = [], float(TOP)
    for ranks, found in sections:
        body.append(text(NAMES_X, y + 20, RANKS.get(ranks, f"{ranks} ranks"), "soft"))
        y += SECTION
        for row in found:
            body.extend(one(row, y + ROW / 2))
            y += ROW
    height = round(y) + 44
    title = f"The same kills of one rank, one each {every:.0f} s on average"
    foot = "crosses: never came back, started from outside"
    body = [
        text(NAMES_X, 36, title, "title"),
        *axis(height),
        *body,
        text(NAMES_X, height - 14, foot, "soft"),
    ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" role="img" aria-label="Recovery time and goodput of each system under '
        'the same kills">'
    )
    panel = f'<rect x="1" y="1" width="{WIDTH - 2}" height="{height - 2}" rx="10" class="panel"/>'
    return "\n".join([head, f"<style>{STYLE}</style>", panel, *body, "</svg>", ""])


def raced(folder: Path) -> list[Row]:
    """What is drawn: the longest race of each system as it is meant to be used."""
    levels = {system.name for system in LEVELS}
    found = [row for row in rows(folder) if not row.campaign and row.name not in levels]
    return best(found)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--results", type=Path, default=ROOT / "build" / "recovery")
    p.add_argument("--ranks", default="2,1", help="numbers of ranks with commas between them")
    p.add_argument("--to", type=Path, default=ROOT / "docs" / "images" / "recovery.svg")
    args = p.parse_args()
    found = [(int(n), raced(args.results / f"{n}-ranks")) for n in args.ranks.split(",")]
    if not (sections := [(ranks, of) for ranks, of in found if of]):
        sys.exit(f"no results in {args.results}: run bench/recovery/race.py")
    args.to.write_text(picture(sections))
    print(f"wrote {args.to}")


if __name__ == "__main__":
    main()
