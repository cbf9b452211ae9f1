"""Prometheus: the last look's numbers, served on loopback, or as text. `holdfast[metrics]`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from holdfast.errors import ConfigurationError, StoreUnavailable, needs_extra
from holdfast.export.metrics import COUNTER, FLEET, METRICS, OWN, PREFIX, fleet_rows
from holdfast.export.outlet import Counts, Look

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

LOOPBACK = "127.0.0.1"
PORT = 9464


class RunCollector:
    """What `prometheus_client` calls a collector; `look` is put there by whoever looks."""

    def __init__(self, counts: Callable[[], Mapping[str, Counts]]) -> None:
        self.look: Look | None = None
        self.looks = 0
        self._counts = counts

    def put(self, look: Look) -> None:
        """Serve this from now on."""
        self.look = look
        self.looks += 1

    def collect(self) -> Iterator[Metric]:
        """All metrics, from one look."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        look = self.look
        if look is None:
            return
        for metric in METRICS:
            make = CounterMetricFamily if metric.kind == COUNTER else GaugeMetricFamily
            family = make(PREFIX + metric.name, metric.words, labels=["run", *metric.labels])
            for sample in look.samples:
                for labels, value in metric.rows(sample):
                    if value is not None:
                        family.add_metric([sample.run.name, *labels], value)
            yield family
        for fleet in FLEET if look.is_fleet else ():
            family = GaugeMetricFamily(fleet.full_name, fleet.words, labels=["window"])
            for window, value in fleet_rows(fleet, look.runs):
                family.add_metric([window], value)
            yield family
        yield from self._own(look)

    def _own(self, look: Look) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        values = {
            "export_looks": float(self.looks),
            "export_look_seconds": look.took_s,
            "export_look_timestamp_seconds": look.began_unix_s,
            "export_problems": float(len(look.problems)),
        }
        counts = self._counts()
        for name, kind, labels, words in OWN:
            make = CounterMetricFamily if kind == COUNTER else GaugeMetricFamily
            family = make(PREFIX + name, words, labels=labels)
            if not labels:
                family.add_metric([], values[name])
            for exporter, count in counts.items() if labels else ():
                family.add_metric([exporter], getattr(count, name.removeprefix("export_")))
            yield family


def registry_of(collector: RunCollector) -> CollectorRegistry:
    """A registry with nothing else in it; raises ConfigurationError without the library."""
    try:
        from prometheus_client import CollectorRegistry
    except ImportError:
        raise ConfigurationError(needs_extra("the exporter prometheus needs", "metrics")) from None
    registry = CollectorRegistry()
    registry.register(collector)
    return registry


def as_text(collector: RunCollector) -> bytes:
    """The text format, as a file for the node exporter's textfile collector."""
    registry = registry_of(collector)
    from prometheus_client import generate_latest

    return generate_latest(registry)


def serve(collector: RunCollector, port: int) -> tuple[int, Callable[[], None]]:
    """Serve it on loopback; the port, chosen by the kernel for 0, and what ends it.

    Raises ConfigurationError without the library, StoreUnavailable when the port is taken.
    """
    registry = registry_of(collector)
    from prometheus_client import start_http_server

    try:
        server, thread = start_http_server(port, addr=LOOPBACK, registry=registry)
    except (OSError, OverflowError) as error:
        raise StoreUnavailable(f"port {port} of {LOOPBACK} cannot be served: {error}") from error

    def close() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return server.server_port, close
