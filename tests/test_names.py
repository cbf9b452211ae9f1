"""One class name means one thing: whoever reads `Seal` need not ask which."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

SRC = Path(__file__).parents[1] / "src" / "holdfast"


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
