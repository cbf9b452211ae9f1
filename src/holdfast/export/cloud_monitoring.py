"""Google Cloud Monitoring: the metrics and labels of ml-goodput-measurement 0.2.3.

Cumulative ones are in seconds, those of a rolling window in percent, as that library sends them; so
are the resource, `compute.googleapis.com/Workload`, and its labels. `holdfast[gcp-export]`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from holdfast.core.summary import ROLLING_S
from holdfast.errors import ConfigurationError, needs_extra
from holdfast.export.asked import Gcp
from holdfast.export.familiar import badput_by_type, percent_of
from holdfast.export.outlet import Look
from holdfast.export.sample import Sample

METRIC = "compute.googleapis.com/workload/"
RESOURCE = "compute.googleapis.com/Workload"
GOODPUT_SOURCE, REPLICA = "TOTAL", "0"
MOST_SERIES = 200  # that one request may hold
EVERY_S = 60.0  # the API takes a point of a series no more often than each few seconds
TIMEOUT_S = 20.0


class Point(NamedTuple):
    """One value of one metric; `labels` without those that all have."""

    metric: str
    labels: dict[str, str]
    value: float | int


class CloudMonitoring:
    """Sends points. `make_client` gives a `monitoring_v3.MetricServiceClient`."""

    name = "gcp-monitoring"

    def __init__(self, gcp: Gcp, make_client: Callable[[], Any] | None = None) -> None:
        """Raises ConfigurationError without the library."""
        try:
            from google.cloud import monitoring_v3
        except ImportError:
            raise ConfigurationError(needs_extra("the exporter gcp needs", "gcp-export")) from None
        self._gcp = gcp
        self._make = make_client or monitoring_v3.MetricServiceClient
        self._client: Any = None
        self._next_s = 0.0

    def deliver(self, look: Look) -> None:
        """At most once a minute; raises what the client does."""
        if look.began_unix_s < self._next_s:
            return
        series = [one for sample in look.samples for one in self._series(sample)]
        if self._client is None:
            self._client = self._make()  # asks for credentials, which may take its time
        for first in range(0, len(series), MOST_SERIES):
            self._client.create_time_series(
                name=f"projects/{self._gcp.project}",
                time_series=series[first : first + MOST_SERIES],
                timeout=TIMEOUT_S,
            )
        self._next_s = look.began_unix_s + EVERY_S

    def close(self) -> None:
        """Let go of the connection."""
        transport = getattr(self._client, "transport", None)
        if transport is not None:
            transport.close()

    def _series(self, sample: Sample) -> Iterator[Any]:
        resource = resource_labels(self._gcp.zone, sample.run.name)
        for point in points(sample, self._gcp.accelerator):
            yield series_of(point, sample.at_s, resource)


def resource_labels(location: str, workload: str, replica: str = REPLICA) -> dict[str, str]:
    """Whose numbers they are."""
    return {"location": location, "workload_id": workload, "replica_id": replica}


def series_of(point: Point, at_s: float, resource: Mapping[str, str]) -> Any:
    """The point as a `monitoring_v3.TimeSeries`, at a moment in unix seconds."""
    from google.cloud import monitoring_v3

    seconds = int(at_s)
    end_time = {"seconds": seconds, "nanos": int((at_s - seconds) * 1e9)}
    series = monitoring_v3.TimeSeries()
    series.metric.type = METRIC + point.metric
    series.metric.labels.update(point.labels)
    series.resource.type = RESOURCE
    series.resource.labels.update(resource)
    kind = "int64_value" if isinstance(point.value, int) else "double_value"
    series.points.append(
        monitoring_v3.Point(
            interval=monitoring_v3.TimeInterval(end_time=end_time),
            value=monitoring_v3.TypedValue(**{kind: point.value}),
        )
    )
    return series


def points(sample: Sample, accelerator: str) -> Iterator[Point]:
    """All metrics of a run; nothing of one that has recorded nothing."""
    elapsed_s = sample.elapsed_s()
    if not elapsed_s:
        return
    base = {"accelerator_type": accelerator}
    cumulative = {**base, "window_type": "cumulative"}
    source = {"goodput_source": GOODPUT_SOURCE}
    yield Point("goodput_time", {**source, **base}, sample.productive_s())
    for kind, seconds in badput_by_type(sample).items():
        yield Point("badput_time", {"badput_source": kind, **base}, seconds)
    yield Point("disruptions", cumulative, len(sample.run.spent().losses))
    yield Point("max_productive_steps", base, sample.run.step or 0)
    yield Point("total_elapsed_time", cumulative, elapsed_s)
    step_s = sample.run.step_s()
    if step_s is not None:
        yield Point("performance", {}, step_s)
    for window, size_s in ROLLING_S.items():
        within_s = sample.elapsed_s(window)
        if not within_s:
            continue
        sized = {**base, "rolling_window_size": str(size_s)}
        share = percent_of(sample.productive_s(window), within_s)
        yield Point("interval_goodput", {**source, **sized}, share)
        for kind, seconds in badput_by_type(sample, window).items():
            share = percent_of(seconds, within_s)
            yield Point("interval_badput", {"badput_source": kind, **sized}, share)
