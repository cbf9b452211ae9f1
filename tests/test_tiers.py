"""The guard of the virtual tier can fail, and a test is of the tier that its marks name."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
import tiers
from failure_rate import Tally

sys.path.pop(0)

Failed = pytest.fail.Exception


@pytest.mark.parametrize(
    "start",
    [
        lambda: subprocess.run(["true"]),
        lambda: os.posix_spawn("/bin/true", ["true"], os.environ),
        lambda: os.fork() or os._exit(1),
        lambda: os.system("true"),
    ],
    ids=["Popen", "posix_spawn", "fork", "system"],
)
def test_a_process_fails_a_virtual_test(start: Any) -> None:
    with pytest.raises(Failed, match="a virtual test started a process: mark it `real`"):
        start()


def test_a_sleep_fails_a_virtual_test() -> None:
    with pytest.raises(Failed, match="a virtual test slept on the wall clock: mark it `real`"):
        time.sleep(0.001)
    time.sleep(0)  # lets other threads run, and waits for nobody


def test_code_under_test_does_not_swallow_it() -> None:
    assert not issubclass(Failed, Exception)


def marked(*names: str, path: str = "tests/core/test_x.py") -> Any:
    """A test with marks, the nearest first."""
    marks = [SimpleNamespace(name=name) for name in names]
    return SimpleNamespace(path=Path(path), iter_markers=lambda: iter(marks))


@pytest.mark.parametrize(
    ("item", "tier"),
    [
        (marked(), "virtual"),
        (marked("parametrize"), "virtual"),
        (marked("parametrize", "real"), "real"),
        (marked("contract", "real"), "contract"),
        (marked("real", "contract"), "real"),
        (marked(path="tests/objects/inside/cases_vault.py"), "real"),
    ],
)
def test_the_nearest_mark_counts(item: Any, tier: str) -> None:
    assert tiers.tier_of(item) == tier


FILE = "tests/e2e/test_x.py"
ROUND = f"""<testsuites><testsuite>
<testcase classname="tests.e2e.test_x.TestJax" name="test_a[1]" file="{FILE}"/>
<testcase classname="tests.e2e.test_x" name="test_b" file="{FILE}">{{b}}</testcase>
<testcase classname="tests.e2e.test_x" name="test_c" file="{FILE}"><skipped/></testcase>
</testsuite></testsuites>"""


def test_the_rate_of_failures_and_their_causes() -> None:
    tally = Tally()
    for b in (
        "",
        '<failure message="not true within 60 s&#10;more">a traceback</failure>',
        '<failure message="not true within 60 s">another</failure><error message="left"/>',
        "<error>OSError\nat line 3</error>",
    ):
        tally.add(ROUND.format(b=b))
    assert list(tally.lines()) == [
        "tests/e2e/test_x.py::test_b: failed 3 of 4",
        "    2 x not true within 60 s",
        "    1 x OSError",
        "3 of 8 tests failed (37.5 %), 2 different ones",
    ]
    assert tally.ran["tests/e2e/test_x.py::TestJax::test_a[1]"] == 4
