"""One class name means one thing: whoever reads `Seal` need not ask which."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

SRC = Path(__file__).parents[1] / "src" / "holdfast"
RUN_ALONE = ("campaign", "sitecustomize")  # scripts, each in a process of its own


def used_twice() -> dict[str, list[str]]:
    """Class names that more than one module defines, and where."""
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SRC.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path.relative_to(SRC)}:{node.lineno}")
    return {name: where for name, where in places.items() if len(where) > 1}


def test_no_class_name_means_two_things() -> None:
    assert not used_twice(), f"name them for what each of them is: {used_twice()}"


def test_no_two_modules_of_the_tests_have_one_name() -> None:
    """They are imported by their bare names: the one that was loaded first would be both."""
    tests = Path(__file__).parent
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted(tests.rglob("*.py")):
        is_run_by_itself = path.stem in RUN_ALONE or "inside" in path.parts
        if not (path.stem.startswith(("test_", "conftest")) or is_run_by_itself):
            places[path.stem].append(str(path.relative_to(tests)))
    assert not {name: where for name, where in places.items() if len(where) > 1}
