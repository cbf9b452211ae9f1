"""The exporters at work: a look at the runs now and then, and what each exporter makes of it.

One thread looks, each exporter that pushes has a thread and a bounded queue of its own, Prometheus
is answered from the last look. A look costs what the runs have written since the one before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

from holdfast.errors import HoldfastError
from holdfast.export.asked import AskedExporters
from holdfast.export.outlet import DeliveryCounts, DeliveryTarget, ExportLook, Outlet
from holdfast.export.paced import Paced
from holdfast.export.prometheus import EXPORTER, RunCollector
from holdfast.export.sample import sample_of
from holdfast.export.served import serve
from holdfast.runs.listing import RunList

FLUSH_S = 3.0
Say = Callable[[str], None]


class Exporters:
    """Those that were asked for. Of one thread, but for what the library serves from another."""

    def __init__(self, runs: RunList, asked: AskedExporters, say: Say, *, is_fleet: bool) -> None:
        """Raises ConfigurationError for a library that is missing, StoreUnavailable for a port."""
        self._runs = runs
        self._say = say
        self._is_fleet = is_fleet
        self._trouble = ""
        targets = list(_targets(asked, is_fleet=is_fleet))
        self.collector = RunCollector(self.counts)
        self.port: int | None = None
        self._close_server: Callable[[], None] | None = None
        if asked.prometheus is not None:
            self.port, self._close_server = serve(self.collector, asked.prometheus, EXPORTER)
        self.outlets = [Outlet(target, say) for target in targets]

    def counts(self) -> Mapping[str, DeliveryCounts]:
        """What each exporter that pushes has done."""
        return {outlet.name: outlet.counts for outlet in self.outlets}

    def look(self) -> ExportLook | None:
        """Look at the runs once, and hand on what was found; None: the store cannot be read."""
        now_ns = time.time_ns()
        began_s = time.monotonic()
        try:
            listing = self._runs.look(now_ns)
        except (HoldfastError, OSError) as error:
            if not self._trouble:
                self._say(f"{error}; looking again")
            self._trouble = str(error)
            return None
        self._trouble = ""
        samples = tuple(sample_of(r, self._runs.reading(r.name), now_ns) for r in listing.runs)
        look = ExportLook(
            samples,
            listing.runs,
            listing.problems,
            began_unix_s=now_ns / 1e9,
            began_s=began_s,
            took_s=time.monotonic() - began_s,
            is_fleet=self._is_fleet,
        )
        self.collector.put(look)
        for outlet in self.outlets:
            outlet.put(look)
        return look

    def close(self, limit_s: float = FLUSH_S) -> bool:
        """Deliver what is left, within a limit for all of them together; whether all was."""
        end_s = time.monotonic() + limit_s
        done = [outlet.close(max(0.1, end_s - time.monotonic())) for outlet in self.outlets]
        if self._close_server is not None:
            self._close_server()
        return all(done)


def _targets(asked: AskedExporters, *, is_fleet: bool) -> Iterator[DeliveryTarget]:
    if asked.tensorboard is not None:
        from holdfast.export import tensorboard

        board = tensorboard.TensorBoardExporter(asked.tensorboard, is_fleet=is_fleet)
        yield Paced(board, tensorboard.EVERY_S)
    if asked.gcp is not None:
        from holdfast.export import cloud_logging, cloud_monitoring

        monitoring = cloud_monitoring.CloudMonitoring(asked.gcp)
        yield Paced(monitoring, cloud_monitoring.EVERY_S, cloud_monitoring.LEAST_S)
        yield cloud_logging.CloudLogging(asked.gcp)
