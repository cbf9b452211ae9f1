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
    MonitoringWindowType,
    WorkloadMetricDetails,
    compute_step_deviation_from_baseline,
)
from holdfast.compat.ml_goodput_measurement.shapes import flat_badput
from holdfast.compat.ml_goodput_measurement.sinks import Target
from holdfast.errors import needs_extra
from holdfast.export.time_series import Point, Sender, resource_labels, series_of

_EFFICIENCIES = ("stepping_slice_efficiency", "available_slice_efficiency")

logger = logging.getLogger(__name__)


class GoogleCloud:
    """Sends points; each `cumulative` and each window is one request."""

    def __init__(self, target: Target, make_client: Callable[[], Any]) -> None:
        """`make_client` gives a `monitoring_v3.MetricServiceClient`."""
        self._target, self._options = target, target.gcp_options
        self._sender = Sender(target.gcp_options.project_id or "", make_client)

    @classmethod
    def of(cls, target: Target) -> GoogleCloud | None:
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

    def _cumulative(self, details: WorkloadMetricDetails) -> Iterator[tuple[str, Any, Any]]:
        window = {"window_type": MonitoringWindowType.CUMULATIVE.value}
        for kind, seconds in details["goodput_time"].items():
            yield "goodput_time", {"goodput_source": kind.name}, seconds
        for name, seconds in flat_badput(details["badput_time"]):
            if name not in ACTIVITY_EXCLUSION_LIST:
                yield "badput_time", {"badput_source": name}, seconds
        yield "disruptions", window, details["disruption_count"]
        yield "max_productive_steps", {}, details["max_productive_step"]
        yield "total_elapsed_time", window, details["total_elapsed_time"]
        yield "performance", None, details["ideal_step_time"]
        if deviations := details["step_time_deviation"]:
            yield "step_time_deviation", {}, compute_step_deviation_from_baseline(deviations)
        yield from self._efficiencies(details, "CUMULATIVE", "0")

    def _interval(self, details: IntervalWorkloadMetricDetails) -> Iterator[tuple[str, Any, Any]]:
        size = {"rolling_window_size": str(details["interval_size"])}
        for kind, percent in details["interval_goodput"].items():
            yield "interval_goodput", {"goodput_source": kind.name, **size}, percent
        for name, percent in flat_badput(details["interval_badput"]):
            if name not in ACTIVITY_EXCLUSION_LIST:
                yield "interval_badput", {"badput_source": name, **size}, percent
        yield from self._efficiencies(details, "INTERVAL", size["rolling_window_size"])

    def _efficiencies(
        self, details: Mapping[str, Any], window: str, size: str
    ) -> Iterator[tuple[str, Any, Any]]:
        if self._target.include_slice_efficiency:
            for name in _EFFICIENCIES:
                if name in details:
                    labels = {"window_type": window, "rolling_window_size": size}
                    yield name, labels, details[name]

    def _point(self, metric: str, labels: Mapping[str, str] | None, value: float | int) -> Point:
        if labels is None:  # this metric has none
            return Point(metric, {}, value)
        found = {**labels, "accelerator_type": self._options.acc_type or "UNKNOWN"}
        if self._options.cluster_name:
            found["cluster_name"] = self._options.cluster_name
        return Point(metric, found, value)

    def _send(self, told: Iterator[tuple[str, Any, Any]]) -> None:
        options, at_s = self._options, clock.unix_ns() / clock.NS_PER_S
        resource = resource_labels(
            options.location or "", self._target.job_name, options.replica_id
        )
        self._sender.send([series_of(self._point(*one), at_s, resource) for one in told])
