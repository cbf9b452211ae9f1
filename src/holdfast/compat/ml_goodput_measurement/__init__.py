"""The face of `ml_goodput_measurement` 0.2.3, on Holdfast's journal and ledger.

Change one import, `from holdfast.compat.ml_goodput_measurement import goodput`, or none (`auto`).
Records go to a run in the local store instead of a cloud's log; what differs in the answers, and
why, stands in docs/decisions (*The goodput drop-in*).
"""

from __future__ import annotations

import importlib
from types import ModuleType

__all__ = [
    "checkpoint_badput_calculator",
    "exclusion_utils",
    "goodput",
    "goodput_cache",
    "goodput_elastic",
    "goodput_utils",
    "monitoring",
    "monitoring_elastic",
]


def __getattr__(name: str) -> ModuleType:
    """Import a module of the face when it is first asked for: recording needs one of them only."""
    if name in __all__:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
