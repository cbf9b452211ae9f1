"""The terminal report as an SVG picture, for a page, a pull request or a slide.

Block characters become rectangles and every word is placed by its column, so the picture looks the
same with any monospaced font, and it follows the reader's light or dark theme.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from html import escape
from itertools import groupby
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment
from rich.style import Style

from holdfast.report.findings import Findings
from holdfast.report.terminal import parts

CELL_WIDTH, LINE_HEIGHT = 8.4, 19
MARGIN, TOP = 18, 44
# Each block character as (left, width) in eighths of a cell, and how solid it is.
BLOCKS: dict[str, tuple[int, int, float]] = {
    **{char: (0, eighths, 1.0) for eighths, char in enumerate("▏▎▍▌▋▊▉█", start=1)},
    "▐": (4, 4, 1.0),
    "░": (0, 8, 1.0),
    "▒": (0, 8, 1.0),
    "■": (1, 6, 1.0),
    "─": (0, 8, 0.3),
}
_STYLE = """
  text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
         fill: #1f2328; white-space: pre }
  .dim { fill: #59636e } .bold { font-weight: 700 } .ink { fill: #1f2328 }
  .panel { fill: #ffffff; stroke: #d8dee4 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .dim { fill: #9aa4af } .ink { fill: #e6edf3 }
    .panel { fill: #0d1117; stroke: #30363d }
  }
"""


def svg(findings: Findings, title: str, columns: int = 92) -> str:
    """The whole picture; `columns` is the width of the terminal that it shows."""
    console = Console(
        file=io.StringIO(),
        width=columns,
        force_terminal=True,
        color_system="truecolor",
        no_color=False,
        legacy_windows=False,
    )
    lines = [
        line
        for part in parts(findings, console)
        for line in console.render_lines(part, pad=False, new_lines=False)
    ]
    width = 2 * MARGIN + columns * CELL_WIDTH
    height = TOP + len(lines) * LINE_HEIGHT + MARGIN
    body = [item for row, line in enumerate(lines) for item in _line(row, line)]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" '
            f'width="{width:.0f}" height="{height}" role="img" aria-label="{escape(title)}">',
            f"<style>{_STYLE}</style>",
            f'<rect x="0.5" y="0.5" width="{width - 1:.0f}" height="{height - 1}" rx="10" '
            'class="panel"/>',
            *(
                f'<circle cx="{MARGIN + 6 + 18 * i}" cy="20" r="5.5" class="dim" opacity="0.35"/>'
                for i in range(3)
            ),
            f'<text x="{width / 2:.0f}" y="24" class="dim" text-anchor="middle">'
            f"{escape(title)}</text>",
            *body,
            "</svg>",
            "",
        ]
    )


class _Box(NamedTuple):
    """A drawn rectangle: where, and its paint as SVG attributes."""

    x: float
    y: float
    width: float
    height: float
    paint: str

    def drawn(self) -> str:
        return (
            f'<rect x="{self.x:.2f}" y="{self.y:.1f}" width="{self.width:.2f}" '
            f'height="{self.height:.1f}" {self.paint}/>'
        )


def _line(row: int, line: list[Segment]) -> Iterator[str]:
    """One line of the screen: words as text, blocks as rectangles, touching ones as one."""
    column = 0
    boxes: list[_Box] = []
    for segment in line:
        style = segment.style or Style.null()
        for char, group in groupby(segment.text, key=lambda c: c if c in BLOCKS else ""):
            text = "".join(group)
            if char:
                box = _box(row, column, len(text), char, style)
                last = boxes[-1] if boxes else None
                if last and last.paint == box.paint and abs(last.x + last.width - box.x) < 0.01:
                    boxes[-1] = last._replace(width=last.width + box.width)
                else:
                    boxes.append(box)
            elif text.strip():
                lead = len(text) - len(text.lstrip())
                yield _words(row, column + lead, text.strip(), style)
            column += cell_len(text)
    yield from (box.drawn() for box in boxes)


def _box(row: int, column: int, cells: int, char: str, style: Style) -> _Box:
    left, eighths, opacity = BLOCKS[char]
    y, height = float(TOP + row * LINE_HEIGHT), LINE_HEIGHT - 3.0
    if char == "─":
        y, height = y + 7.5, 1.2
    elif char == "■":
        y, height = y + 4, eighths / 8 * CELL_WIDTH + 2
    paint = (
        f'fill="{_colour(style)}"' if style.color else f'class="{"dim" if style.dim else "ink"}"'
    )
    return _Box(
        x=MARGIN + (column + left / 8) * CELL_WIDTH,
        y=y,
        width=(cells - 1 + eighths / 8) * CELL_WIDTH,
        height=height,
        paint=paint if opacity == 1 else f'{paint} opacity="{opacity}"',
    )


def _words(row: int, column: int, text: str, style: Style) -> str:
    x, y = MARGIN + column * CELL_WIDTH, TOP + row * LINE_HEIGHT + 13
    classes = " ".join(name for name in ("dim", "bold") if getattr(style, name))
    css = f' class="{classes}"' if classes else ""
    paint = f' style="fill: {_colour(style)}"' if style.color else ""
    length = cell_len(text) * CELL_WIDTH
    return (
        f'<text x="{x:.2f}" y="{y}" textLength="{length:.1f}" '
        f'lengthAdjust="spacingAndGlyphs"{css}{paint}>{escape(text)}</text>'
    )


def _colour(style: Style) -> str:
    return style.color.get_truecolor().hex if style.color else "#808080"
