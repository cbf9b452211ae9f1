"""The pages in a real browser, from disk and with no network: `make browser` sets it up.

Skipped where there is no Chromium, or Playwright is not installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.main import main

pytestmark = pytest.mark.real

PLAN = (
    "--hosts", "2048", "--chips-per-host", "8", "--failures-per-1000-node-days", "3.79",
    "--save-stall", "10s", "--restart", "5min", "--host-share", "0.8", "--repair", "1d",
    "--reschedule", "1h", "--spares", "8", "--memory-copy", "2s",
)  # fmt: skip
DRAWN = "() => [...document.querySelectorAll('[data-chart]')].every(e => e.dataset.drawn == '%s')"
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "plan.html"
    with pytest.raises(SystemExit) as exit_:
        main(["plan", *PLAN, "--html", str(path)])
    assert exit_.value.code == 0
    return path


@pytest.fixture
def opened(browser: Any, written: Path) -> Iterator[Open]:
    """Opens the page; when it is over, its policy has refused nothing, and nothing was fetched."""
    said: list[str] = []

    def open_(width: int = 1280, scheme: str = "light") -> Any:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True
        )
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: said.append(request.url))
        page.goto(written.as_uri())
        page.wait_for_function(DRAWN % scheme)
        return page

    yield open_
    assert said == [written.as_uri()]


def test_charts_are_drawn_and_follow_the_systems_colours(opened: Open) -> None:
    page = opened()
    words = page.locator("[data-chart=interval-durable] svg text")
    before = words.first.get_attribute("fill")
    assert any(text.startswith("best: ") for text in words.all_text_contents())
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(DRAWN % "dark")
    assert words.first.get_attribute("fill") != before
    page.emulate_media(media="print")  # on white paper
    page.wait_for_function(DRAWN % "light")


def test_the_pointer_shows_numbers(opened: Open) -> None:
    page = opened()
    chart = page.locator("[data-chart=interval-durable] svg")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    for part in (0.5, 0.55):
        page.mouse.move(box["x"] + part * box["width"], box["y"] + 0.5 * box["height"])
    tip = page.locator("#vg-tooltip-element.visible")
    tip.wait_for()
    shown = dict(line.split("\t") for line in tip.inner_text().splitlines())
    assert list(shown) == ["interval", "exact", "first order"]
    assert shown["exact"].endswith(" %")


def test_a_phone_needs_no_scrolling_sideways(opened: Open) -> None:
    page = opened(width=360)
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    for chart in page.locator("[data-chart] svg").all():
        assert chart.bounding_box()["width"] <= 360


def test_the_keyboard_opens_the_numbers(opened: Open) -> None:
    page = opened()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY"
    page.keyboard.press("Enter")
    assert page.locator("details[open] table").first.is_visible()
