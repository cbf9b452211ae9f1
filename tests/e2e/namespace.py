"""Cases that run in a network namespace of their own: who strays is stopped at once.

The cases of a test folder are in its `inside/`, in files `cases_*.py`. pytest runs them there in a
process of its own, once; outside, each is looked up by its name.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LIMIT_S = 540


def cases(inside: Path) -> Iterator[tuple[Path, str]]:
    """Every case there: its file and its name."""
    for path in sorted(inside.glob("cases_*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                yield path, node.name


def parameters(inside: Path) -> list[object]:
    """The same, for pytest.mark.parametrize."""
    return [pytest.param(*case, id=f"{case[0].stem}-{case[1]}") for case in cases(inside)]


def unshared(command: list[str]) -> list[str]:
    """The command in a namespace that has nothing but a loopback."""
    who = [] if os.geteuid() == 0 else ["--map-root-user"]
    return ["unshare", *who, "--net", sys.executable, str(HERE / "loopback.py"), *command]


def mirror(inside: Path, *, by_file: bool = False) -> tuple[Any, Any]:
    """A fixture, and the test that looks each case of that folder up in it: name both in a module.

    `by_file`: each file is run in a process of its own.
    """

    @pytest.fixture(scope="module", name="outcomes")
    def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
        skip_without()
        if not by_file:
            return run(inside, tmp_path_factory.mktemp("inside"))
        return {
            f"{path.stem}-{name}": words
            for path in sorted(inside.glob("cases_*.py"))
            for name, words in run(path, tmp_path_factory.mktemp(path.stem)).items()
        }

    @pytest.mark.parametrize(("path", "name"), parameters(inside))
    def test_in_a_namespace(path: Path, name: str, outcomes: dict[str, str]) -> None:
        outcome = outcomes.get(f"{path.stem}-{name}", "it did not run")
        assert outcome == "", outcome

    return outcomes, test_in_a_namespace


def skip_without() -> None:
    """Skip the test where no namespace can be made."""
    try:
        subprocess.run(unshared(["true"]), capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no network namespace can be made here")


def run(path: Path, folder: Path) -> dict[str, str]:
    """What came of the cases of a file, or of a folder: their failures' text, "" if they passed.

    By name for a file, by `FILE-NAME` for a folder; `folder` is theirs to write in.
    """
    report = folder / "report.xml"
    options = ["-p", "no:cacheprovider", "-p", "no:xdist", "-q", f"--junitxml={report}"]
    files = sorted(path.glob("cases_*.py")) if path.is_dir() else [path]
    places = [f"--basetemp={folder / 'base'}", *map(str, files)]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    done = subprocess.run(
        unshared([sys.executable, "-m", "pytest", *options, *places]),
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if not report.exists():
        pytest.fail(f"the cases of {path.name} did not run:\n{done.stdout}\n{done.stderr}")
    found: dict[str, str] = {}
    for case in ET.parse(report).iter("testcase"):
        name = case.get("name", "").partition("[")[0]
        if path.is_dir():
            name = f"{case.get('classname', '').rpartition('.')[2]}-{name}"
        trouble = [*case.iter("failure"), *case.iter("error"), *case.iter("skipped")]
        words = "\n".join(f"{case.get('name')}: {one.text}" for one in trouble)
        found[name] = "\n".join(filter(None, (found.get(name, ""), words)))
    return found
