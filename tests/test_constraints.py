"""The pinned versions: all that we install is pinned, and nothing says where to install it from."""

from __future__ import annotations

import contextlib
import re
import tomllib
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
OURS = "holdfast-ml"
LINES = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line]

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
# Read from pyproject.toml, since what is installed of ourselves may be older.
ROOTS = [
    *PROJECT["project"]["dependencies"],
    *(need for needs in PROJECT["project"]["optional-dependencies"].values() for need in needs),
    *PROJECT["dependency-groups"]["test"],
]


def needed() -> set[str]:
    """Names of the installed packages that we and the tests need, directly or not."""
    found: set[str] = set()
    todo = [(text, frozenset[str]()) for text in ROOTS if not text.startswith(f"{OURS}[")]
    seen = set()
    while todo:
        text, wanted = todo.pop()
        need = Requirement(text)
        node = (canonicalize_name(need.name), frozenset(need.extras))
        if need.marker is not None and not any(
            need.marker.evaluate({"extra": extra}) for extra in wanted | {""}
        ):
            continue
        if node not in seen:
            seen.add(node)
            found.add(node[0])
            with contextlib.suppress(PackageNotFoundError):  # another platform's, or Python's
                todo += [(more, node[1]) for more in requires(node[0]) or []]
    return found


@pytest.mark.parametrize(
    "path",
    [
        "constraints.txt",
        "tests/adapters/constraints-keras.txt",
        "tests/adapters/constraints-pax.txt",
        "tests/engines/constraints-ray.txt",
    ],
)
def test_lines_are_names_and_versions_only(path: str) -> None:
    lines = [line for line in (ROOT / path).read_text().splitlines() if line[:1] not in ("", "#")]
    assert [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.]+", line)] == []
    assert sorted(lines, key=str.lower) == lines


def test_everything_installed_for_the_tests_is_pinned_to_what_is_installed() -> None:
    pinned = {canonicalize_name(n): v for n, v in (line.split("==") for line in LINES)}
    wrong = {}
    for name in needed():
        try:
            installed = version(name).split("+")[0]
        except PackageNotFoundError:  # needed elsewhere: another platform or Python
            continue
        if pinned.get(name) != installed:
            wrong[name] = (pinned.get(name), installed)
    assert wrong == {}


def test_no_build_file_names_a_registry() -> None:
    ours = ("pyproject.toml", "constraints.txt", "Makefile")
    for name in (*ours, ".ci/run", ".ci/venv", ".ci/group"):
        assert "://" not in (ROOT / name).read_text(), name
