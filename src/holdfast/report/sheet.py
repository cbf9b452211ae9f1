"""Charts side by side in one picture, for a slide or a document, drawn without a browser."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from html import escape

from holdfast.report.charts import Figure, svg
from holdfast.report.themes import FONT, LIGHT

COLUMNS, CHART_PX, GAP_PX, MARGIN_PX = 2, 520, 36, 28
WHOLE_PX = COLUMNS * CHART_PX + (COLUMNS - 1) * GAP_PX
TITLE_PX, HEAD_PX = 30, 48  # of a chart, of the sheet


def sheet(figures: Sequence[Figure], title: str, across: Collection[str] = ()) -> str:
    """All figures under one title, as SVG; those named in `across` take the whole width.

    Raises ConfigurationError where the extra `dashboard` is not installed.
    """
    body = [_words(MARGIN_PX, MARGIN_PX + 18, title, 20)]
    top = MARGIN_PX + HEAD_PX
    for row in _rows(figures, across):
        tallest = 0
        for column, figure in enumerate(row):
            left = MARGIN_PX + column * (CHART_PX + GAP_PX)
            width = WHOLE_PX if figure.name in across else CHART_PX
            drawn, height = _chart(figure, left, top + TITLE_PX, width)
            body += [_words(left, top + 14, figure.title, 15), drawn]
            tallest = max(tallest, height)
        top += TITLE_PX + tallest + GAP_PX
    width = 2 * MARGIN_PX + WHOLE_PX
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {top}" width="{width}" '
        f'height="{top}" role="img" aria-label="{escape(title)}">'
    )
    ground = f'<rect width="{width}" height="{top}" fill="{LIGHT.panel}"/>'
    return "\n".join([head, ground, *body, "</svg>", ""])


def _rows(figures: Sequence[Figure], across: Collection[str]) -> list[list[Figure]]:
    """Which charts stand side by side."""
    rows: list[list[Figure]] = []
    for figure in figures:
        last = rows[-1] if rows else []
        if not last or len(last) == COLUMNS or {figure.name, last[-1].name} & set(across):
            rows.append([figure])
        else:
            last.append(figure)
    return rows


def _chart(figure: Figure, left: int, top: int, width_px: int) -> tuple[str, int]:
    """A chart at its place, and its height; ids are of the whole picture, so each gets its own."""
    drawn = svg(figure.spec, LIGHT, width_px)
    drawn = re.sub(r'(\bid="|url\(#)', rf"\g<1>{figure.name}-", drawn)
    size = re.search(r'height="(\d+)"', drawn)
    height = int(size[1]) if size else 0
    return drawn.replace("<svg ", f'<svg x="{left}" y="{top}" ', 1), height


def _words(left: int, base: int, words: str, px: int) -> str:
    return (
        f'<text x="{left}" y="{base}" fill="{LIGHT.ink}" font-size="{px}" font-weight="600" '
        f'font-family="{escape(FONT)}">{escape(words)}</text>'
    )
