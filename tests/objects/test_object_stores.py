"""Object stores, tested in a network namespace of their own: who strays is stopped at once.

The cases are in `inside/`. pytest runs them there in a process of its own, once; here each of them
is looked up by its name.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest

INSIDE = Path(__file__).with_name("inside")
ROOT = Path(__file__).parents[2]
LIMIT_S = 540
FILES = sorted(INSIDE.glob("cases_*.py"))

pytest.importorskip("obstore")
pytest.importorskip("moto")


def cases() -> Iterator[tuple[Path, str]]:
    for path in FILES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                yield path, node.name


def unshared(command: list[str]) -> list[str]:
    """The command in a namespace that has nothing but a loopback."""
    who = [] if os.geteuid() == 0 else ["--map-root-user"]
    return ["unshare", *who, "--net", sys.executable, str(INSIDE / "loopback.py"), *command]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, dict[str, str]]:
    try:
        subprocess.run(unshared(["true"]), capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no network namespace can be made here")
    return {path: run(path, tmp_path_factory.mktemp(path.stem)) for path in FILES}


def run(path: Path, folder: Path) -> dict[str, str]:
    """What came of the cases of one file: their failures' text by name, empty if they passed."""
    report = folder / "report.xml"
    options = ["-p", "no:cacheprovider", "-p", "no:xdist", "-q", f"--junitxml={report}"]
    command = [sys.executable, "-m", "pytest", *options, f"--basetemp={folder / 'base'}", str(path)]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    done = subprocess.run(
        unshared(command),
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
        trouble = [*case.iter("failure"), *case.iter("error"), *case.iter("skipped")]
        words = "\n".join(f"{case.get('name')}: {one.text}" for one in trouble)
        found[name] = "\n".join(filter(None, (found.get(name, ""), words)))
    return found


@pytest.mark.parametrize(
    ("path", "name"), [pytest.param(*case, id=f"{case[0].stem}-{case[1]}") for case in cases()]
)
def test_in_a_namespace(path: Path, name: str, outcomes: dict[Path, dict[str, str]]) -> None:
    outcome = outcomes[path].get(name, "it did not run")
    assert outcome == "", outcome
