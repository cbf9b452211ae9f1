"""The library's own tests, from its wheel, against our face: all but those on our list pass.

The wheel is installed without what it needs, and nothing of it is imported but its tests. Of them
these six files touch no cloud client and no private name.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytestmark = pytest.mark.real

FILES = (
    "checkpoint_badput_calculator_test.py",
    "exclusion_utils_test.py",
    "goodput_cache_test.py",
    "goodput_elastic_test.py",
    "goodput_test.py",
    "goodput_utils_test.py",
)
VERSION = "0.2.3"
TESTS = 71
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "goodput-api.md"
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory) -> dict[str, bool]:
    """Test → whether it passed."""
    wheel = importlib.metadata.distribution("ml-goodput-measurement")
    assert wheel.version == VERSION
    folder = tmp_path_factory.mktemp("peer")
    for file in wheel.files or ():
        if file.name in FILES:
            shutil.copy(str(file.locate()), folder)
    shutil.copy(HERE / "peer_conftest.py", folder / "conftest.py")
    report = folder / "report.xml"
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist",
         "--rootdir", str(folder), "-c", os.devnull, f"--junitxml={report}", *FILES],
        cwd=folder,
        env={**os.environ, "HOLDFAST_STORE": str(folder / "store")},
        capture_output=True,
        timeout=300,
    )  # fmt: skip
    cases = ElementTree.parse(report).getroot().iter("testcase")
    return {
        f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name')}": len(case) == 0
        for case in cases
    }


def exceptions() -> list[str]:
    """The tests that the page says must not pass."""
    text = PAGE.read_text()
    table = text[text.index("## Tests that must not pass") :]
    return re.findall(r"^\| `(\w+\.\w+)` \|", table, re.MULTILINE)


def test_all_of_its_tests_ran(outcomes) -> None:
    assert len(outcomes) == TESTS


def test_those_and_only_those_fail_that_pin_a_wrong_answer(outcomes) -> None:
    failed = sorted(name for name, passed in outcomes.items() if not passed)
    assert failed == sorted(exceptions())
    assert len(failed) == 1
