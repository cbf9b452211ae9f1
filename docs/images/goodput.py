"""Draws goodput.svg: the run of docs/explanation/goodput.md, to scale.

`python docs/images/goodput.py` writes it. A test holds the numbers to what the ledger says.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from holdfast.report.kinds import style_of


class Piece(NamedTuple):
    """A stretch of the run's time line: its kind, its seconds, and what is written in it."""

    kind: str
    seconds: int
    text: str = ""


# fmt: off
TIMELINE = [
    Piece("queued", 100, "queue"), Piece("startup", 40), Piece("step", 400, "steps 1–40"),
    Piece("save", 10), Piece("lost", 150, "41–55"), Piece("detect", 20), Piece("drain", 10),
    Piece("reschedule", 100), Piece("startup", 30), Piece("restore", 20),
    Piece("step", 720, "steps 41–112"),
]
# fmt: on
ELAPSED_S = sum(piece.seconds for piece in TIMELINE)

WIDTH, MARGIN = 960, 40
SCALE = (WIDTH - 2 * MARGIN) / ELAPSED_S
BAR_Y, BAR_HEIGHT = 92, 44
DARK_TEXT_ON = {"save", "startup", "restore", "reschedule", "detect", "drain"}

# Its own panel, light or dark as the reader's system is: readable whatever page it stands on.
STYLE = """
  text { font: 13px ui-sans-serif, system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
         fill: #1f2328 }
  .title { font-size: 16px; font-weight: 600 }
  .soft { fill: #59636e } .tip { fill: #59636e }
  .line { stroke: #59636e; fill: none; stroke-width: 1.2 }
  .panel { fill: #ffffff; stroke: #d8dee4 } .rest { fill: #e4e8ec }
  .piece { stroke: #ffffff; stroke-width: 1.5 }
  .on { fill: #ffffff; font-weight: 600 } .on-light { fill: #1b1f24; font-weight: 600 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .soft { fill: #9aa4af } .tip { fill: #9aa4af }
    .line { stroke: #9aa4af } .panel { fill: #0d1117; stroke: #30363d } .rest { fill: #30363d }
    .piece { stroke: #0d1117 } .on { fill: #ffffff } .on-light { fill: #1b1f24 }
  }
"""


def x_of(second: float) -> float:
    """Where a second of the run stands in the picture."""
    return MARGIN + second * SCALE


def text(x: float, y: float, words: str, css: str = "", anchor: str = "start") -> str:
    """Words at a place."""
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{css}" text-anchor="{anchor}">{words}</text>'


def rect(x: float, y: float, width: float, height: float, css: str, fill: str = "") -> str:
    """A box."""
    paint = f' fill="{fill}"' if fill else ""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height}" '
        f'rx="3" class="{css}"{paint}/>'
    )


def time_line() -> list[str]:
    """The run from its request to its end, every second in one colour."""
    out = [text(MARGIN, 74, f"one run, {ELAPSED_S:,} s from the request to the end", "soft")]
    at = 0
    for piece in TIMELINE:
        width = piece.seconds * SCALE
        out.append(rect(x_of(at), BAR_Y, width, BAR_HEIGHT, "piece", style_of(piece.kind).colour))
        if piece.text:
            css = "on-light" if piece.kind in DARK_TEXT_ON else "on"
            middle = x_of(at + piece.seconds / 2)
            out.append(text(middle, BAR_Y + 27, piece.text, css, "middle"))
        at += piece.seconds
    return out


def notes() -> list[str]:
    """What happened, with an arrow from the restart back to the checkpoint."""
    saved, broke, resumed = x_of(545), x_of(700), x_of(880)
    y = BAR_Y + BAR_HEIGHT
    back = (
        f"M{resumed:.1f} {y + 4} C{resumed:.1f} {y + 62} {saved:.1f} {y + 62} {saved:.1f} {y + 8}"
    )
    return [
        f'<path class="line" marker-end="url(#tip)" d="{back}"/>',
        text((saved + resumed) / 2, y + 64, "goes on from the checkpoint of step 40", "", "middle"),
        f'<path class="line" d="M{broke:.1f} {BAR_Y - 4} V{BAR_Y - 22}"/>',
        text(broke, BAR_Y - 27, "the host breaks", "", "middle"),
        text(x_of(120), y + 22, "start-up", "soft", "middle"),
        text(x_of(625), y + 22, "lost", "soft", "middle"),
        text(x_of(780), y + 22, "new host", "soft", "middle"),
        text(x_of(885), y + 22, "start-up, restore", "soft"),
    ]


def factors() -> list[str]:
    """Three bars, one below the other: what each factor of goodput is a share of."""
    seconds = dict.fromkeys(("queued", "reschedule", "step"), 0)
    for piece in TIMELINE:
        if piece.kind in seconds:
            seconds[piece.kind] += piece.seconds
    available = ELAPSED_S - seconds["queued"] - seconds["reschedule"]
    kept = seconds["step"]
    sg, rg = available / ELAPSED_S, kept / available
    rows = [
        (ELAPSED_S, "#8a8f98", f"{ELAPSED_S:,} s paid for", ""),
        (available, "#56b4e9", f"{available:,} s with all resources",
         f"scheduling goodput {sg:.1%}"),
        (kept, "#009e73", f"{kept:,} s of steps that were kept", f"runtime goodput {rg:.1%}"),
    ]  # fmt: skip
    out, top = [], 240
    for row, (length, colour, inside, beside) in enumerate(rows):
        y = top + row * 36
        previous = rows[max(row - 1, 0)][0]
        out.append(rect(x_of(0), y, previous * SCALE, 28, "rest"))
        out.append(rect(x_of(0), y, length * SCALE, 28, "piece", colour))
        out.append(text(x_of(12), y + 19, inside, "on-light" if row < 2 else "on"))
        css = "on-light" if row < 2 else "on"
        if beside:
            out.append(text(x_of(length - 12), y + 19, beside, css, "end"))
    product = f"goodput = {sg:.1%} × {rg:.1%} = {kept / ELAPSED_S:.1%}"
    return [*out, text(MARGIN, top + 138, product, "title")]


def picture() -> str:
    """The whole SVG."""
    body = [
        text(MARGIN, 40, "Where the time of a run goes", "title"),
        *time_line(),
        *notes(),
        *factors(),
    ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} 400" width="{WIDTH}" '
        'height="400" role="img" aria-label="The time line of a run, and its goodput as the '
        'product of scheduling goodput and runtime goodput">'
    )
    tip = (
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="4" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8 z" class="tip"/></marker></defs>'
    )
    panel = f'<rect x="1" y="1" width="{WIDTH - 2}" height="398" rx="10" class="panel"/>'
    return "\n".join([head, f"<style>{STYLE}</style>", tip, panel, *body, "</svg>", ""])


if __name__ == "__main__":
    Path(__file__).with_name("goodput.svg").write_text(picture())
