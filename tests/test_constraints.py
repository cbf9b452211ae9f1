"""The pinned versions: all that we install is pinned, and nothing says where to install it from."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LINES = [
    line
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if line and not line.startswith("#")
]


def needed_by(package: str, extras: set[str]) -> set[str]:
    """Names of the installed packages that `package[extras]` needs, directly or not."""
    found: set[str] = set()
    todo = [(package, frozenset(extras))]
    seen = set(todo)
    while todo:
        name, wanted = todo.pop()
        for text in requires(name) or []:
            need = Requirement(text)
            applies = any(
                need.marker is None or need.marker.evaluate({"extra": extra})
                for extra in wanted | {""}
            )
            node = (canonicalize_name(need.name), frozenset(need.extras))
            if applies and node not in seen:
                seen.add(node)
                found.add(node[0])
                todo.append(node)
    return found


def test_lines_are_names_and_versions_only() -> None:
    assert [line for line in LINES if not re.fullmatch(r"[\w.-]+==[\w.]+", line)] == []
    assert sorted(LINES, key=str.lower) == LINES


def test_everything_installed_for_the_tests_is_pinned_to_what_is_installed() -> None:
    pinned = {canonicalize_name(n): v for n, v in (line.split("==") for line in LINES)}
    wrong = {}
    extras = {"jax", "torch", "stacks", "objects", "gcp", "dashboard", "logs", "metrics", "test"}
    extras |= {"gcp-export", "serve", "tensorboard"}
    for name in needed_by("holdfast", extras):
        try:
            installed = version(name).split("+")[0]
        except PackageNotFoundError:  # needed elsewhere: another platform or Python
            continue
        if pinned.get(name) != installed:
            wrong[name] = (pinned.get(name), installed)
    assert wrong == {}


def test_no_build_file_names_a_registry() -> None:
    for name in ("pyproject.toml", "constraints.txt", "Makefile", ".ci/run", ".ci/venv"):
        assert "://" not in (ROOT / name).read_text(), name
