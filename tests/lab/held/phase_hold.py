"""Holds a process where a phase of Holdfast begins, until a test lets it go on. Not a test itself.

`HELD` is a folder, and `HELD_PHASE` the phase. Once the file `armed` is there, the first process of
this environment that comes to the phase makes the file `at`, and waits for the file `go`; nobody
waits after that. It needs nothing but the standard library: each process on the host imports it.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple


class Place(NamedTuple):
    """A function of a module, or a method of one of its classes ("Class.method")."""

    module: str
    function: str


# Which call begins the phase. All other phases begin in the trainer (`held_trainer.py`).
PLACES = {
    "launch": Place("holdfast.agent.host_agent", "HostAgent._start_tree"),
    "copy": Place("holdfast.session.saver", "Saver._save_in_memory"),
    "seal": Place("holdfast.snapshot.seal", "seal_part"),
    "replicate": Place("holdfast.snapshot.part", "pull"),
    "flush": Place("holdfast.snapshot.flush", "flush_set"),
    "commit": Place("holdfast.snapshot.catalog", "Catalog.commit"),
    "stop": Place("holdfast.session.saver", "Saver.save"),
    "choose": Place("holdfast.snapshot.catalog", "Catalog.look"),
    "restore": Place("holdfast.session.restore", "_read"),
}
LOOK_S = 0.002


def reached(phase: str) -> None:
    """Wait here, if the phase is held and nobody has come to it before."""
    folder = os.environ.get("HELD")
    if folder is None or os.environ.get("HELD_PHASE") != phase:
        return
    if not Path(folder, "armed").exists():
        return
    try:
        os.close(os.open(Path(folder, "at"), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return
    while not Path(folder, "go").exists():
        time.sleep(LOOK_S)


def install() -> None:
    """Hold the phase of this environment, if it begins in a function of ours."""
    place = PLACES.get(os.environ.get("HELD_PHASE", ""))
    if place is None or "HELD" not in os.environ:
        return
    if place.module in sys.modules:
        _hook(sys.modules[place.module], place)
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder(place))


def _hook(module: ModuleType, place: Place) -> None:
    *inside, name = place.function.split(".")
    owner: Any = functools.reduce(getattr, inside, module)
    function: Callable[..., Any] = getattr(owner, name)
    if hasattr(function, "__wrapped__"):
        return  # it is hooked

    @functools.wraps(function)
    def held(*args: Any, **keywords: Any) -> Any:
        reached(os.environ["HELD_PHASE"])
        return function(*args, **keywords)

    setattr(owner, name, held)


class _Finder(importlib.abc.MetaPathFinder):
    """Hooks the module as soon as it is loaded, before anybody has taken the function from it."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self._place.module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def and_hook(module: ModuleType) -> None:
            execute(module)
            _hook(module, self._place)

        spec.loader.exec_module = and_hook  # type: ignore[method-assign]
        return spec
