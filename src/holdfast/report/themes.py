"""Light and dark: the colours of pages and charts, besides those of the kinds of time.

One table gives a page its CSS variables and a chart its Vega-Lite configuration, so that a chart in
a page, in a notebook and in a picture looks alike. Text has a contrast of 4.5 or more with what is
behind it in both themes (WCAG 2.2, 1.4.3), which a test computes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from holdfast.report.kinds import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILLION, YELLOW

FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif'
TEXT_PX = 13
# Of series that are no kinds of time, in the order in which a chart takes them.
PALETTE = (GREEN, BLUE, ORANGE, PURPLE, SKY, VERMILLION, YELLOW, GREY)


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours as #rrggbb: of a page and its panels, text and softer text, lines, and meanings.

    `good` and `warning` are text colours; bars have those of their kinds.
    """

    name: str
    page: str
    panel: str
    ink: str
    soft: str
    line: str
    grid: str
    link: str
    good: str
    warning: str
    warning_panel: str


LIGHT = Theme(
    name="light",
    page="#f6f8fa",
    panel="#ffffff",
    ink="#1f2328",
    soft="#59636e",
    line="#d1d9e0",
    grid="#e9edf1",
    link="#0059a3",
    good="#00704f",
    warning="#a03c00",
    warning_panel="#fff4ec",
)
DARK = Theme(
    name="dark",
    page="#0d1117",
    panel="#151b23",
    ink="#e6edf3",
    soft="#9aa4af",
    line="#323b46",
    grid="#252d37",
    link="#7cc0f5",
    good="#3fcf9f",
    warning="#ff9e64",
    warning_panel="#2b1c12",
)
THEMES = (LIGHT, DARK)


def css_variables(theme: Theme) -> str:
    """The theme as declarations of CSS custom properties: `--ink: #1f2328;` and so on."""
    colours = {name: value for name, value in asdict(theme).items() if name != "name"}
    return " ".join(f"--{name.replace('_', '-')}: {value};" for name, value in colours.items())


def vega_config(theme: Theme) -> dict[str, Any]:
    """The theme as a Vega-Lite configuration: of all that has no colour of a kind of time."""
    return {
        "background": "transparent",
        "font": FONT,
        "padding": 4,
        "axis": {
            "labelColor": theme.soft,
            "labelFontSize": 12,
            "titleColor": theme.soft,
            "titleFontSize": 12,
            "titleFontWeight": "normal",
            "titlePadding": 8,
            "domainColor": theme.line,
            "tickColor": theme.line,
            "gridColor": theme.grid,
            "labelPadding": 5,
        },
        "view": {"stroke": None},
        "legend": {
            "orient": "top",
            "title": None,
            "labelColor": theme.ink,
            "labelFontSize": 12,
            "labelLimit": 320,
            "offset": 6,
            "symbolStrokeWidth": 3,
            "symbolSize": 120,
            "rowPadding": 3,
        },
        "line": {"strokeWidth": 2.5, "strokeCap": "round"},
        "bar": {"cornerRadius": 2},
        "text": {"color": theme.ink, "font": FONT, "fontSize": TEXT_PX},
        "rule": {"color": theme.soft},
        "point": {"filled": True, "size": 90, "opacity": 1},
        "range": {"category": list(PALETTE)},
    }
