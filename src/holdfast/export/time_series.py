"""Time series of Google Cloud Monitoring: messages, and who sends them. `holdfast-ml[gcp-export]`.

The prefix of metrics, the resource and its labels are those of ml-goodput-measurement 0.2.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

METRIC = "compute.googleapis.com/workload/"
RESOURCE = "compute.googleapis.com/Workload"
REPLICA = "0"
MOST_SERIES = 200  # that one request may hold
TIMEOUT_S = 20.0
_INTEGERS = ("disruptions", "max_productive_steps")  # a metric's points are all of one type


class Point(NamedTuple):
    """One value of one metric; `labels` without those that all have."""

    metric: str
    labels: dict[str, str]
    value: float | int


def cumulative(
    labels: Mapping[str, str],
    productive_s: Mapping[str, float],
    badput_s: Mapping[str, float],
    disruptions: int,
    step: int,
    elapsed_s: float,
    step_s: float | None,
) -> Iterator[Point]:
    """A run since its start; the first two mappings by the library's types."""
    window = {**labels, "window_type": "cumulative"}
    for source, seconds in productive_s.items():
        yield Point("goodput_time", {"goodput_source": source, **labels}, seconds)
    for source, seconds in badput_s.items():
        yield Point("badput_time", {"badput_source": source, **labels}, seconds)
    yield Point("disruptions", window, disruptions)
    yield Point("max_productive_steps", {**labels}, step)
    yield Point("total_elapsed_time", window, elapsed_s)
    if step_s is not None:
        yield Point("performance", {}, step_s)


def interval(
    labels: Mapping[str, str],
    size_s: int,
    goodput: Mapping[str, float],
    badput: Mapping[str, float],
) -> Iterator[Point]:
    """A rolling window, in percent of it."""
    sized = {**labels, "rolling_window_size": str(size_s)}
    for source, percent in goodput.items():
        yield Point("interval_goodput", {"goodput_source": source, **sized}, percent)
    for source, percent in badput.items():
        yield Point("interval_badput", {"badput_source": source, **sized}, percent)


class Sender:
    """Sends series to a project. `make_client` gives a `monitoring_v3.MetricServiceClient`."""

    def __init__(self, project: str, make_client: Callable[[], Any]) -> None:
        self._project = project
        self._make = make_client
        self._client: Any = None

    def send(self, series: Sequence[Any]) -> None:
        """In as few requests as they fit in; raises what the client does."""
        if self._client is None:
            self._client = self._make()  # asks for credentials, which may take its time
        for first in range(0, len(series), MOST_SERIES):
            self._client.create_time_series(
                name=f"projects/{self._project}",
                time_series=series[first : first + MOST_SERIES],
                timeout=TIMEOUT_S,
            )

    def close(self) -> None:
        """Let go of the connection."""
        transport = getattr(self._client, "transport", None)
        if transport is not None:
            transport.close()


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
    if point.metric in _INTEGERS:
        value = monitoring_v3.TypedValue(int64_value=int(point.value))
    else:
        value = monitoring_v3.TypedValue(double_value=float(point.value))
    interval = monitoring_v3.TimeInterval(end_time=end_time)
    series.points.append(monitoring_v3.Point(interval=interval, value=value))
    return series
