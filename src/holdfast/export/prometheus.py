"""Prometheus: the last look's numbers, for whoever scrapes them (`export.served`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from holdfast.export.metrics import COUNTER, FLEET, METRICS, OWN, PREFIX, fleet_rows
from holdfast.export.outlet import DeliveryCounts, ExportLook

if TYPE_CHECKING:
    from prometheus_client.core import Metric

EXPORTER = "the exporter prometheus"


class RunCollector:
    """What `prometheus_client` calls a collector; `look` is put there by whoever looks."""

    def __init__(self, counts: Callable[[], Mapping[str, DeliveryCounts]]) -> None:
        self.look: ExportLook | None = None
        self.looks = 0
        self._counts = counts

    def put(self, look: ExportLook) -> None:
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

    def _own(self, look: ExportLook) -> Iterator[Metric]:
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
