"""Charts drawn beforehand, for a page that has much else to carry: SVG in the page's own colours.

Drawn by Vega without a browser, from the same figures as everywhere. What depends on the theme
refers to the page's variables, so the drawing turns dark with the page, without a script.
"""

from __future__ import annotations

import re

from holdfast.report.charts import Figure, svg
from holdfast.report.themes import LIGHT, Theme

WIDE_PX, HALF_PX, NARROW_PX = 1028, 480, 316
# Colours that no chart has for itself, each standing for one of the theme's.
_STANDS_FOR = {
    f"#0a0b{number:02x}": field
    for number, field in enumerate(Theme.__dataclass_fields__)
    if field != "name"
}
_THEME = Theme(name=LIGHT.name, **{field: colour for colour, field in _STANDS_FOR.items()})
_STYLE = re.compile(r'\sstyle="[^"]*"')  # the page's policy knows style sheets only
_LABEL = re.compile(r'\s(?:aria-label|aria-roledescription|role|aria-hidden)="[^"]*"')


def drawn(figure: Figure, width_px: int) -> str:
    """The figure as SVG, whose text and lines have the colours of the page around it."""
    picture = svg(figure.spec, _THEME, width_px)
    head, rest = picture.split(">", 1)
    # A name for each mark would be read out one by one; the figure has its words and numbers.
    picture = f"{head}>{_LABEL.sub('', rest)}"
    picture = _STYLE.sub("", picture)
    for colour, field in _STANDS_FOR.items():
        picture = picture.replace(colour, f"var(--{field.replace('_', '-')})")
    name = f"{figure.name}-{width_px}"
    return re.sub(r'(\bid="|url\(#)', rf"\g<1>{name}-", picture)
