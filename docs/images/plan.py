"""Draws plan.png: the top of the page that `holdfast plan --html` writes, in a real browser.

`make browser` sets Chromium and Playwright up, and draws it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

# The fleet of docs/how-to/plan.md.
PLAN = (
    "--hosts", "2048", "--chips-per-host", "8", "--failures-per-1000-node-days", "3.79",
    "--restart", "5min", "--save-stall", "10s", "--host-share", "0.8", "--repair", "1d",
    "--reschedule", "1h", "--spares", "8",
)  # fmt: skip
WIDTH, HEIGHT = 1120, 1180
LAST = "scale"  # the chart that it ends with


def draw(page: Path, picture: Path) -> None:
    """A screenshot of the page as somebody sees it who opens it."""
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    program = next(filter(None, map(shutil.which, names)), None)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        tab.goto(page.as_uri())
        tab.wait_for_selector(f"[data-chart={LAST}][data-drawn]")
        last = tab.locator(f"figure#{LAST}").bounding_box()
        assert last is not None
        clip = {"x": 0, "y": 0, "width": WIDTH, "height": last["y"] + last["height"] + 20}
        tab.screenshot(path=picture, full_page=True, clip=clip)
        browser.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "plan.html"
        command = [sys.executable, "-m", "holdfast.cli.main", "plan", *PLAN, "--html", written]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        draw(written, Path(__file__).with_name("plan.png"))
