"""What a script will import, by its source: for a host that has not run it yet.

Nothing is executed. The sources of the script and of the modules beside it are read for the imports
that are sure to happen when it starts: not those in functions, nor under a condition. Which of
these are a library's is seen by the interpreter that imports them (`holdfast.standby.learned`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

from holdfast.standby.command import PythonCommand, read

FORMAT = 1
MAX_FILES = 1000
MAX_BYTES = 4 << 20  # of a source
RESTORE = "holdfast.snapshot.restore"
# What a library imports only when training begins, and what takes long.
LATE = {"torch": "torch._dynamo"}


def guess(argv: Sequence[str], working_directory: str) -> dict[str, object]:
    """The list that a standby imports from, as `holdfast.session.imports` writes it.

    It is empty where nothing can be read.
    """
    command = read(argv)
    names: dict[str, None] = {}
    if not isinstance(command, str):
        start = _Sources.of(command, Path(working_directory))
        names = dict.fromkeys(start.names())
    for library, late in LATE.items():
        if library in names:
            names[late] = None
    if "holdfast" in names and "numpy" in {name.partition(".")[0] for name in names}:
        names[RESTORE] = None
    return {"format": FORMAT, "restores": False, "guessed": list(names)}


class _Sources:
    """The sources that a program is made of. `folder`: where its own modules lie."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._to_read: list[tuple[str, str]] = []  # source, the package that it is in
        self._seen: set[Path] = set()

    @classmethod
    def of(cls, command: PythonCommand, working_directory: Path) -> _Sources:
        """Those that the command begins with."""
        if command.form == "script":
            path = working_directory / command.target
            found = cls(path.parent)
            found._add(path, "")
        else:
            found = cls(working_directory)
            if command.form == "code":
                found._to_read.append((command.target, ""))
            elif not found._add_local(f"{command.target}.__main__"):
                found._add_local(command.target)
        return found

    def names(self) -> Iterator[str]:
        """What they import that is none of their own, in order."""
        while self._to_read:
            source, package = self._to_read.pop(0)
            for name in _imported(source, package):
                if not self._add_local(name):
                    yield name

    def _add_local(self, name: str) -> bool:
        """Whether there is such a module beside the script; its source is to be read, too."""
        parts = name.split(".")
        place = self._folder.joinpath(*parts)
        for path, package in (
            (place / "__init__.py", name),
            (place.with_name(f"{parts[-1]}.py"), ".".join(parts[:-1])),
        ):
            if self._add(path, package):
                return True
        # Part of a local module: `import model.layers` where model.py is a file.
        return len(parts) > 1 and self._add_local(".".join(parts[:-1]))

    def _add(self, path: Path, package: str) -> bool:
        if path in self._seen:
            return True
        try:
            if len(self._seen) >= MAX_FILES or path.stat().st_size > MAX_BYTES:
                return False
            source = path.read_text(encoding="utf-8")
        except (OSError, ValueError):
            return False
        self._seen.add(path)
        self._to_read.append((source, package))
        return True


def _imported(source: str, package: str) -> Iterator[str]:
    """The modules that a source imports as it is executed from its beginning."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    to_look_at: list[ast.stmt] = list(body)
    while to_look_at:
        statement = to_look_at.pop(0)
        if isinstance(statement, ast.Import):
            yield from (one.name for one in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            yield from _from(statement, package)
        elif isinstance(statement, ast.Try | ast.With):
            to_look_at[:0] = statement.body


def _from(statement: ast.ImportFrom, package: str) -> Iterator[str]:
    """`from a import b`: whether b is a module of a, only a can tell; ours are looked for."""
    name = statement.module or ""
    if statement.level:
        above = package.split(".")[: len(package.split(".")) - statement.level + 1]
        base = ".".join([*above, name] if name else above)
        yield from (f"{base}.{one.name}" for one in statement.names)
    elif name != "__future__":
        yield name
