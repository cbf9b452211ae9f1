"""A real browser for the tests here, which are skipped where there is none.

They need Chromium, and Playwright.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session", autouse=True)
def chromium() -> str:
    """Where it lies: before anything else of a test is made."""
    pytest.importorskip("playwright.sync_api")
    found = next(filter(None, map(shutil.which, NAMES)), None)
    return found or pytest.skip("there is no Chromium on this machine")


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Any]:
    from playwright import sync_api as playwright

    with playwright.sync_playwright() as driver:
        # Root may not use Chromium's sandbox; the pages are our own.
        running = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield running
        running.close()
