"""A run's page in a real browser, from disk and with no network: `make browser` sets it up.

Skipped where there is no Chromium, or Playwright is not installed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.main import main

pytestmark = pytest.mark.real

HOSTILE = (
    "</script><script>document.title='taken'</script><img src=x onerror=alert(1)>\x1b]0;no\x07"
)
ATTEMPTS, STEPS = 40, 200
DRAWN = "() => document.getElementById('course-place').dataset.drawn"
VIEW = "() => document.getElementById('course-place').dataset.drawn.split(',').map(Number)"
INCIDENT = "#incidents .incidents summary"
Open = Callable[..., Any]


def history() -> Iterator[dict[str, Any]]:
    """Forty attempts of 200 steps, each killed; the run's name and its causes are hostile."""
    at = 5.0
    for attempt in range(ATTEMPTS):
        first = attempt * STEPS + 1
        end = at + 10 + STEPS * 0.5
        yield {"event": "span", "attempt": attempt, "kind": f"custom:{HOSTILE}", "start": at,
               "end": at + 2}  # fmt: skip
        yield {"event": "steps", "attempt": attempt, "first": first, "last": first + STEPS - 1,
               "start": at + 10, "end": end}  # fmt: skip
        yield {"event": "attempt", "attempt": attempt, "start": at, "end": end + 1,
               "cause": HOSTILE}  # fmt: skip
        yield {"event": "notice", "at": end - 20, "deadline": end, "source": HOSTILE}
        at = end + 31
    yield {"event": "run", "name": HOSTILE, "requested": 0, "ended": at, "chips": 8}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    (folder / "run.jsonl").write_text("".join(json.dumps(line) + "\n" for line in history()))
    page = folder / "run.html"
    with pytest.raises(SystemExit) as exit_:
        main(["report", "--history", str(folder / "run.jsonl"), "--html", str(page)])
    assert exit_.value.code == 0
    return page


@pytest.fixture
def opened(browser: Any, written: Path) -> Iterator[Open]:
    """Opens the page; when it is over, its policy has refused nothing, and nothing was fetched."""
    said: list[str] = []

    def open_(width: int = 1280, scheme: str = "light", scripts: bool = True) -> Any:
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,
            offline=True,
            java_script_enabled=scripts,
        )
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: said.append("a dialog"))
        page.on("request", lambda request: said.append(request.url))
        page.goto(written.as_uri())
        if scripts:
            page.wait_for_function(DRAWN)
        return page

    yield open_
    assert said == [written.as_uri()]


def pixel(page: Any, x: int, y: int) -> str:
    return str(
        page.evaluate(
            "([x, y]) => [...document.getElementById('course-canvas').getContext('2d')"
            ".getImageData(x, y, 1, 1).data].slice(0, 3).join()",
            [x, y],
        )
    )


def test_hostile_words_are_text(opened: Open) -> None:
    page = opened()
    assert page.title().startswith("</script><script>document.title=")
    assert page.locator("h1").inner_text().startswith("</script><script>")
    assert page.locator("img, iframe").count() == 0
    page.locator("#incidents details").first.locator("summary").first.click()
    page.hover("#course-canvas")
    assert "custom:</script>" in page.locator("#course-legend").inner_text()


def test_it_zooms_from_the_whole_run_to_milliseconds(opened: Open) -> None:
    page = opened()
    low, high = page.evaluate(VIEW)
    assert (low, high) == (0, pytest.approx((5 + 40 * 141) * 1e6))
    page.locator("#course-place").focus()
    for _ in range(30):
        before = page.evaluate(VIEW)
        page.keyboard.press("+")
        page.wait_for_function(
            "before => document.getElementById('course-place').dataset.drawn != before",
            arg=",".join(map(js, before)),
        )
        if before[1] - before[0] < 2000:
            break
    low, high = page.evaluate(VIEW)
    assert high - low < 2000  # microseconds
    assert pixel(page, 600, 80)  # it still draws
    page.keyboard.press("0")
    page.wait_for_function("() => document.getElementById('course-place').dataset.drawn[0] == '0'")


def js(number: float) -> str:
    """As JavaScript prints it."""
    return str(int(number)) if number == int(number) else repr(number)


def test_a_disruption_is_shown_on_the_time_line(opened: Open) -> None:
    page = opened()
    page.locator(INCIDENT).first.click()
    before = page.evaluate(DRAWN)
    page.locator("#incidents [data-show]").first.click()
    page.wait_for_function("b => document.getElementById('course-place').dataset.drawn != b",
                           arg=before)  # fmt: skip
    low, high = page.evaluate(VIEW)
    assert high - low < 120e6
    assert page.evaluate("document.activeElement.id") == "course-place"
    assert "attempt 39" in page.locator("#course-told").inner_text()


def test_colours_follow_the_system(opened: Open) -> None:
    page = opened()
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    label = page.locator("#badput .wide svg text").first
    before = label.evaluate("e => getComputedStyle(e).fill")
    page.emulate_media(color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != ground
    assert label.evaluate("e => getComputedStyle(e).fill") != before


@pytest.mark.parametrize("width", [360, 800])
def test_no_scrolling_sideways(opened: Open, width: int) -> None:
    page = opened(width=width, scheme="dark")
    for story in page.locator(
        "#first-start > summary, #incidents .incidents > details > summary"
    ).all():
        story.click()
    assert page.evaluate("document.documentElement.scrollWidth") == width
    for drawing in page.locator(".chart svg:visible, #course-canvas").all():
        assert drawing.bounding_box()["width"] <= width


def test_the_pointer_tells_what_lies_under_it(opened: Open) -> None:
    page = opened()
    box = page.locator("#course-canvas").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 80)
    page.wait_for_function("() => document.getElementById('course-told').textContent != ''")
    assert "reschedule (waiting for a host again)" in page.locator("#course-told").inner_text()
    before = page.evaluate(DRAWN)
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 80)
    page.mouse.wheel(0, -600)
    page.wait_for_function("b => document.getElementById('course-place').dataset.drawn != b",
                           arg=before)  # fmt: skip
    low, high = page.evaluate(VIEW)
    assert high - low < 5000e6


def test_without_scripts_the_answers_and_a_picture_remain(opened: Open) -> None:
    page = opened(scripts=False)
    assert page.locator("#course-still svg:visible").count() == 1
    assert page.locator("#course-live:visible").count() == 0
    assert "goodput" in page.locator("#goodput").inner_text()


def test_new_data_are_drawn_instead(opened: Open) -> None:
    """What a live page does."""
    page = opened()
    page.evaluate(
        """() => {
          const data = JSON.parse(document.getElementById("course").textContent);
          const last = data.d.length - 1;
          data.end += 1e9;
          data.d[last] += 1e9;
          document.dispatchEvent(new CustomEvent("holdfast:course", { detail: data }));
        }"""
    )
    page.wait_for_function(
        "() => document.getElementById('course-place').dataset.drawn == '0,6645000000'"
    )


def given(page: Any, change: str) -> None:
    """Draws the page's data with a change."""
    page.evaluate(
        """change => {
          const data = JSON.parse(document.getElementById("course").textContent);
          new Function("data", change)(data);
          document.dispatchEvent(new CustomEvent("holdfast:course", { detail: data }));
        }""",
        change,
    )


def told(page: Any) -> str:
    return str(page.locator("#course-told").inner_text())


def test_the_drawing_is_not_stretched(opened: Open) -> None:
    size = opened().evaluate(
        "(c => [c.height, c.clientHeight * devicePixelRatio])"
        "(document.getElementById('course-canvas'))"
    )
    assert size[0] == size[1]


def test_keys_alone_tell_what_lies_there(opened: Open) -> None:
    page = opened()
    page.locator("#course-place").focus()
    page.keyboard.press("+")
    page.wait_for_function("() => document.getElementById('course-told').textContent != ''")
    words = told(page)
    assert "reschedule" in words
    page.keyboard.press("ArrowLeft")
    page.wait_for_function(
        "words => document.getElementById('course-told').textContent != words", arg=words
    )


def test_a_touch_tells_too_and_the_other_button_moves_nothing(opened: Open) -> None:
    page = opened()
    page.locator("#course-place").focus()
    page.keyboard.press("+")
    page.wait_for_function(f"() => ({DRAWN})()[0] != '0'")
    before = page.evaluate(DRAWN)
    page.evaluate(
        """() => {
          const place = document.getElementById("course-place");
          place.setPointerCapture = () => {};
          const box = document.getElementById("course-canvas").getBoundingClientRect();
          const send = (type, x, more) => place.dispatchEvent(new PointerEvent(type, {
            pointerId: 7, clientX: box.left + x, clientY: box.top + 80, bubbles: true, ...more }));
          send("pointerdown", 40, { button: 2 });
          send("pointermove", 340, {});
          send("pointerup", 340, { button: 2 });
          send("pointerdown", 600, { button: 0 });
          send("pointerup", 600, { button: 0 });
        }"""
    )
    page.wait_for_function("() => document.getElementById('course-told').textContent != ''")
    assert page.evaluate(DRAWN) == before


def test_a_view_of_hours_says_of_which_day(opened: Open) -> None:
    page = opened()
    view = page.locator("#course-view")
    given(page, "data.unix_ms = Date.UTC(2026, 2, 1, 23)")  # for not quite two hours
    page.wait_for_function("() => document.getElementById('course-view').textContent[0] != '+'")
    assert view.inner_text().startswith("2026-03-01 23:00:00 UTC, 1 h 34 min")
    given(page, "data.unix_ms = Date.UTC(2026, 2, 1, 12)")
    page.wait_for_function("() => document.getElementById('course-view').textContent[0] == '1'")
    assert view.inner_text().startswith("12:00:00 UTC")


def test_a_run_that_began_anew_is_in_view(opened: Open) -> None:
    page = opened()
    page.locator("#course-place").focus()
    page.keyboard.press("+")
    page.wait_for_function(f"() => ({DRAWN})()[0] != '0'")
    given(page, "data.d = [5e6]; data.k = [0]; data.n = [0]; data.s = [0]; data.x = [0];"
                "data.m = []; data.end = 5e6; data.live = true")  # fmt: skip
    page.wait_for_function(f"() => ({DRAWN})() == '0,5000000'")


def test_an_attempt_that_is_not_among_the_newest_has_no_wrong_cause(opened: Open) -> None:
    page = opened()
    given(page, "data.launches = data.launches.slice(-1)")
    page.locator("#course-place").focus()
    page.keyboard.press("p")
    page.wait_for_function("() => document.getElementById('course-told').textContent != ''")
    assert re.search(r"attempt \d+ ended( ·|$)", told(page))


def test_a_print_has_the_disruptions(opened: Open) -> None:
    page = opened(width=740)
    page.emulate_media(media="print")
    assert page.locator(f"{INCIDENT}:visible").count() == 21  # the newest, and how many before
    assert page.locator(".narrow:visible").count() == 0


def test_a_long_name_needs_no_scrolling_sideways(opened: Open) -> None:
    page = opened(width=360)
    given(page, "data.kinds[0].name = data.kinds[0].words = 'k'.repeat(400)")
    page.wait_for_function(
        "() => document.getElementById('course-legend').innerText.includes('kkk')"
    )
    assert page.evaluate("document.documentElement.scrollWidth") == 360
