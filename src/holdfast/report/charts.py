"""Charts: one definition in Altair, for a page, a notebook, and a picture.

A `Figure` is a chart with its words and its numbers. `report.page` puts it into a page; `svg` and
`png` draw it without a browser. Altair and vl-convert are the extra `dashboard`, imported here and
nowhere else, when a chart is first asked for.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

from holdfast.errors import ConfigurationError, needs_extra
from holdfast.report.themes import LIGHT, Theme, vega_config

VEGA_LITE = "6.1"  # 6.4 looks for the words under the pointer in the wrong place (hover lines)
PICTURE_WIDTH = 640
LEGEND_PX = 130  # for an entry of a legend


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under heads, all as they are printed; the first column names the row."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart, what it shows in a sentence or two, and its numbers for who cannot see it.

    `name` is its id in a page; `spec` is Vega-Lite with no colours that depend on the theme.
    """

    name: str
    title: str
    words: str
    spec: dict[str, Any]
    numbers: Table


def altair() -> ModuleType:
    """Altair; raises ConfigurationError where the extra is not installed."""
    try:
        import altair
    except ImportError:
        raise ConfigurationError(needs_extra("pages and charts need", "dashboard")) from None
    return altair


def spec_of(chart: Any) -> dict[str, Any]:
    """An Altair chart as Vega-Lite, without Altair's own theme.

    Not held to the schema: the charts are ours, and that takes longer than to draw them.
    """
    with altair().theme.enable("none"):
        spec: dict[str, Any] = chart.to_dict(validate=False)
    return {key: value for key, value in spec.items() if key not in ("$schema", "config")}


def notebook_chart(figure: Figure) -> Any:
    """The figure as an Altair chart, for a notebook."""
    alt = altair()
    spec = {**figure.spec, "config": {**vega_config(LIGHT), "background": LIGHT.panel}}
    spec["title"] = {"text": figure.title, "subtitle": figure.words, "anchor": "start"}
    return (alt.LayerChart if "layer" in spec else alt.Chart).from_dict(spec)


def svg(spec: dict[str, Any], theme: Theme = LIGHT, width: int = PICTURE_WIDTH) -> str:
    """The chart as an SVG picture."""
    drawn: str = _vl_convert().vegalite_to_svg(
        _themed(spec, theme, width), vl_version=VEGA_LITE, allowed_base_urls=[]
    )
    return drawn


def png(picture: str, scale: float = 2.0) -> bytes:
    """An SVG picture as PNG, `scale` pixels for each of its own."""
    drawn: bytes = _vl_convert().svg_to_png(picture, scale=scale)
    return drawn


@cache
def javascript() -> str:
    """Vega, Vega-Lite and vega-embed as one script with no dependencies: `window.vegaEmbed`."""
    bundle: str = _vl_convert().javascript_bundle(
        "window.vegaEmbed = vegaEmbed;", vl_version=VEGA_LITE
    )
    return bundle


def thinned(rows: Sequence[Any], most: int = 16) -> list[Any]:
    """About so many of them, evenly, and the last one: as many numbers as people read."""
    every = -(-len(rows) // most)
    return [*rows[:-1:every], *rows[-1:]]


def _themed(spec: dict[str, Any], theme: Theme, width: int) -> str:
    """The whole chart, so wide with its axes, on the theme's ground."""
    config = {**vega_config(theme), "background": theme.panel}
    config["legend"] = {**config["legend"], "columns": max(1, width // LEGEND_PX)}
    fit = {"type": "fit-x", "contains": "padding"}
    whole = {**spec, "width": width, "autosize": fit, "config": config}
    return json.dumps(whole, allow_nan=False)


def _vl_convert() -> ModuleType:
    try:
        import vl_convert
    except ImportError:
        raise ConfigurationError(needs_extra("pages and charts need", "dashboard")) from None
    return vl_convert
