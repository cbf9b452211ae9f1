"""Draws succession.svg: one controller of several hosts dies, and another one goes on.

`python docs/images/succession.py` writes it. A test holds the file to what this draws. It is not to
scale: how long each part takes depends on the store (docs/explanation/many-hosts.md).
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Bar(NamedTuple):
    """Something that lasts, on a lane, from one place to another; `words` stand in it."""

    lane: int
    begins: int
    ends: int
    colour: str
    words: str


class Mark(NamedTuple):
    """Something that happens at a place; `words` stand beside it."""

    at: int
    words: str


LANES = ["the store", "controller", "agents", "ranks"]
BLUE, GREEN, GREY, ORANGE = "#0072b2", "#009e73", "#8a8f98", "#d55e00"
DIES, STARTS, ADOPTS, ORDERS, END = 260, 480, 640, 740, 900
BEGIN = 130

# fmt: off
BARS = [
    Bar(0, BEGIN, DIES, GREY, "lease 7 beats"),
    Bar(0, DIES, STARTS, ORANGE, "lease 7 stands still"),
    Bar(0, STARTS, END, BLUE, "lease 8 beats"),
    Bar(1, BEGIN, DIES, GREY, "term 7"), Bar(1, STARTS, END, BLUE, "term 8"),
    Bar(2, BEGIN, DIES, GREY, "obey term 7"),
    Bar(2, DIES, STARTS, ORANGE, "no link: they look at the lease"),
    Bar(2, STARTS, END, BLUE, "obey term 8, refuse term 7"),
    Bar(3, BEGIN, END, GREEN, "train on: attempt 4, no step is lost"),
]
MARKS = [
    Mark(DIES, "the controller dies"), Mark(STARTS, "one host starts another"),
    Mark(ADOPTS, "number 5 is taken: “goes on with 4”"), Mark(ORDERS, "its first order"),
]
# fmt: on

WIDTH, HEIGHT = 960, 340
TOP, STEP, BAR_HEIGHT = 118, 50, 34
MARK_ROWS = {DIES: 0, STARTS: 0, ADOPTS: 1, ORDERS: 0}

# Its own panel, light or dark as the reader's system is: readable whatever page it stands on.
STYLE = """
  text { font: 13px ui-sans-serif, system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
         fill: #1f2328 }
  .title { font-size: 16px; font-weight: 600 } .soft { fill: #59636e }
  .line { stroke: #59636e; stroke-width: 1.2; stroke-dasharray: 4 4 }
  .panel { fill: #ffffff; stroke: #d8dee4 } .on { fill: #ffffff; font-weight: 600 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .soft { fill: #9aa4af } .line { stroke: #9aa4af }
    .panel { fill: #0d1117; stroke: #30363d } .on { fill: #ffffff }
  }
"""


def text(x: float, y: float, words: str, css: str = "", anchor: str = "start") -> str:
    """Words at a place."""
    return f'<text x="{x}" y="{y}" class="{css}" text-anchor="{anchor}">{words}</text>'


def bar(one: Bar) -> list[str]:
    """One bar with its words."""
    y, width = TOP + one.lane * STEP, one.ends - one.begins - 2
    return [
        f'<rect x="{one.begins}" y="{y}" width="{width}" height="{BAR_HEIGHT}" rx="3" '
        f'fill="{one.colour}"/>',
        text((one.begins + one.ends) / 2, y + 22, one.words, "on", "middle"),
    ]


def mark(one: Mark) -> list[str]:
    """A line across all lanes, with its words above."""
    y = 96 - 22 * MARK_ROWS[one.at]
    bottom = TOP + (len(LANES) - 1) * STEP + BAR_HEIGHT + 6
    return [
        f'<path class="line" d="M{one.at} {y + 6} V{bottom}"/>',
        text(one.at, y, one.words, "", "middle"),
    ]


def picture() -> str:
    """The whole SVG."""
    lanes = [text(30, TOP + n * STEP + 22, words, "soft") for n, words in enumerate(LANES)]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" role="img" aria-label="A controller dies, another host starts the next '
        'one, which goes on with the running attempt, while the ranks train on">'
    )
    panel = f'<rect x="1" y="1" width="{WIDTH - 2}" height="{HEIGHT - 2}" rx="10" class="panel"/>'
    body = [
        text(30, 40, "A controller dies, and the run goes on", "title"),
        *lanes,
        *(line for one in BARS for line in bar(one)),
        *(line for one in MARKS for line in mark(one)),
        text(30, HEIGHT - 16, "Not to scale.", "soft"),
    ]
    return "\n".join([head, f"<style>{STYLE}</style>", panel, *body, "</svg>", ""])


if __name__ == "__main__":
    Path(__file__).with_name("succession.svg").write_text(picture())
