"""Charts side by side in one picture, for a slide or a document, drawn without a browser."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

from holdfast.report.charts import Figure, svg
from holdfast.report.themes import FONT, LIGHT, Theme

COLUMNS, CHART_PX, GAP_PX, MARGIN_PX = 2, 520, 36, 28
TITLE_PX, HEAD_PX = 30, 48  # of a chart, of the sheet


def sheet(figures: Sequence[Figure], title: str, theme: Theme = LIGHT) -> str:
    """All figures under one title, as SVG.

    Raises ConfigurationError where the extra `dashboard` is not installed.
    """
    body = [_words(MARGIN_PX, MARGIN_PX + 18, title, 20, theme)]
    top = MARGIN_PX + HEAD_PX
    for first in range(0, len(figures), COLUMNS):
        tallest = 0
        for column, figure in enumerate(figures[first : first + COLUMNS]):
            left = MARGIN_PX + column * (CHART_PX + GAP_PX)
            drawn, height = _chart(figure, left, top + TITLE_PX, theme)
            body += [_words(left, top + 14, figure.title, 15, theme), drawn]
            tallest = max(tallest, height)
        top += TITLE_PX + tallest + GAP_PX
    width = 2 * MARGIN_PX + COLUMNS * CHART_PX + (COLUMNS - 1) * GAP_PX
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {top}" width="{width}" '
        f'height="{top}" role="img" aria-label="{escape(title)}">'
    )
    ground = f'<rect width="{width}" height="{top}" fill="{theme.panel}"/>'
    return "\n".join([head, ground, *body, "</svg>", ""])


def _chart(figure: Figure, left: int, top: int, theme: Theme) -> tuple[str, int]:
    """A chart at its place, and its height; ids are of the whole picture, so each gets its own."""
    drawn = svg(figure.spec, theme, CHART_PX)
    drawn = re.sub(r'(\bid="|url\(#)', rf"\g<1>{figure.name}-", drawn)
    size = re.search(r'height="(\d+)"', drawn)
    height = int(size[1]) if size else 0
    return drawn.replace("<svg ", f'<svg x="{left}" y="{top}" ', 1), height


def _words(left: int, base: int, words: str, px: int, theme: Theme) -> str:
    return (
        f'<text x="{left}" y="{base}" fill="{theme.ink}" font-size="{px}" font-weight="600" '
        f'font-family="{escape(FONT)}">{escape(words)}</text>'
    )
