"""The scripts of live pages in a real browser, told by the test what a server would send.

Skipped where there is no Chromium, or Playwright is not installed.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(
    0, str(Path(__file__).parents[1] / "serve")
)  # --import-mode=importlib leaves it out
sys.path.insert(0, str(Path(__file__).parents[1] / "runs"))
from asked import asking
from made_runs import Made, make_run

sys.path[:2] = []

from holdfast.journal.store import RunStore  # noqa: E402

pytestmark = pytest.mark.real
DAY_NS = 86_400_000_000_000
# An event source of the test's: `tell` is the server, `sources` those that the page has opened.
TOLD = """
window.sources = [];
window.EventSource = class {
  static OPEN = 1; static CLOSED = 2;
  constructor() { this.readyState = 1; this.heard = {}; sources.push(this); }
  addEventListener(name, hear) { this.heard[name] = hear; }
  close() { this.readyState = 2; }
};
window.tell = (name, data) => sources.at(-1).heard[name]({ data: JSON.stringify(data) });
window.parts = (parts, gone = []) => tell("parts", { parts, gone });
"""
STATE = "() => document.getElementById('live-state').innerText"
Open = Callable[[str], Any]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The list of three runs, and the page of one that failed twice."""
    place = tmp_path_factory.mktemp("store")
    store, then_ns = RunStore(place), time.time_ns() - 3 * DAY_NS
    twice = [Made(9, cause="failed"), Made(9, cause="killed"), Made(9)]
    for name in ("one", "three", "two"):
        make_run(store, name, twice, requested_ns=then_ns)
    with asking(place, tmp_path_factory.mktemp("mirror")) as asked:
        while True:
            whole = asked.get("/", Accept="text/html").text
            if len(set(re.findall(r'data-run="([^"]*)"', whole))) == 3:
                break
        return {"list": whole, "run": asked.get("/run/one", Accept="text/html").text}


@pytest.fixture
def opened(browser: Any, pages: dict[str, str], tmp_path: Path) -> Iterator[Open]:
    """A page whose clock stands still; at the end no script has failed."""
    said: list[str] = []

    def open_(name: str) -> Any:
        (tmp_path / "page.html").write_text(pages[name])
        page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
        page.on("pageerror", lambda error: said.append(str(error)))
        page.add_init_script(TOLD)
        page.clock.install()
        page.goto((tmp_path / "page.html").as_uri())
        page.evaluate("tell('open')")
        return page

    yield open_
    assert said == []


def html(pages: dict[str, str], part: str) -> str:
    """A part of the run's page as the server sent it."""
    found = re.search(rf'<section[^>]* id="{part}"[^>]*>(.*?)</section>', pages["run"], re.S)
    assert found is not None
    return found[1]


def test_a_connection_that_only_looks_open_is_not_live(opened: Open) -> None:
    page = opened("run")
    assert page.evaluate(STATE) == "live"
    page.clock.run_for(20_000)
    page.evaluate("tell('still')")  # of a run that is over, nothing else is heard
    page.clock.run_for(20_000)
    assert page.evaluate(STATE) == "live"
    assert page.evaluate("sources.length") == 1
    page.clock.run_for(100_000)
    assert page.evaluate(STATE) == "no answer; this is 2 min old"
    assert page.evaluate("sources.length") > 1  # it has tried again
    page.evaluate("tell('open')")
    assert page.evaluate(STATE) == "live"


def test_a_page_that_nobody_answers_tells_its_age_in_days(opened: Open) -> None:
    page = opened("run")
    page.clock.fast_forward(3 * 86_400_000)
    page.clock.run_for(2_000)
    assert page.evaluate(STATE) == "no answer; this is 3 d old"


def test_the_title_follows_the_run(opened: Open) -> None:
    page = opened("run")
    assert page.title() == "one: done"
    page.evaluate("""parts({ head: '<h1 data-title="one: &lt;failed&gt;">one</h1>' })""")
    assert page.title() == "one: <failed>"


def test_what_is_open_and_focused_stays_when_another_disruption_comes(
    opened: Open, pages: dict[str, str]
) -> None:
    page = opened("run")
    page.click("#incident-0 > summary")
    page.click("#first-start > summary")
    page.focus("#incident-0 > summary")
    more = html(pages, "incidents").replace(
        '<details id="incident-1">',
        '<details id="incident-7"><summary>x</summary><a href="/">x</a></details>'
        '<details id="incident-1">',
    )
    page.evaluate("html => parts({ incidents: html })", more)
    open_ = "[...document.querySelectorAll('#incidents details[open]')].map(one => one.id)"
    assert page.evaluate(open_) == ["first-start", "incident-0"]
    assert page.evaluate("document.activeElement.parentElement.id") == "incident-0"


def test_a_row_keeps_the_focus_and_what_is_selected_in_it(opened: Open) -> None:
    page = opened("list")
    rows = page.evaluate("[...document.querySelectorAll('#rows tr')].map(row => row.dataset.run)")
    here = "document.activeElement.closest('tr')?.dataset.run"
    page.focus(f"tr[data-run={rows[2]}] a")
    page.evaluate("order => parts({ order })", json.dumps([rows[1], rows[2]]))  # one is deleted
    assert page.evaluate(here) == rows[2]
    page.evaluate("order => parts({ order })", json.dumps([rows[2], rows[1]]))
    assert page.evaluate(here) == rows[2]
    page.focus(f"tr[data-run={rows[1]}] a")
    page.evaluate("order => parts({ order })", json.dumps([rows[1], rows[2]]))
    assert page.evaluate(here) == rows[1]

    cell = f"document.querySelector('tr[data-run={rows[1]}] [data-col=why]')"
    page.evaluate(f"getSelection().selectAllChildren({cell})")
    row = page.evaluate(f"document.querySelector('tr[data-run={rows[1]}]').innerHTML")
    page.evaluate("([id, html]) => parts({ [id]: html })", [f"row:{rows[1]}", row + "<td>new</td>"])
    assert page.evaluate("String(getSelection())") != ""
    assert "new" not in page.locator(f"tr[data-run={rows[1]}]").inner_text()
    page.evaluate("getSelection().removeAllRanges()")
    page.wait_for_selector(f"tr[data-run={rows[1]}] >> text=new")


def test_a_print_has_the_time_line_as_it_is_now(opened: Open) -> None:
    page = opened("run")
    page.emulate_media(color_scheme="dark")
    page.evaluate("document.getElementById('course-place').dataset.drawn")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.locator("#course-still:visible").count() == 0
    assert page.locator("#course-canvas:visible").count() == 1
    assert page.locator("#course-live button:visible").count() == 0
