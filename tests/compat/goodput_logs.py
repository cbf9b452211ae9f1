"""What tests of the goodput API share: a log in a list, and moments of a job's life."""

from __future__ import annotations

import datetime
from typing import Any

from holdfast.compat.ml_goodput_measurement.goodput_utils import BadputType

BORN_S = 1_704_000_000.0  # of a recorded job: long before this machine was booted


class ListLog:
    """What a user injects: entries in a list."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self._read = 0

    def write_cloud_logging_entry(self, entry: dict[str, Any]) -> None:
        self.entries.append(entry)

    def read_cloud_logging_entries(
        self, *_: Any, **__: Any
    ) -> tuple[list[dict[str, Any]], tuple[Any, str]]:
        new, self._read = self.entries[self._read :], len(self.entries)
        return new, (datetime.datetime.fromtimestamp(0, datetime.UTC), str(self._read))


def moment(at_s: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(BORN_S + at_s, datetime.UTC)


def whole(breakdown: dict[BadputType, Any]) -> float:
    """All percent of a breakdown; what is told twice, once."""
    return sum(
        sum(value.values()) if isinstance(value, dict) else value
        for kind, value in breakdown.items()
        if kind is not BadputType.DATA_LOADING_ASYNC
    )
