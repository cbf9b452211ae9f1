"""What a calculator has read of a log, so that it asks only for what is new.

It lives in memory. Nothing is written to `cache_dir`, nor anywhere else: a file with a guessable
name in a shared folder can be torn, stale or somebody else's, and what it held would be believed.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.compat.ml_goodput_measurement import keys
from holdfast.compat.ml_goodput_measurement.goodput_utils import GoodputInfo, StepInfo

LastEntry = tuple[datetime.datetime | None, Any]
"""Time and id of the last entry that was read."""


class GoodputCache:
    """Entries of one job, and the last answers."""

    def __init__(
        self,
        job_name: str,
        cache_dir: str = "/tmp",  # noqa: S108 - as in the library; nothing is written there
        gcs_path: str | None = None,
    ) -> None:
        """`cache_dir` and `gcs_path` are taken for the sake of callers, and not used."""
        del cache_dir, gcs_path
        self._job_name = job_name
        self._entries: list[Mapping[str, Any]] = []
        self._begin()

    def _begin(self) -> None:
        self._entries = []
        self._last_entry_info: LastEntry | None = None
        self._goodput_info: GoodputInfo | None = None
        self._step_info: StepInfo | None = None
        self._job_start_time: datetime.datetime | None = None
        self._job_end_time: datetime.datetime | None = None

    def update_cached_entries(
        self, entries: Sequence[Mapping[str, Any]], last_entry_info: LastEntry | None
    ) -> None:
        """Append entries, in the log's order."""
        self._entries.extend(entries)
        for entry in entries:
            if self._job_start_time is None and keys.JOB_START in entry:
                self._job_start_time = _moment(entry[keys.JOB_START])
            if keys.JOB_END in entry:
                self._job_end_time = _moment(entry[keys.JOB_END])
        if last_entry_info and last_entry_info[0] is not None:
            self.update_last_entry_info(last_entry_info)

    def update_last_entry_info(self, last_entry_info: LastEntry) -> None:
        """Remember where the log was left."""
        self._last_entry_info = last_entry_info

    def update_goodput_info(self, goodput_info: GoodputInfo) -> None:
        """Remember an answer."""
        self._goodput_info = goodput_info

    def update_step_info(self, step_info: StepInfo) -> None:
        """Remember the steps' deviations."""
        self._step_info = step_info

    def get_cached_entries(self) -> list[Any]:
        """All entries so far."""
        return list(self._entries)

    def get_step_entries(self) -> list[Any]:
        """Those that record a step."""
        return [entry for entry in self._entries if keys.STEP_START in entry]

    def get_goodput_info(self) -> GoodputInfo | None:
        """The last answer."""
        return self._goodput_info

    def get_step_info(self) -> StepInfo | None:
        """The last deviations."""
        return self._step_info

    def get_job_start_time(self) -> datetime.datetime | None:
        """When the job was first started."""
        return self._job_start_time

    def get_job_end_time(self) -> datetime.datetime | None:
        """When it last ended."""
        return self._job_end_time

    def get_last_entry_info(self) -> LastEntry | None:
        """Where the log was left."""
        return self._last_entry_info

    def sync_to_gcs(self) -> None:
        """Nothing: the entries are where they were read, and the answers follow from them."""

    def clear_cache(self) -> None:
        """Forget everything."""
        self._begin()

    def is_cache_empty(self) -> bool:
        """Whether no entry was read yet."""
        return not self._entries


def _moment(unix_s: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(unix_s, tz=datetime.UTC)
