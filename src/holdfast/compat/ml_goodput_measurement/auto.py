"""Import this module, and from here on `ml_goodput_measurement` is ours.

Code that says `from ml_goodput_measurement import goodput`, or `.src.goodput`, gets the modules of
this face, whether or not the real package is installed. Import it first: what was imported from the
real package before stays that.

Without touching the code: `PYTHONPATH=$(python -m holdfast.compat.ml_goodput_measurement path)`.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import warnings
from collections.abc import Sequence
from types import ModuleType

THEIRS = "ml_goodput_measurement"
OURS = "holdfast.compat.ml_goodput_measurement"


class _Loader(importlib.abc.Loader):
    """Gives the module of our face under their name: one object, so that patches reach both."""

    def __init__(self, ours: str) -> None:
        self._ours = ours

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        del spec
        module = importlib.import_module(self._ours)
        self._own = module.__spec__, module.__loader__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import system has put their spec in; the module keeps its own.
        module.__spec__, module.__loader__ = self._own


class Finder(importlib.abc.MetaPathFinder):
    """Finds `ml_goodput_measurement` and everything in it here."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec of a module of theirs; None for all others, and for those we do not have."""
        del path, target
        first, _, rest = fullname.partition(".")
        if first != THEIRS:
            return None
        inner = rest.removeprefix("src").removeprefix(".")
        ours = f"{OURS}.{inner}" if inner else OURS
        if importlib.util.find_spec(ours) is None:
            return None
        return importlib.machinery.ModuleSpec(fullname, _Loader(ours), is_package=not inner)


def install() -> None:
    """Put the finder first. Again: no effect."""
    if any(isinstance(finder, Finder) for finder in sys.meta_path):
        return
    real = [name for name in sys.modules if name.partition(".")[0] == THEIRS]
    for name in real:
        del sys.modules[name]
    if real:
        warnings.warn(
            f"{THEIRS} was imported before {__name__}: names taken from it stay those of the real "
            "package; import this module first",
            stacklevel=3,
        )
    sys.meta_path.insert(0, Finder())


install()
