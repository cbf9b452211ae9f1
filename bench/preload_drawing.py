"""Draws what bench/preload.py has measured: docs/images/preload.svg.

    python bench/preload_drawing.py [--results build/preload.json] [--to docs/images]

A bar for each way to start: seconds until the first step, by kind; of its rounds the fastest.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench" / "program"))
from drawing import (  # noqa: E402
    BARS_END,
    BARS_X,
    NAMES_X,
    ON,
    ROW,
    TOP,
    bar,
    colour_of,
    page,
    place,
    text,
)

TOLD = ("start_s", "preload_s")  # the others are kinds


def picture(results: dict[str, list[dict[str, float]]]) -> str:
    """All rungs, the slowest first as they were measured."""
    fastest = {
        name: min(rounds, key=lambda one: one["start_s"]) for name, rounds in results.items()
    }
    scale = (BARS_END - BARS_X) / max(one["start_s"] for one in fastest.values())
    slowest_s = next(iter(fastest.values()))["start_s"]
    body: list[str] = []
    y = float(TOP)
    kinds: dict[str, None] = {}
    for name, found in fastest.items():
        body.append(text(NAMES_X, y + 5, name))
        x = float(BARS_X)
        parts = sorted(
            ((k, s) for k, s in found.items() if k not in TOLD), key=lambda p: place(p[0])
        )
        for kind, seconds in parts:
            body.append(bar(x, y, seconds * scale, colour_of(kind)))
            if seconds * scale > 60:
                body.append(text(x + 6, y + 4, kind, "on"))
            x += seconds * scale
            kinds[kind] = None
        words = f"{found['start_s']:.1f} s"
        if found is not fastest[next(iter(fastest))]:
            words += f" · {slowest_s / found['start_s']:.1f} ×"
        body.append(text(x + 8, y + 5, words, "ours"))
        y += ROW
    x = float(NAMES_X)
    for kind in sorted(kinds, key=place):
        body.append(bar(x, y, 12, colour_of(kind)))
        body.append(text(x + 18, y + 5, kind, "soft"))
        x += 32 + 7 * len(kind)
    rounds = min(len(each) for each in results.values())
    title = "Until the first step on a host that has read nothing yet"
    under = f"a disk of 125 MB/s, 800 MB of state, 400 MB of data; the fastest of {rounds} or more"
    return page(title, under, body, round(y + ROW)).replace("</style>", ON + "</style>")


def main() -> None:
    p = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    p.add_argument("--results", type=Path, default=ROOT / "build" / "preload.json")
    p.add_argument("--to", type=Path, default=ROOT / "docs" / "images")
    args = p.parse_args()
    (args.to / "preload.svg").write_text(picture(json.loads(args.results.read_text())))


if __name__ == "__main__":
    main()
