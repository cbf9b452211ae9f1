"""Draws run.png: the top of the page that `holdfast report --html` writes of a run under way.

A small training with two ranks is killed twice and fails once; it is seen after that.
`make browser` sets Chromium and Playwright up, and draws it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

SCRIPT = """
import os, signal, time
import numpy as np
import holdfast as hf

rank = int(os.environ["RANK"])
run = hf.start()
state = run.restore(init=lambda: np.zeros(200_000))
for step in run.steps(100_000):
    time.sleep(0.6 if step % 173 == 0 else 0.03 + 0.004 * rank)
    if rank == 1 and (run.attempt, step) in ((0, 130), (2, 390)):
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 0 and step == 300 and run.attempt == 1:
        raise ValueError("the loss is not a number")
    state += 1
    run.done(step, state)
    if rank == 0 and step == 480:
        print("seen now", flush=True)
"""
WIDTH, BELOW = 1120, 24
CALL = [sys.executable, "-m", "holdfast.cli.main"]


def write_page(folder: Path) -> Path:
    """Train until there is something to see, and write the page of it."""
    (folder / "train.py").write_text(SCRIPT)
    page = folder / "run.html"
    places = {"HOLDFAST_STORE": str(folder / "store"), "HOLDFAST_SCRATCH": str(folder / "scratch")}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, **places, "PATH": path}
    command = [*CALL, "run", "--name", "my-run", "--ranks", "2", "--", "python", "train.py"]
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        for line in running.stdout:
            if "seen now" in line:
                break
        report = [*CALL, "report", "my-run", "--html", str(page)]
        subprocess.run(report, cwd=folder, env=environment, check=True)
        subprocess.run([*CALL, "stop", "my-run"], env=environment, check=True)
        running.stdout.read()
    return page


def draw(page: Path, picture: Path) -> None:
    """A screenshot of the page as somebody sees it who opens it."""
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    program = next(filter(None, map(shutil.which, names)), None)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": WIDTH, "height": 900})
        tab.goto(page.as_uri())
        tab.wait_for_selector("#course-place[data-drawn]")
        last = tab.locator("#incidents").bounding_box()
        assert last is not None
        clip = {"x": 0, "y": 0, "width": WIDTH, "height": last["y"] + last["height"] + BELOW}
        tab.screenshot(path=picture, full_page=True, clip=clip)
        browser.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        draw(write_page(Path(folder)), Path(__file__).with_name("run.png"))
