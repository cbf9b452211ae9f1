"""The environment a standby was started with, and the one that it is woken with.

A variable may have been read when the interpreter started or a module was imported; who can say of
a library's? So any difference means a cold start, with one exception: what differs from attempt to
attempt. Of JAX's and PyTorch's modules none reads these at import (a test looks), and should
another do it, that is seen, and the variable counts like all others.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

PREFIX = "HOLDFAST_"
MAY_DIFFER = frozenset(
    [
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "JAX_COORDINATOR_ADDRESS",
        "JAX_NUM_PROCESSES",
        "JAX_PROCESS_ID",
    ]
)


# Modules that go through all variables and use none of the attempt's: tqdm, which torch imports
# where it is installed, takes those whose names begin with TQDM_, and fsspec those with FSSPEC_.
# The standard library's wsgiref, which grain imports with prometheus_client, keeps all for the
# requests that it may serve: it is made to read them again.
WSGIREF = "wsgiref.handlers"
GO_THROUGH_ALL = frozenset(["tqdm.utils", "fsspec.config", WSGIREF])


def may_differ(name: str) -> bool:
    """Whether a variable belongs to the attempt."""
    return name in MAY_DIFFER or name.startswith(PREFIX)


def _goes_through_all(frame: Any) -> bool:
    """Whether the one who asks, behind the mapping's own methods, is such a module."""
    while frame is not None and frame.f_globals.get("__name__") in ("os", "collections.abc"):
        frame = frame.f_back
    return frame is not None and frame.f_globals.get("__name__") in GO_THROUGH_ALL


class VariableReads:
    """`reads`: the attempt's variables that some import has asked for."""

    def __init__(self) -> None:
        self._spawned = dict(os.environ)
        self._folder = os.getcwd()
        self.reads: set[str] = set()

    def __enter__(self) -> VariableReads:
        """While modules are imported: see what they ask for."""
        kind: Any = type(os.environ)
        self._getitem = kind.__getitem__
        getitem, reads = self._getitem, self.reads

        def watched(environ: Any, key: Any) -> Any:
            name = os.fsdecode(key) if isinstance(key, str | bytes) else ""
            if may_differ(name) and not _goes_through_all(sys._getframe(1)):
                reads.add(name)
            return getitem(environ, key)

        kind.__getitem__ = watched
        return self

    def __exit__(self, *_: object) -> None:
        kind: Any = type(os.environ)
        kind.__getitem__ = self._getitem

    def difference(self, env: Mapping[str, str], folder: str) -> str:
        """Why nothing that was imported in the one can be used in the other; empty: it can."""
        for name in sorted(self._spawned.keys() | env.keys()):
            if self._spawned.get(name) == env.get(name):
                continue
            if not may_differ(name):
                return f"the variable {name} is another than when the standby was started"
            if name in self.reads:
                return f"an imported module has read the variable {name}, which is another now"
        if self._folder != folder:
            return "the working folder is another than when the standby was started"
        return ""

    def become(self, env: Mapping[str, str], folder: str) -> None:
        """Take over what differs. What imports have set themselves stays, as it would have."""
        os.chdir(folder)  # the same name, perhaps a new folder
        for name in self._spawned.keys() - env.keys():
            os.environ.pop(name, None)
        for name, value in env.items():
            if self._spawned.get(name) != value:
                os.environ[name] = value
        if (handlers := sys.modules.get(WSGIREF)) is not None:
            handlers.BaseHandler.os_environ = handlers.read_environ()
