"""`holdfast serve` in a real browser: a run is watched while it is killed and comes back.

Skipped where there is no Chromium, or Playwright is not installed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.real
LIMIT_S = 150  # generous: only a hang comes near it
EVIL = "<img src=x onerror=document.title='owned'>\x1b[31m"

TRAIN = f"""
import os, sys, time
import numpy as np
import holdfast as hf
run = hf.start()
state = run.restore(init=lambda: {{"w": np.zeros(4)}})
print({EVIL!r}, flush=True)
open(os.environ["PIDS"], "a").write(f"{{os.getpid()}}\\n")
for step in run.steps(100000):
    time.sleep(0.05)  # what a step takes: a chart of them has some width
    state["w"] += 1
    run.done(step, state)
"""


@pytest.fixture
def running(tmp_path: Path, store: Path, eventually: Any) -> Iterator[Path]:
    """A supervised run; the file gets the pid of each of its attempts."""
    pids, script = tmp_path / "pids", tmp_path / "train.py"
    script.write_text(TRAIN)
    command = [sys.executable, "-m", "holdfast.cli.main", "run", "--store", str(store),
               "--name", "watched", "--", sys.executable, str(script)]  # fmt: skip
    with (tmp_path / "out").open("wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=out, env={**os.environ, "PIDS": str(pids)}
        )
    eventually(lambda: pids.exists() and pids.read_text())
    yield pids
    process.send_signal(signal.SIGINT)
    process.wait(LIMIT_S)


@pytest.fixture
def address(store: Path, tmp_path: Path) -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast.cli.main", "serve", "--store", str(store), "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "HOLDFAST_MIRROR": str(tmp_path / "mirror")},
    )
    assert process.stderr is not None
    yield "http://" + process.stderr.readline().split("http://")[1].split()[0]
    process.send_signal(signal.SIGINT)
    assert process.wait(LIMIT_S) == 0
    process.stderr.close()


@pytest.fixture
def open_page(browser: Any, address: str) -> Iterator[Any]:
    """Opens a page; at the end its policy has refused nothing, and no script has failed.

    `address` is the link that lets one browser in; others get that one's cookie.
    """
    said: list[str] = []
    root = address.partition("login?")[0]
    first = browser.new_context()
    first.new_page().goto(address, wait_until="domcontentloaded")
    let_in = first.storage_state()

    def open_(path: str, width: int = 1280, scheme: str = "light") -> Any:
        view = {"width": width, "height": 900}
        page = browser.new_context(
            viewport=view, color_scheme=scheme, storage_state=let_in
        ).new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(root + path.lstrip("/"), wait_until="domcontentloaded")
        page.wait_for_selector("#live-state[data-is=on]")
        return page

    yield open_
    for context in browser.contexts:
        context.close()
    assert said == []


def shot(page: Any, name: str) -> None:
    """A picture to be looked at, where SHOTS names a folder."""
    if place := os.environ.get("SHOTS"):
        page.screenshot(path=f"{place}/{name}.png")


INCIDENT_IS_OPEN = "document.querySelector('#incidents .incidents details').open"
STEPS = (
    "Number((document.getElementById('goodput').textContent.match(/([\\d,]+) steps kept/)"
    " || [0, '0'])[1].replaceAll(',', ''))"
)


def test_a_run_is_watched_while_it_is_killed_and_comes_back(
    running: Path, open_page: Any, eventually: Any
) -> None:
    page = open_page("/run/watched")
    eventually(lambda: page.evaluate(f"{STEPS} >= 10"))
    first = page.evaluate(STEPS)
    eventually(lambda: page.evaluate(f"{STEPS} > {first}"))  # live, with nothing loaded anew
    page.evaluate("document.body.dataset.same = 'page'")
    page.click("#timeline details summary")
    os.kill(int(running.read_text().split()[-1]), signal.SIGKILL)
    page.wait_for_selector("#incidents .incidents details")
    shot(page, "killed")
    eventually(lambda: len(running.read_text().split()) > 1)
    eventually(
        lambda: page.evaluate("document.getElementById('head').textContent.includes('2 attempts')")
    )
    kept = page.evaluate(STEPS)
    eventually(lambda: page.evaluate(f"{STEPS} > {kept} + 5"))
    shot(page, "back")
    assert page.evaluate("document.body.dataset.same") == "page"
    assert page.evaluate("document.querySelector('#timeline details').open")
    page.click("#incidents .incidents summary")
    eventually(lambda: page.evaluate(INCIDENT_IS_OPEN))
    mark = page.evaluate("document.getElementById('head').innerText")
    eventually(lambda: page.evaluate(f"document.getElementById('head').innerText !== {mark!r}"))
    assert page.evaluate(INCIDENT_IS_OPEN)
    assert page.title() != "owned"
    for width, scheme in ((1280, "dark"), (390, "light")):
        other = open_page("/run/watched", width, scheme)
        assert other.evaluate("document.documentElement.scrollWidth") == width
        shot(other, f"run-{scheme}-{width}")


def test_the_list_by_keyboard(running: Path, open_page: Any, store: Path, eventually: Any) -> None:
    from holdfast.journal.store import RunStore

    for name in ("one", "two", "three"):
        RunStore(store).create(name)
    page = open_page("/")
    page.wait_for_selector("tr[data-run=three]")
    assert page.locator("tr[data-run] >> nth=0").get_attribute("data-run") == "watched"
    page.keyboard.press("/")
    page.keyboard.type("new thr")
    shown = "[...document.querySelectorAll('#rows tr:not([hidden])')].map(r => r.dataset.run)"
    assert page.evaluate(shown) == ["three"]
    page.keyboard.press("Enter")
    page.keyboard.press("x")
    page.keyboard.press("Escape")
    page.keyboard.press("k")
    page.keyboard.press("k")
    page.keyboard.press("k")
    page.keyboard.press("x")
    assert page.locator("#compare").is_enabled()
    step = "document.querySelector('tr[data-run=watched] [data-col=step]').textContent"
    before = page.evaluate(step)
    eventually(lambda: page.evaluate(f"{step} !== {before!r}"))
    shot(page, "list")
    shutil.rmtree(store / "one")
    page.wait_for_selector("tr[data-run=one]", state="detached")
    page.keyboard.press("c")
    page.wait_for_url("**/compare?**")
    phone = open_page("/", 390, "dark")
    assert phone.evaluate("document.documentElement.scrollWidth") == 390
    shot(phone, "list-phone")
