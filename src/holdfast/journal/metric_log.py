"""What a script told of its steps, read back from the sidecars of rank 0, attempt by attempt."""

from __future__ import annotations

import os
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.core.save.word import MAX_STEP
from holdfast.errors import JournalError
from holdfast.journal.fields import whole
from holdfast.journal.folders import attempt_folders
from holdfast.journal.layout import MAX_TIME_NS
from holdfast.journal.metric_lines import MOST_NAMES, values_of
from holdfast.journal.opened import OpenJournal
from holdfast.journal.sidecar import Payload, read_sidecar, sidecar_path

RANK_0 = "rank-00000.hfj"


@dataclass(slots=True)
class Values:
    """What an attempt told under one name, in the order of its steps. Times are unix seconds."""

    step: array[int] = field(default_factory=lambda: array("q"))
    value: array[float] = field(default_factory=lambda: array("d"))
    at_s: array[float] = field(default_factory=lambda: array("d"))

    def add(self, step: int, value: float, at_s: float) -> None:
        """One more. Of a step that is done again in the attempt the later counts."""
        while self.step and self.step[-1] >= step:
            for column in (self.step, self.value, self.at_s):
                column.pop()
        self.step.append(step)
        self.value.append(value)
        self.at_s.append(at_s)


@dataclass(slots=True)
class _Place:
    """How far a sidecar has been read, and what brings its times to unix time; None: unknown."""

    offset: int = 0
    offset_ns: int | None = None


class MetricLog:
    """Follows the numbers that rank 0 of each attempt tells."""

    def __init__(
        self, run_dir: str | os.PathLike[str], live: Mapping[Path, Path] | None = None
    ) -> None:
        """`live`: see `recorded.load_run`."""
        self._attempts = Path(run_dir) / "attempts"
        self._live = live or {}
        self._places: dict[Path, _Place] = {}
        self.by_name: dict[str, dict[int, Values]] = {}
        """By name, then by attempt."""

    def refresh(self) -> None:
        """Take in what is new; what cannot be read is not there (the run's notes tell)."""
        for number, folder in sorted(attempt_folders(self._attempts)):
            home = folder / "journal" / RANK_0
            live = self._live.get(home)
            path = live if live is not None and live.exists() else home
            place = self._places.setdefault(home, _Place())
            sidecar = sidecar_path(path)
            try:
                if sidecar.stat().st_size == place.offset:
                    continue  # as most are: those of earlier attempts
                lines, offset = read_sidecar(sidecar, place.offset)
                wanted = [line.payload for line in lines if "metrics" in line.payload]
                if wanted and place.offset_ns is None:
                    place.offset_ns = _offset_ns(path)
            except (OSError, JournalError):
                continue  # the journal may be on its way, as its text was
            place.offset = offset
            for payload in wanted:
                self._take(number, payload, place.offset_ns or 0)

    def _take(self, attempt: int, payload: Payload, offset_ns: int) -> None:
        try:
            step = whole(payload, "step", high=MAX_STEP)
            at_ns = whole(payload, "at_ns", high=MAX_TIME_NS)
        except ValueError:
            return
        for name, number in values_of(payload["metrics"]).items():
            if name in self.by_name or len(self.by_name) < MOST_NAMES:
                values = self.by_name.setdefault(name, {}).setdefault(attempt, Values())
                values.add(step, number, (at_ns + offset_ns) / 1e9)


def _offset_ns(path: Path) -> int:
    """From the boot's clock to unix time, as its first reading has it."""
    journal = OpenJournal(path)
    try:
        pairs = journal.clocks()
    finally:
        journal.close()
    return pairs[0].unix_ns - pairs[0].boottime_ns if pairs else 0
