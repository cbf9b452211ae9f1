"""Google Cloud Monitoring: the metrics and labels of ml-goodput-measurement 0.2.3.

Cumulative ones are in seconds, those of a rolling window in percent, as that library sends them; so
are the resource, `compute.googleapis.com/Workload`, and its labels. `holdfast-ml[gcp-export]`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from holdfast.config import ask_metadata_directly
from holdfast.core.ledger.summary import ROLLING_S
from holdfast.errors import ConfigurationError, needs_extra
from holdfast.export.asked import Gcp
from holdfast.export.familiar import percent_of
from holdfast.export.outlet import ExportLook
from holdfast.export.sample import Sample
from holdfast.export.time_series import (
    Point,
    Sender,
    cumulative,
    interval,
    resource_labels,
    series_of,
)

GOODPUT_SOURCE = "TOTAL"
EVERY_S, LEAST_S = 60.0, 10.0  # the API takes a point of a series no more often than each 5 s


class CloudMonitoring:
    """Sends points. `make_client` gives a `monitoring_v3.MetricServiceClient`."""

    name = "gcp-monitoring"

    def __init__(self, gcp: Gcp, make_client: Callable[[], Any] | None = None) -> None:
        """Raises ConfigurationError without the library."""
        try:
            from google.cloud import monitoring_v3
        except ImportError:
            raise ConfigurationError(needs_extra("the exporter gcp needs", "gcp-export")) from None
        ask_metadata_directly()
        self._gcp = gcp
        self._sender = Sender(gcp.project, make_client or monitoring_v3.MetricServiceClient)

    def deliver(self, look: ExportLook) -> None:
        """Send everything; raises what the client does."""
        self._sender.send([one for sample in look.samples for one in self._series(sample)])

    def close(self) -> None:
        """Let go of the connection."""
        self._sender.close()

    def _series(self, sample: Sample) -> Iterator[Any]:
        resource = resource_labels(self._gcp.zone, sample.run.name)
        for point in points(sample, self._gcp.accelerator):
            yield series_of(point, sample.at_s, resource)


def points(sample: Sample, accelerator: str) -> Iterator[Point]:
    """All metrics of a run; nothing of one that has recorded nothing."""
    elapsed_s = sample.elapsed_s()
    if not elapsed_s:
        return
    labels = {"accelerator_type": accelerator}
    yield from cumulative(
        labels,
        {GOODPUT_SOURCE: sample.productive_s()},
        sample.badput_by_type_s(),
        len(sample.run.spent().losses),
        sample.run.step or 0,
        elapsed_s,
        sample.run.step_s(),
    )
    for window, size_s in ROLLING_S.items():
        if within_s := sample.elapsed_s(window):
            goodput = {GOODPUT_SOURCE: percent_of(sample.productive_s(window), within_s)}
            lost = sample.badput_by_type_s(window).items()
            badput = {kind: percent_of(seconds, within_s) for kind, seconds in lost}
            yield from interval(labels, size_s, goodput, badput)
