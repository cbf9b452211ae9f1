"""A page is whole, runs nothing but its own scripts, and lets nothing from outside in as HTML."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from holdfast.report.chart_parts import ChartLine, Step, hover, lines, share_axis, waterfall
from holdfast.report.charts import Figure, Table, altair, png, spec_of, svg
from holdfast.report.page import page, policy
from holdfast.report.sheet import sheet
from holdfast.report.themes import DARK, LIGHT

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
from read_html import LOADS, Read

sys.path.pop(0)

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\u2028&amp;"
SVG = "{http://www.w3.org/2000/svg}"


def curve() -> Figure:
    rows = [{"x": x, "up": x / 4, "word": HOSTILE} for x in range(5)]
    x = altair().X("x:Q")
    drawn = lines(rows, x, share_axis(), [ChartLine("up", HOSTILE, "#009e73")])
    drawn += hover(rows, x, [("word", "word")])
    spec = spec_of(drawn.properties(width="container", height=100))
    return Figure("waterfall", HOSTILE, HOSTILE, spec, Table((HOSTILE, "b"), ((HOSTILE, "2"),)))


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> str:
    """A plan's page whose every word is hostile."""
    monkeypatch.setattr("holdfast.report.page.javascript", lambda: "window.vegaEmbed = null;")
    words: dict[str, Any] = dict.fromkeys(
        ("title", "facts", "goodput", "judgement", "spread", "product", "target", "estimates",
         "made_by", "colour"), HOSTILE,
    )  # fmt: skip
    bar = dict.fromkeys(("goodput", "low", "width", "target", "colour"), HOSTILE)
    card = dict.fromkeys(("name", "value", "words"), HOSTILE)
    change = {**dict.fromkeys(("change", "gain", "goodput"), HOSTILE), "share": 0.5}
    rows = [(HOSTILE, "1")]
    return page(
        "plan.html", [curve()], **words, bar=bar, notes=[HOSTILE], cards=[card], changes=[change],
        intervals=rows, spares=rows, best_spares=0, given=rows, fitted=rows, assumed=rows,
        assumptions=[HOSTILE],
    )  # fmt: skip


def test_words_from_outside_are_text(written):
    read = Read(written)
    assert [tag for tag, _ in read.tags if tag == "img"] == []
    assert len([tag for tag, _ in read.tags if tag == "script"]) == 3
    assert "alert(1)" not in "".join(read.inside["script"] + read.inside["style"])
    assert not any(name.startswith("on") for _, attrs in read.tags for name in attrs)
    assert HOSTILE.replace("&amp;", "&") in "".join(read.words) or HOSTILE in "".join(read.words)
    (data,) = read.inside["json"]
    assert json.loads(data)["charts"]["waterfall"] == curve().spec


def test_the_policy_allows_the_pages_own_scripts_and_styles_only(written):
    read = Read(written)
    (content,) = (
        attrs["content"] or ""
        for tag, attrs in read.tags
        if attrs.get("http-equiv") == "Content-Security-Policy"
    )
    allowed = dict(part.split(" ", 1) for part in content.split("; "))
    assert allowed["default-src"] == allowed["base-uri"] == allowed["form-action"] == "'none'"
    for kind in ("script", "style"):
        digests = [hashlib.sha256(text.encode()).digest() for text in read.inside[kind]]
        hashes = [f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests]
        assert allowed[f"{kind}-src"].split() == hashes
    assert "unsafe" not in content


def test_a_page_is_whole(written):
    read = Read(written)
    fetched = {
        (tag, name): value
        for tag, attrs in read.tags
        for name, value in attrs.items()
        if name in LOADS
    }
    assert fetched == {}
    assert "@import" not in read.inside["style"][0]
    assert "url(" not in read.inside["style"][0]
    assert len({attrs["id"] for _, attrs in read.tags if "id" in attrs}) == len(
        [1 for _, attrs in read.tags if "id" in attrs]
    )


def test_a_policy_changes_with_what_it_allows():
    assert policy(["a"], ["b"]) != policy(["a "], ["b"])


def luminance(colour: str) -> float:
    """Of WCAG 2.2."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=lambda theme: theme.name)
def test_text_can_be_read_on_what_is_behind_it(theme):
    def contrast(one: str, other: str) -> float:
        high, low = sorted((luminance(one), luminance(other)), reverse=True)
        return (high + 0.05) / (low + 0.05)

    for text in (theme.ink, theme.soft, theme.link, theme.good, theme.warning):
        for ground in (theme.page, theme.panel):
            assert contrast(text, ground) >= 4.5, (text, ground)
    assert contrast(theme.warning, theme.warning_panel) >= 4.5


def test_a_chart_is_drawn_without_a_browser():
    """By Vega itself: bars as long as their shares, numbers beside them, names as text."""
    steps = [Step("lost", 0.25, "#d55e00"), Step("saves", 0.15, "#f0e442")]
    drawn = waterfall(steps, Step("all", 1.0, "#8a8f98"), Step("goodput", 0.6, "#009e73"))
    picture = svg(spec_of(drawn), DARK)
    assert [w for w in re.findall(r"<text[^>]*>([^<]*)</text>", picture) if "%" in w] == [
        "100.0 %", "25.0 %", "15.0 %", "60.0 %"
    ]  # fmt: skip
    bars = re.findall(r'aria-label="from: ([\d.]+); what: \w+; to: ([\d.]+)', picture)
    ends = [float(end) for bar in bars for end in bar]
    assert ends == pytest.approx([0, 1, 0.75, 1, 0.6, 0.75, 0, 0.6])
    assert DARK.ink in picture
    assert DARK.panel in picture
    assert HOSTILE not in svg(curve().spec)


def test_charts_side_by_side_are_one_picture() -> None:
    drawn = sheet([curve(), curve(), curve()], HOSTILE)
    root = ET.fromstring(drawn)
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    places = [(c, float(c.get("x", 0)), float(c.get("y", 0))) for c in root.findall(f"{SVG}svg")]
    assert len({(x, y) for _, x, y in places}) == 3
    for one, x, y in places:
        assert x + float(one.get("width", 0)) <= width
        assert y + float(one.get("height", 0)) <= height
    assert root.findall(f".//{SVG}script") == []
    named = [element.get("id") for element in root.iter() if element.get("id")]
    assert {f"url(#{name})" for name in named} >= set(re.findall(r"url\(#[^)]*\)", drawn))
    picture = png(drawn)
    assert picture.startswith(b"\x89PNG")
    assert int.from_bytes(picture[16:20], "big") == 2 * width


def test_words_under_the_pointer_are_those_of_the_nearest_point():
    """Some versions of Vega-Lite look for them in the cell around the point, and find nothing."""
    import vl_convert

    from holdfast.report.charts import VEGA_LITE

    marks = vl_convert.vegalite_to_vega(curve().spec, vl_version=VEGA_LITE)["marks"]
    (cell,) = (mark for mark in marks if mark["name"].endswith("voronoi"))
    assert 'datum.datum["word"]' in cell["encode"]["update"]["tooltip"]["signal"]
