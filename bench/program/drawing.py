"""Draws what ladder.py and startup.py have measured: docs/images/program.svg and startup.svg.

    python bench/program/drawing.py [--results build/program] [--size cpu] [--to docs/images]

Program goodput: a bar for each rung, its effective MFU; a line where the first one ends. Start-up:
a bar for each rung, its seconds by kind in the report's colours. Its own panel, light or dark as
the reader's system is.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from ladder import Ladders, told_ladders

from holdfast.report.kinds import ORDER, style_of

ROOT = Path(__file__).resolve().parents[2]
WIDTH, ROW, TOP = 960, 34, 96
NAMES_X, BARS_X, BARS_END = 24, 300, 780
OURS, PLAIN = "#009e73", "#8a8f98"

STYLE = """
  text { font: 13px ui-sans-serif, system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
         fill: #1f2328 }
  .title { font-size: 16px; font-weight: 600 } .ours { font-weight: 600 }
  .soft { fill: #59636e } .panel { fill: #ffffff; stroke: #d8dee4 }
  .line { stroke: #59636e; stroke-width: 1; stroke-dasharray: 4 3 } .rest { fill: #e4e8ec }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .soft { fill: #9aa4af } .panel { fill: #0d1117; stroke: #30363d }
    .line { stroke: #9aa4af } .rest { fill: #30363d }
  }
"""


def text(x: float, y: float, words: str, css: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{css}" text-anchor="{anchor}">{words}</text>'


def bar(x: float, y: float, width: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{y - 9:.1f}" width="{width:.1f}" height="18" fill="{colour}"/>'


def page(title: str, under: str, body: list[str], height: int) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" role="img" aria-label="{title}">'
    )
    panel = f'<rect x="1" y="1" width="{WIDTH - 2}" height="{height - 2}" rx="10" class="panel"/>'
    said = [text(NAMES_X, 36, title, "title"), text(NAMES_X, 58, under, "soft")]
    return "\n".join([head, f"<style>{STYLE}</style>", panel, *said, *body, "</svg>", ""])


def program(ladders: Ladders) -> str:
    """Effective MFU of each rung of each context."""
    body: list[str] = []
    y = float(TOP)
    for context, told_rows in ladders.items():
        rows = {name: row for name, row in told_rows.items() if "failed" not in row}
        most = max(row["effective_mfu"] for row in rows.values())
        scale = (BARS_END - BARS_X) / most
        plain = next(iter(rows.values()))
        told = f"context {context}, {plain['device']}"
        body.append(text(NAMES_X, y, f"{plain['parameters']:,} parameters, {told}", "soft"))
        end = BARS_X + plain["effective_mfu"] * scale
        bottom = y + ROW * (len(rows) + 0.5) - 8
        body.append(f'<path class="line" d="M{end:.1f} {y + 8:.1f} V{bottom:.1f}"/>')
        for name, row in rows.items():
            y += ROW
            colour = OURS if name == "together" else PLAIN
            css = "ours" if name == "together" else ""
            body.append(text(NAMES_X, y + 5, name, css))
            body.append(bar(BARS_X, y, row["effective_mfu"] * scale, colour))
            faster = row["tokens_per_s"] / plain["tokens_per_s"]
            words = f"{row['effective_mfu']:.1%} · {faster:.2f} ×"
            body.append(text(BARS_X + row["effective_mfu"] * scale + 8, y + 5, words, css))
        y += ROW * 1.5
    title = "What raises program goodput: one switch at a time, and together"
    under = "effective MFU (FLOPs of dense attention, peak of the plain type) · tokens/s of plain"
    return page(title, under, body, round(y))


def startup(results: dict[str, list[dict[str, float]]]) -> str:
    """Seconds until the first step, by kind."""
    starts = {name: parts_of(rounds) for name, rounds in results.items()}
    scale = (BARS_END - BARS_X) / max(sum(parts.values()) for parts in starts.values())
    body: list[str] = []
    y = float(TOP)
    for name, parts in starts.items():
        body.append(text(NAMES_X, y + 5, name))
        x = float(BARS_X)
        for kind, seconds in parts.items():
            body.append(bar(x, y, seconds * scale, colour_of(kind)))
            if seconds * scale > 60:
                body.append(text(x + 6, y + 4, kind, "on"))
            x += seconds * scale
        body.append(text(x + 8, y + 5, f"{sum(parts.values()):.2f} s", "ours"))
        y += ROW
    x, kinds = float(NAMES_X), {kind: None for parts in starts.values() for kind in parts}
    for kind in sorted(kinds, key=place):
        body.append(bar(x, y, 12, colour_of(kind)))
        body.append(text(x + 18, y + 5, kind.removeprefix("custom:"), "soft"))
        x += 32 + 7 * len(kind)
    y += ROW
    rounds = min(len(each) for each in results.values())
    title = "Until the first step: the reference trainer, with each remedy"
    under = f"restarts are from the SIGKILL of the rank; the fastest of {rounds} or more rounds"
    return page(title, under, body, round(y)).replace("</style>", ON + "</style>")


ON = "  .on { fill: #1b1f24; font-size: 11px }\n"
OWN = {"compile": "#d55e00", "restore": "#56b4e9"}  # of the report's orange there are three


def place(kind: str) -> int:
    return ORDER.get(kind, len(ORDER))


def colour_of(kind: str) -> str:
    return OWN.get(kind, style_of(kind).colour)


def parts_of(rounds: list[dict[str, float]]) -> dict[str, float]:
    """Of the fastest round, in the order of a report."""
    fastest = min(rounds, key=lambda one: sum(one.values()))
    return dict(sorted(fastest.items(), key=lambda part: place(part[0])))


def main() -> None:
    p = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    p.add_argument("--results", type=Path, default=ROOT / "build" / "program")
    p.add_argument("--size", default="cpu", help="of the ladder that is drawn")
    p.add_argument("--to", type=Path, default=ROOT / "docs" / "images")
    args = p.parse_args()
    ladder, starts = args.results / f"{args.size}.json", args.results / "startup.json"
    if ladder.exists():
        drawn = program(told_ladders(json.loads(ladder.read_text())))
        (args.to / "program.svg").write_text(drawn)
    if starts.exists():
        (args.to / "startup.svg").write_text(startup(json.loads(starts.read_text())))
    if not ladder.exists() and not starts.exists():
        sys.exit(f"no results in {args.results}: run ladder.py or startup.py")


if __name__ == "__main__":
    main()
