"""Doing something the moment a framework is there: at once, or as soon as the script imports it.

The session imports no framework, and most scripts call `holdfast.start` after their imports. Some
call it first; what must be in place before the framework's first use then waits for its import.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from holdfast.session.hooks import Guard


def upon_import(name: str, act: Callable[[], None], loss: str) -> Callable[[], None]:
    """Call `act` once, when the top-level module `name` is imported; gives what calls it off.

    At once if it is there. An `act` that raises costs what it is for (`loss`), not the import.
    """
    act = Guard(act, loss)
    if name in sys.modules:
        act()
        return lambda: None
    finder = _Finder(name, act)
    sys.meta_path.insert(0, finder)
    return finder.remove


class _Finder:
    """Finds nothing itself; has the module's own loader tell when it is done.

    It is not derived from `importlib.abc.MetaPathFinder`, whose import takes 10 ms.
    """

    def __init__(self, name: str, act: Callable[[], None]) -> None:
        self._name = name
        self._act = act

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - the protocol's
        target: ModuleType | None = None,  # noqa: ARG002 - the protocol's
    ) -> importlib.machinery.ModuleSpec | None:
        """None, but for the one module that is waited for."""
        if fullname != self._name:
            return None
        self.remove()
        spec = importlib.util.find_spec(fullname)
        loader: Any = None if spec is None else spec.loader
        if hasattr(loader, "exec_module"):
            load = loader.exec_module

            def load_and_act(*args: Any, **kwargs: Any) -> Any:
                result = load(*args, **kwargs)
                self._act()
                return result

            loader.exec_module = load_and_act
        return spec

    def remove(self) -> None:
        """Look out for it no longer."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
