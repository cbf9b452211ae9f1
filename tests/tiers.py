"""The three tiers of tests (CONTRIBUTING.md says what each is for), and the guard of the first.

A test is virtual unless it, its class or its module is marked `contract` or `real`; the mark that
is nearest to the test counts. `--tier` runs one tier.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import pytest

_CONTRACT, _REAL, VIRTUAL = "contract", "real", "virtual"
TIERS = (VIRTUAL, _CONTRACT, _REAL)

_STARTS = ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system")

STARTED = (
    "a virtual test started a process: mark it `real`, or ask the same of the core or of a world"
    " in virtual time (CONTRIBUTING.md, Tiers of tests)"
)
SLEPT = (
    "a virtual test slept on the wall clock: mark it `real`, or give it a clock of its own or an"
    " event to wait for (CONTRIBUTING.md, Tiers of tests)"
)


def tier_of(item: pytest.Item) -> str:
    if "inside" in item.path.parts:  # run by a real test, in a network namespace
        return _REAL
    marks = (mark.name for mark in item.iter_markers())
    return next((name for name in marks if name in (_CONTRACT, _REAL)), VIRTUAL)


def add_option(parser: pytest.Parser) -> None:
    parser.addoption("--tier", choices=TIERS, help="run the tests of this tier only (default: all)")


class Guard:
    """Fails what a watched test does that only a real one may do, where it does it."""

    def __init__(self) -> None:
        self.watches = False
        self._sleep = time.sleep
        sys.addaudithook(self._hear)  # it cannot be removed: it is there as long as the process
        time.sleep = self._sleep_seldom  # Python tells its audit hooks of it from 3.13 on only

    def _hear(self, event: str, _: tuple[object, ...]) -> None:
        if self.watches and event in _STARTS:
            pytest.fail(STARTED)

    def _sleep_seldom(self, seconds: float) -> None:
        if self.watches and seconds:
            pytest.fail(SLEPT)
        self._sleep(seconds)


class Tiers:
    """A plugin: leaves out the tests of other tiers, and has the virtual ones watched."""

    def __init__(self, only: str | None, guard: Guard) -> None:
        self._only = only
        self._guard = guard

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        if self._only is None:
            return
        others = [item for item in items if tier_of(item) != self._only]
        items[:] = [item for item in items if tier_of(item) == self._only]
        config.hook.pytest_deselected(items=others)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._guard.watches = tier_of(item) == VIRTUAL
        try:
            return (yield)
        finally:
            self._guard.watches = False
