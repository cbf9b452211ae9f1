"""Holdfast keeps long training runs productive, and accounts for every second of them.

import holdfast as hf

run = hf.start()
data = run.data(make_iterator())
state = run.restore(init=init)
for step in run.steps(100_000):
    state, loss = train_step(state, next(data))
    run.done(step, state, ready=loss)

Everything is imported at its first use: `import holdfast` costs a few milliseconds.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.errors import (
        ConfigurationError,
        DataTopologyChanged,
        DeclaredFailure,
        HoldfastError,
        NoGoodCheckpoint,
        StateMismatch,
        StepOrderError,
        Stop,
        StoreUnavailable,
        Unstorable,
    )
    from holdfast.report.look import Look, look
    from holdfast.session.framework_loop import Due, FrameworkLoop
    from holdfast.session.load import load
    from holdfast.session.run import Run
    from holdfast.session.start import start
    from holdfast.snapshot.keep import Keep

__version__ = "0.1.0"

_HOMES = {
    "ConfigurationError": "holdfast.errors",
    "DataTopologyChanged": "holdfast.errors",
    "DeclaredFailure": "holdfast.errors",
    "HoldfastError": "holdfast.errors",
    "NoGoodCheckpoint": "holdfast.errors",
    "StateMismatch": "holdfast.errors",
    "StepOrderError": "holdfast.errors",
    "Stop": "holdfast.errors",
    "StoreUnavailable": "holdfast.errors",
    "Unstorable": "holdfast.errors",
    "Due": "holdfast.session.framework_loop",
    "FrameworkLoop": "holdfast.session.framework_loop",
    "Keep": "holdfast.snapshot.keep",
    "Look": "holdfast.report.look",
    "Run": "holdfast.session.run",
    "load": "holdfast.session.load",
    "look": "holdfast.report.look",
    "start": "holdfast.session.start",
}

__all__ = [
    "ConfigurationError",
    "DataTopologyChanged",
    "DeclaredFailure",
    "Due",
    "FrameworkLoop",
    "HoldfastError",
    "Keep",
    "Look",
    "NoGoodCheckpoint",
    "Run",
    "StateMismatch",
    "StepOrderError",
    "Stop",
    "StoreUnavailable",
    "Unstorable",
    "load",
    "look",
    "start",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
