"""The goodput API for jobs that train on with fewer slices."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.compat.ml_goodput_measurement import goodput, goodput_utils, keys

GoodputRecorder = goodput.GoodputRecorder

_JOB_NAME = keys.JOB_NAME
_ACTIVE_SLICES = keys.SLICES_ACTIVE
_TOTAL_SLICES = keys.SLICES_TOTAL
_AVAILABLE_SLICES = keys.SLICES_AVAILABLE
_ELASTIC_SLICE_COUNTS_TIMESTAMP = keys.SLICES_AT
_ELASTIC_WAIT_EVENT_TYPE = keys.ELASTIC_TYPE
_ELASTIC_WAIT_START_TIME = keys.ELASTIC_WAIT_START
_ELASTIC_WAIT_END_TIME = keys.ELASTIC_WAIT_END
_ELASTIC_REINIT_START_TIME = keys.REINIT_START
_ELASTIC_REINIT_END_TIME = keys.REINIT_END

_Moment = datetime.datetime | None
_SliceRecord = tuple[float, int, int, int]
"""From a moment on (unix seconds): slices that train, that are there, that there are."""


class ElasticGoodputRecorder(GoodputRecorder):
    """Records slices, too, and what a change of their number costs."""

    def record_elastic_slice_counts(
        self,
        active_slices: int,
        total_slices: int,
        available_slices: int,
        timestamp: _Moment = None,
    ) -> None:
        """From now on so many of all slices train, and so many are there."""
        fields = {
            keys.SLICES_ACTIVE: active_slices,
            keys.SLICES_TOTAL: total_slices,
            keys.SLICES_AVAILABLE: available_slices,
        }
        self._record(timestamp, fields, keys.SLICES_AT)

    def record_elastic_wait_start_time(self, event_type: str, start_time: _Moment = None) -> None:
        """Training waits: for slices that come back (`scale_up` in the type), or that are gone."""
        self._record(start_time, {keys.ELASTIC_TYPE: event_type}, keys.ELASTIC_WAIT_START)

    def record_elastic_wait_end_time(self, event_type: str, end_time: _Moment = None) -> None:
        """It waits no longer."""
        self._record(end_time, {keys.ELASTIC_TYPE: event_type}, keys.ELASTIC_WAIT_END)

    def record_elastic_reinit_start_time(self, start_time: _Moment = None) -> None:
        """Initialization on another number of slices begins; other initializing is part of it."""
        self._record(start_time, {}, keys.REINIT_START)

    def record_elastic_reinit_end_time(self, end_time: _Moment = None) -> None:
        """It is over."""
        self._record(end_time, {}, keys.REINIT_END)


class ElasticGoodputCalculator(goodput.GoodputCalculator):
    """Answers with the elastic badput types, and with the slices' efficiency.

    A moment on some of the slices counts as so much of a moment.
    """

    _elastic = True

    def get_job_goodput_details(self) -> goodput_utils.ElasticWorkloadMetricDetails:
        """As of any job; with the slices' efficiency if their number was recorded."""
        return self._details(None)

    def _details(self, most: int | None) -> goodput_utils.ElasticWorkloadMetricDetails:
        with self._asking:
            details: Any = super()._details(most)
            books = self._books()
            if books.requested_ns is not None and books.slices:
                start_s = books.requested_ns / 1e9
                end_s = start_s + details["total_elapsed_time"]
                details |= self._efficiency(start_s, end_s)
        return details  # type: ignore[no-any-return]

    def get_interval_metric_details(
        self, interval_start: datetime.datetime, interval_end: datetime.datetime
    ) -> goodput_utils.ElasticIntervalWorkloadMetricDetails:
        """As of any job; with the slices' efficiency if their number was recorded."""
        with self._asking:
            details: Any = super().get_interval_metric_details(interval_start, interval_end)
            if self._books(interval_end).slices:
                details |= self._efficiency(interval_start.timestamp(), interval_end.timestamp())
        return details  # type: ignore[no-any-return]

    def _efficiency(self, start_s: float, end_s: float) -> dict[str, float]:
        books = self._stored() if self._is_local else self._read_story()
        records = [(s.at_s, s.active, s.available, s.total) for s in books.slices]
        stepping, available = self._compute_time_weighted_efficiency(records, start_s, end_s)
        return {"stepping_slice_efficiency": stepping, "available_slice_efficiency": available}

    @staticmethod
    def _extract_slice_count_entries(entries: Sequence[Mapping[str, Any]]) -> list[_SliceRecord]:
        """What entries say of slices, by time."""
        return sorted(
            (
                float(entry[keys.SLICES_AT]),
                int(entry.get(keys.SLICES_ACTIVE, 0)),
                int(entry.get(keys.SLICES_AVAILABLE, 0)),
                max(1, int(entry.get(keys.SLICES_TOTAL, 1))),
            )
            for entry in entries
            if keys.SLICES_AT in entry
        )

    @staticmethod
    def _compute_time_weighted_efficiency(
        slice_records: Sequence[_SliceRecord],
        interval_start_ts: float,
        interval_end_ts: float,
    ) -> tuple[float, float]:
        """Shares of all slices that trained, and that were there, over an interval; 0 if unknown.

        Time before the first record counts as none.
        """
        whole = interval_end_ts - interval_start_ts
        if not slice_records or whole <= 0:
            return 0.0, 0.0
        stepping = available = 0.0
        bounds = [record[0] for record in slice_records[1:]] + [interval_end_ts]
        for (since, active, there, total), until in zip(slice_records, bounds, strict=True):
            length = min(until, interval_end_ts) - max(since, interval_start_ts)
            if length > 0:
                stepping += active / total * length
                available += there / total * length
        return stepping / whole, available / whole
