"""One class name means one thing: whoever reads `Seal` need not ask which."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

SRC = Path(__file__).parents[1] / "src" / "holdfast"
# Names that still mean two things or more. This list only becomes shorter.
KNOWN = frozenset({
    "Announced", "Announcement", "Cause", "Clock", "Course", "Flushes", "Ending", "Entry",
    "Fault", "Heard", "Holder", "Kept", "Launch", "Life", "Look", "MakeRoom", "MemoryTier",
    "Noticed", "OpenSpan", "Outcome", "Pace", "Phase", "Plan", "Progress", "RankWords",
    "Recorded", "Release", "SaveAsked", "Saves", "Seal", "Seen", "Sink", "Standby", "StopAsked",
    "Taken", "Tally", "Target", "Tell", "Verdict", "World",
})  # fmt: skip


def used_twice() -> dict[str, list[str]]:
    """Class names that more than one module defines, and where."""
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SRC.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path.relative_to(SRC)}:{node.lineno}")
    return {name: where for name, where in places.items() if len(where) > 1}


def test_no_other_class_name_means_two_things() -> None:
    new = {name: where for name, where in used_twice().items() if name not in KNOWN}
    assert not new, f"name them for what each of them is: {new}"
