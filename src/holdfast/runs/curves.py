"""The script's own numbers as curves over its steps: what was kept, and what was lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from holdfast.journal.facts.rank_steps import Ints
from holdfast.journal.metric_log import MetricLog, Values
from holdfast.journal.recorded import RecordedLedger

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Points:
    """Values by step, steps rising, each of an attempt; `at_s` is unix time."""

    attempt: Ints
    step: Ints
    value: Floats
    at_s: Floats

    def __len__(self) -> int:
        return len(self.step)

    @property
    def finite(self) -> npt.NDArray[np.bool_]:
        """Which of the values are numbers that can be drawn."""
        return np.isfinite(self.value)


@dataclass(frozen=True, slots=True)
class Curve:
    """A number by its name: of the steps that were kept, and by attempt of those that were lost."""

    name: str
    kept: Points
    lost: tuple[Points, ...]

    def to_json(self) -> dict[str, Any]:
        """Its last value, and between which it was; None: there is none."""
        kept, finite = self.kept, self.kept.value[self.kept.finite]
        return {
            "step": int(kept.step[-1]) if len(kept) else None,
            "value": _plain(kept.value[-1]) if len(kept) else None,
            "least": float(finite.min()) if len(finite) else None,
            "greatest": float(finite.max()) if len(finite) else None,
            "values": len(kept),
            "not_finite": len(kept) - len(finite),
            "lost": sum(map(len, self.lost)),
        }


def curves(recorded: RecordedLedger, now_ns: int | None) -> tuple[Curve, ...]:
    """Of all names, in the order in which the script told them first."""
    recorded.metrics.refresh()
    if not recorded.metrics.by_name:
        return ()
    return curves_of(recorded.metrics, recorded.ledger.kept_by_attempt(now_ns))


def curves_of(log: MetricLog, kept_until: Mapping[int, int]) -> tuple[Curve, ...]:
    """`kept_until`: of each attempt the last step that was kept; of others none was."""
    found = []
    for name, by_attempt in sorted(log.by_name.items(), key=_first):
        kept, lost = [], []
        for attempt, values in sorted(by_attempt.items()):
            points = _points(attempt, values)
            cut = int(np.searchsorted(points.step, kept_until.get(attempt, 0), "right"))
            kept.append(_part(points, slice(cut)))
            lost.append(_part(points, slice(cut, None)))
        found.append(Curve(name, _joined(kept), tuple(one for one in lost if len(one))))
    return tuple(found)


def _first(item: tuple[str, Mapping[int, Values]]) -> tuple[int, int, str]:
    """When a name was told first: journals may be read in any order."""
    name, by_attempt = item
    attempt = min(by_attempt)
    return attempt, by_attempt[attempt].step[0], name


def _points(attempt: int, values: Values) -> Points:
    # Copies: the log goes on growing.
    step, value, at_s = map(np.array, (values.step, values.value, values.at_s))
    return Points(np.full(len(step), attempt), step, value, at_s)


def _part(points: Points, which: slice | Ints) -> Points:
    attempt, step, value, at_s = (getattr(points, name) for name in Points.__slots__)
    return Points(attempt[which], step[which], value[which], at_s[which])


def _joined(parts: list[Points]) -> Points:
    return Points(*(np.concatenate([getattr(p, n) for p in parts]) for n in Points.__slots__))


def _plain(value: float) -> float | str:
    """As JSON has it: what is no finite number is text."""
    return float(value) if np.isfinite(value) else repr(float(value))


def thinned(points: Points, most: int) -> Points:
    """About so many of them, the extremes of each stretch among them."""
    if len(points) <= most:
        return points
    shown = {0, len(points) - 1}
    for stretch in np.array_split(np.arange(len(points)), max(1, most // 2)):
        finite = stretch[points.finite[stretch]]
        if len(finite):
            values = points.value[finite]
            shown |= {int(finite[values.argmin()]), int(finite[values.argmax()])}
    return _part(points, np.array(sorted(shown)))
