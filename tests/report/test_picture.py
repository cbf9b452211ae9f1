from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

from holdfast.report.findings import Findings
from holdfast.report.picture import svg

SVG = "{http://www.w3.org/2000/svg}"


def test_the_picture_is_well_formed_and_says_what_the_report_says(findings: Findings) -> None:
    root = ET.fromstring(svg(findings, "holdfast report <my-run>"))
    words = "\n".join(text.text or "" for text in root.iter(f"{SVG}text"))
    assert "holdfast report <my-run>" in words
    assert "79.3 %" in words
    assert "killed by a signal" in words
    assert not re.search("[█▌▐■░▒]", words), "blocks are drawn, so that no font matters"


def test_everything_is_inside_the_frame(findings: Findings) -> None:
    root = ET.fromstring(svg(findings, "t"))
    width, height = float(root.get("width") or 0), float(root.get("height") or 0)
    for box in root.iter(f"{SVG}rect"):
        x, y, w, h = (float(box.get(name) or 0) for name in ("x", "y", "width", "height"))
        assert 0 <= x <= x + w <= width
        assert 0 <= y <= y + h <= height
    for text in root.iter(f"{SVG}text"):
        assert float(text.get("x") or 0) + float(text.get("textLength") or 0) <= width


def test_bars_are_as_long_as_their_share(findings: Findings) -> None:
    """The strip below the headline: its pieces are in proportion to the kinds."""
    root = ET.fromstring(svg(findings, "t", columns=100))
    rows: dict[float, list[float]] = {}
    for box in root.iter(f"{SVG}rect"):
        if box.get("fill"):
            rows.setdefault(float(box.get("y") or 0), []).append(float(box.get("width") or 0))
    strip = max(rows.values(), key=sum)
    kept = findings.account.productive / findings.account.elapsed
    assert abs(strip[0] / sum(strip) - kept) < 0.08  # each small kind took at least one cell
    assert abs(sum(strip) - 100 * 8.4) < 0.01


def test_words_from_outside_are_escaped(findings: Findings) -> None:
    hostile = replace(findings, notes=("</text><script>alert(1)</script>",))
    assert "<script" not in svg(hostile, "t")
