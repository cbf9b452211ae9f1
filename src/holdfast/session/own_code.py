"""Which loaded code is the user's, and what stands for that of installed packages.

The user's modules count by what is in their files, a package by the stamps of all of its files.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.machinery
import os
import sys
import sysconfig
import types
from collections.abc import Iterator
from pathlib import Path

_NO_CODE = ("__pycache__", "tests", "include")  # folders of a package


class UnfathomableError(Exception):
    """What the function would do cannot be told from outside; the text says why."""


@functools.cache
def _library_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return tuple({paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")})


def _file_of(module: types.ModuleType | None) -> Path | None:
    file = None if module is None else vars(module).get("__file__")  # objects that pose as modules
    return Path(file) if isinstance(file, str) else None


def is_own(module: str) -> bool:
    """Whether a module is the user's: its file is in no library folder, and it is not ours.

    Raises UnfathomableError for code that is in no file.
    """
    top = module.partition(".")[0]
    if top == "holdfast" or top in sys.stdlib_module_names:
        return False
    loaded = sys.modules.get(module)
    file = _file_of(loaded)
    if file is None:
        if hasattr(loaded, "__path__") or _is_compiled(loaded):
            return False
        raise UnfathomableError(f"the code of module {module} is in no file")
    if file.suffix != ".py":
        return False
    return not str(file).startswith(_library_folders())


def _is_compiled(module: types.ModuleType | None) -> bool:
    loader = getattr(getattr(module, "__spec__", None), "loader", None)
    return isinstance(loader, importlib.machinery.ExtensionFileLoader) or (
        loader is not None and (getattr(loader, "__name__", "") == "BuiltinImporter")
    )


def own_modules() -> Iterator[tuple[str, Path]]:
    """The user's own modules that are loaded, with their files."""
    for name, module in sorted(sys.modules.items()):
        file = _file_of(module) if isinstance(module, types.ModuleType) else None
        if file is not None and file.suffix == ".py" and is_own(name):
            yield name, file


@functools.cache
def stamps_of(package: str) -> str:
    """Sizes and time stamps of all of an installed package's code: an edit in place counts too.

    Not only of what is loaded: that differs between a first start and a restart.
    """
    file = _file_of(sys.modules.get(package))
    stamps = hashlib.sha256()
    folders = [] if file is None else [str(file.parent)]
    if file is not None and file.name != "__init__.py":  # a package of one module
        info = file.stat()
        return f"{info.st_size} {info.st_mtime_ns}"
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                if entry.is_dir():
                    if entry.name not in _NO_CODE:
                        folders.append(entry.path)
                elif entry.name.endswith((".py", ".so")):
                    info = entry.stat()
                    stamps.update(f"{entry.name} {info.st_size} {info.st_mtime_ns}\n".encode())
    return stamps.hexdigest()
