"""Whether what was imported is still what would be imported now."""

from __future__ import annotations

import importlib.machinery
import os
import sys
from importlib.machinery import PathFinder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from .command import PythonCommand
    from .learned import Libraries

Mark = tuple[int, int, int]


class Freshness:
    """The imported files as they were, and the names that imports have asked for.

    Made before the imports: a file is looked at before it is read, or one that is written
    meanwhile would be taken for what was read.
    """

    def __init__(self, libraries: Libraries) -> None:
        self._libraries = libraries
        self._marks: dict[str, Mark] = {}
        self._missing: frozenset[str] = frozenset()
        self._look([*_module_files(), *_library_folders(libraries)])

    def about_to_import(self, name: str, path: Sequence[str] | None) -> None:
        """Look at the file that this module will be read from, if it is one."""
        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.has_location and spec.origin is not None:
            self._look([spec.origin])

    def imported(self, missing: AbstractSet[str]) -> None:
        """All is imported; `missing`: names that were asked for and are not installed."""
        self._missing |= missing
        self._found = frozenset(
            name for name in sys.modules if "." not in name and name != "__main__"
        )
        self._look(_module_files())  # what others than Python's own finder have found
        is_library = [self._libraries.hold_folder(path) for path in sys.path]
        first = is_library.index(True) if True in is_library else len(is_library)
        self._in_front = sys.path[:first]
        self._behind = [path for path, yes in zip(sys.path, is_library, strict=True) if not yes]

    def _look(self, paths: Iterable[str]) -> None:
        for path in paths:
            mark = None if path in self._marks else _mark(path)
            if mark is not None:
                self._marks[path] = mark

    def change(self, command: PythonCommand, folder: str) -> str:
        """Why something must be imported anew; empty: nothing must."""
        for path, mark in self._marks.items():
            if _mark(path) != mark:
                return f"{path} has changed since the standby imported it"
        own = _script_folder(command, folder)
        for path in [*own, *self._in_front]:
            name = self._shadowed(path, self._found | self._missing)
            if name:
                return f"{path} has a module {name} of its own, which a library would import"
        for path in self._behind:
            name = self._shadowed(path, self._missing)
            if name:
                return f"{path} has a module {name}, which was missing when the standby looked"
        return ""

    def _shadowed(self, folder: str, names: AbstractSet[str]) -> str:
        """A module of one of these names in this folder that has not been imported from there."""
        try:
            entries = os.listdir(folder or ".")
        except OSError:
            return ""
        for entry in entries:
            name = entry.partition(".")[0]
            if name not in names or not _is_module(folder, entry, name in self._missing):
                continue
            file = getattr(sys.modules.get(name), "__file__", None) or ""
            if not file.startswith(os.path.join(folder, "")):
                return name
        return ""


def _module_files() -> Iterable[str]:
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str):
            yield file


def _library_folders(libraries: Libraries) -> Iterable[str]:
    """A package that is added or removed changes its folder; paths files name more folders."""
    for folder in sys.path:
        if libraries.hold_folder(folder):
            yield folder
            try:
                entries = os.listdir(folder)
            except OSError:
                continue
            yield from (os.path.join(folder, name) for name in entries if name.endswith(".pth"))


def _mark(path: str) -> Mark | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _script_folder(command: PythonCommand, folder: str) -> list[str]:
    """What CPython is about to put in front of sys.path."""
    if sys.flags.safe_path:
        return []
    if command.form != "script":
        return [folder]
    script = os.path.realpath(os.path.join(folder, command.target))
    if os.path.isdir(script):
        return [script]
    return [os.path.dirname(script)]


def _is_module(folder: str, entry: str, may_be_namespace: bool) -> bool:
    path = os.path.join(folder, entry)
    if "." not in entry:
        if not os.path.isdir(path):
            return False
        # A folder without __init__ is a package only where no other is found.
        return may_be_namespace or any(
            os.path.exists(os.path.join(path, "__init__" + suffix))
            for suffix in importlib.machinery.all_suffixes()
        )
    return entry[entry.index(".") :] in importlib.machinery.all_suffixes()
