"""A monitor's numbers to Google Cloud Monitoring, under the library's metrics and labels.

Only where the options name a project and a location: nobody is asked where this machine is. Needs
`holdfast-ml[gcp-export]`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from holdfast.compat.ml_goodput_measurement import clock
from holdfast.compat.ml_goodput_measurement.goodput_utils import (
    ACTIVITY_EXCLUSION_LIST,
    BadputType,
    BadputValue,
    IntervalWorkloadMetricDetails,
    WorkloadMetricDetails,
    compute_step_deviation_from_baseline,
)
from holdfast.compat.ml_goodput_measurement.shapes import flat_badput
from holdfast.compat.ml_goodput_measurement.sinks import SinkTarget
from holdfast.errors import needs_extra
from holdfast.export import time_series
from holdfast.export.time_series import Point, Sender, resource_labels, series_of

_EFFICIENCIES = ("stepping_slice_efficiency", "available_slice_efficiency")

logger = logging.getLogger(__name__)


class GoogleCloud:
    """Sends points; each `cumulative` and each window is one request."""

    def __init__(self, target: SinkTarget, make_client: Callable[[], Any]) -> None:
        """`make_client` gives a `monitoring_v3.MetricServiceClient`."""
        self._target, self._options = target, target.gcp_options
        self._sender = Sender(target.gcp_options.project_id or "", make_client)

    @classmethod
    def of(cls, target: SinkTarget) -> GoogleCloud | None:
        """None unless the options ask for it, and the library is there."""
        options = target.gcp_options
        wanted = options.enable_gcp_goodput_metrics and options.project_id and options.location
        if not wanted:
            return None
        try:
            from google.cloud import monitoring_v3
        except ImportError:
            logger.warning(
                "job %s is not told: %s",
                target.job_name,
                needs_extra("Google Cloud Monitoring needs", "gcp-export"),
            )
            return None
        return cls(target, monitoring_v3.MetricServiceClient)

    def cumulative(
        self,
        goodput: float,
        badput: Mapping[BadputType, BadputValue],
        step: int,
        details: WorkloadMetricDetails,
    ) -> None:
        """In seconds, of which the details tell."""
        del goodput, badput, step
        self._send(self._cumulative(details))

    def interval(self, details: IntervalWorkloadMetricDetails) -> None:
        """In percent of the window."""
        self._send(self._interval(details))

    def step_deviation(self, deviations: Mapping[int, float]) -> None:
        """Nothing: the deviation from the baseline is told with the cumulative numbers.

        (The library sends the mean deviation as `performance`, which is the ideal step time, too.)
        """

    def close(self) -> None:
        """Let go of the connection."""
        self._sender.close()

    def _cumulative(self, details: WorkloadMetricDetails) -> Iterator[Point]:
        labels = self._labels()
        yield from time_series.cumulative(
            labels,
            {kind.name: seconds for kind, seconds in details["goodput_time"].items()},
            _seconds_by_kind(details["badput_time"]),
            details["disruption_count"],
            details["max_productive_step"],
            details["total_elapsed_time"],
            details["ideal_step_time"],
        )
        if deviations := details["step_time_deviation"]:
            deviation = compute_step_deviation_from_baseline(deviations)
            yield Point("step_time_deviation", labels, deviation)
        yield from self._efficiencies(details, "CUMULATIVE", 0)

    def _interval(self, details: IntervalWorkloadMetricDetails) -> Iterator[Point]:
        size_s = details["interval_size"]
        goodput = {kind.name: percent for kind, percent in details["interval_goodput"].items()}
        badput = _seconds_by_kind(details["interval_badput"])
        yield from time_series.interval(self._labels(), size_s, goodput, badput)
        yield from self._efficiencies(details, "INTERVAL", size_s)

    def _efficiencies(
        self, details: Mapping[str, Any], window: str, size_s: int
    ) -> Iterator[Point]:
        size = {"window_type": window, "rolling_window_size": str(size_s)}
        for name in _EFFICIENCIES if self._target.include_slice_efficiency else ():
            if name in details:
                yield Point(name, {**self._labels(), **size}, details[name])

    def _labels(self) -> dict[str, str]:
        cluster = self._options.cluster_name
        labels = {"accelerator_type": self._options.acc_type or "UNKNOWN"}
        return {**labels, "cluster_name": cluster} if cluster else labels

    def _send(self, points: Iterator[Point]) -> None:
        options, at_s = self._options, clock.unix_ns() / clock.NS_PER_S
        resource = resource_labels(
            options.location or "", self._target.job_name, options.replica_id
        )
        self._sender.send([series_of(point, at_s, resource) for point in points])


def _seconds_by_kind(badput: Mapping[BadputType, BadputValue]) -> dict[str, float]:
    return {k: value for k, value in flat_badput(badput) if k not in ACTIVITY_EXCLUSION_LIST}
