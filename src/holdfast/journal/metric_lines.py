"""The script's own numbers in a journal: a line of the sidecar for the values of a step.

`{"metrics": {"loss": 0.5, "lr": "nan"}, "step": 12, "at_ns": …}`: JSON has no name for what is no
finite number, so that is text. Who does not know these lines passes over them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from holdfast.journal.sidecar import Payload

MOST_NAMES = 64
LONGEST_NAME = 80
_UNUSUAL = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def is_name(name: object) -> bool:
    """Whether a number may be called so."""
    return type(name) is str and 0 < len(name) <= LONGEST_NAME and name.isprintable()


def line_of(step: int, values: Mapping[str, float], at_ns: int) -> Payload:
    """What is written of a step."""
    return {"metrics": as_json(values), "step": step, "at_ns": at_ns}


def as_json(values: Mapping[str, float]) -> Payload:
    """Values by name; `values_of` reads them."""
    return {name: v if math.isfinite(v) else repr(float(v)) for name, v in values.items()}


def values_of(metrics: object) -> dict[str, float]:
    """What of it are values with names."""
    named = metrics.items() if isinstance(metrics, dict) else ()
    return {
        name: v
        for name, metrics in named
        if is_name(name) and (v := number_of(metrics)) is not None
    }


def number_of(value: object) -> float | None:
    """A value of such a line; None: it is none."""
    if type(value) is str:
        return _UNUSUAL.get(value)
    try:
        return float(value) if type(value) in (int, float) else None  # type: ignore[arg-type]
    except OverflowError:
        return None
