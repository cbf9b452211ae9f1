"""Telling others how a job does, at intervals, beside its training: the API of version 0.2.3.

Threads instead of processes: an answer costs milliseconds, and a fork of a process that holds
accelerators can hang. They are daemons, so that a job's end never waits for them.
"""

from __future__ import annotations

import datetime
import logging
import os
import threading
from collections.abc import Callable
from typing import Any

from holdfast.compat.ml_goodput_measurement import goodput, goodput_utils
from holdfast.compat.ml_goodput_measurement.google_sink import GoogleCloud
from holdfast.compat.ml_goodput_measurement.sinks import (
    GoodputSink,
    SinkFactory,
    SinkTarget,
    TensorBoard,
)

BadputType = goodput_utils.BadputType
GCPOptions = goodput_utils.GCPOptions
GoodputCalculator = goodput.GoodputCalculator
IntervalMetricType = goodput_utils.IntervalMetricType
IntervalWorkloadMetricDetails = goodput_utils.IntervalWorkloadMetricDetails
MetricType = goodput_utils.MetricType
MonitoringWindowType = goodput_utils.MonitoringWindowType
UnproductiveTimeDict = goodput.UnproductiveTimeDict
WorkloadMetricDetails = goodput_utils.WorkloadMetricDetails
ACTIVITY_EXCLUSION_LIST = goodput_utils.ACTIVITY_EXCLUSION_LIST

TENSORBOARD_FOLDER = "goodput"
FINAL_FLUSH_S = 10.0

_sinks: list[SinkFactory] = [TensorBoard.of, GoogleCloud.of]

logger = logging.getLogger(__name__)


def add_sink(factory: SinkFactory) -> None:
    """From here on monitors tell this sink, too. `factory` is called once for each uploader."""
    _sinks.append(factory)


class GoodputMonitor:
    """Asks a job's goodput again and again, and tells it to sinks.

    They are TensorBoard, Google Cloud Monitoring if it was asked for, and those that were added.
    """

    def __init__(
        self,
        job_name: str,
        logger_name: str,
        tensorboard_dir: str,
        upload_interval: int,
        monitoring_enabled: bool = False,
        pathway_enabled: bool = False,
        include_badput_breakdown: bool = False,
        include_step_deviation: bool = False,
        configured_ideal_step_time: float | None = None,
        step_deviation_interval_seconds: int = 10,
        gcp_options: GCPOptions | None = None,
        skip_final_flush: bool = False,
        final_flush_timeout_seconds: float | None = FINAL_FLUSH_S,
        gcs_sync_interval_seconds: int = 3600,
        cache_dir: str = "/tmp",  # noqa: S108 - as in the library; nothing is written there
        max_logs_retention_period: datetime.timedelta | None = None,
    ) -> None:
        """Of several processes one should monitor: `monitoring_enabled` says whether it is this.

        `upload_interval` in seconds. A stop asks once more, unless `skip_final_flush`, and waits
        for that `final_flush_timeout_seconds` (None: as long as it takes). `gcp_options` go to the
        sinks as they are: nobody is asked where this machine is. The last three mean nothing here.
        """
        del gcs_sync_interval_seconds, max_logs_retention_period
        self._initialized = monitoring_enabled
        if not monitoring_enabled:
            return
        self._interval_s = float(upload_interval)
        self._deviation_s = float(step_deviation_interval_seconds)
        self._wants_deviation = include_step_deviation
        self._ideal_step_time = configured_ideal_step_time
        self._skip_final_flush = skip_final_flush
        self._final_flush_s = final_flush_timeout_seconds
        self._windows_s: list[int] = []
        self._target = SinkTarget(
            job_name,
            os.path.join(tensorboard_dir, TENSORBOARD_FOLDER),  # noqa: PTH118 - may be a URL
            include_badput_breakdown,
            gcp_options or GCPOptions(),
        )
        self._goodput_calculator = self._calculator(
            job_name, logger_name, using_pathways=pathway_enabled, cache_dir=cache_dir
        )
        self._uploaders: dict[str, Uploader] = {}

    _calculator: Callable[..., GoodputCalculator] = GoodputCalculator

    def start_goodput_uploader(self) -> None:
        """Tell goodput since the job's start, every `upload_interval` seconds."""
        self._start("goodput", self._interval_s, self._tell_goodput)

    def stop_goodput_uploader(self, skip_final_flush: bool | None = None) -> None:
        """Tell it a last time, and no more."""
        self._stop("goodput", self._tell_goodput, skip_final_flush)

    def start_step_deviation_uploader(self) -> None:
        """Tell how far each step was off the ideal, if the monitor was made for that."""
        if self._initialized and self._wants_deviation:
            self._start("step deviation", self._deviation_s, DeviationsOf(self))

    def stop_step_deviation_uploader(self, skip_final_flush: bool | None = None) -> None:
        """Tell it a last time, and no more."""
        if self._initialized and self._wants_deviation:
            self._stop("step deviation", DeviationsOf(self), skip_final_flush)

    def start_rolling_window_goodput_uploader(self, rolling_windows_seconds: list[int]) -> None:
        """Tell goodput of the last so many seconds, for each of the windows."""
        if self._initialized:
            self._windows_s = list(rolling_windows_seconds)
            self._start("rolling window", self._interval_s, self._tell_windows)

    def stop_rolling_window_goodput_uploader(self, skip_final_flush: bool | None = None) -> None:
        """Tell it a last time, and no more."""
        self._stop("rolling window", self._tell_windows, skip_final_flush)

    # --- What is told ------------------------------------------------------------------------

    def _tell_goodput(self, sinks: list[GoodputSink]) -> None:
        calculator = self._goodput_calculator
        goodput, badput, step = calculator.get_job_goodput(
            include_badput_breakdown=self._target.include_badput,
            configured_ideal_step_time=self._ideal_step_time,
        )
        details = calculator._details(goodput_utils.DEVIATION_STEPS)
        _each(sinks, lambda sink: sink.cumulative(goodput, badput, step, details))

    def _tell_windows(self, sinks: list[GoodputSink]) -> None:
        now = self._goodput_calculator._now()
        for size_s in self._windows_s:
            since = now - datetime.timedelta(seconds=size_s)
            details = self._goodput_calculator.get_interval_metric_details(since, now)
            _each(sinks, lambda sink, window=details: sink.interval(window))  # type: ignore[misc]

    # --- Threads -----------------------------------------------------------------------------

    def _start(self, name: str, interval_s: float, tell: Tell) -> None:
        if not self._initialized:
            return
        running = self._uploaders.get(name)
        if running is not None and running.is_alive():
            logger.warning("the %s uploader of job %s runs already", name, self._target.job_name)
            return
        uploader = Uploader(name, interval_s, tell, self._target)
        self._uploaders[name] = uploader
        uploader.start()

    def _stop(self, name: str, tell: Tell, skip_final_flush: bool | None) -> None:
        if not self._initialized:
            return
        skips = self._skip_final_flush if skip_final_flush is None else skip_final_flush
        uploader = self._uploaders.pop(name, None)
        if uploader is None:
            if skips:
                return
            uploader = Uploader(name, self._interval_s, tell, self._target)  # for the last word
            uploader.start()
        uploader.stop(skips, FINAL_FLUSH_S if skips else self._final_flush_s)


Tell = Callable[[list[GoodputSink]], None]


class DeviationsOf:
    """Steps' deviations, each told once."""

    def __init__(self, monitor: GoodputMonitor) -> None:
        self._monitor = monitor
        self._told = -1  # the last step

    def __call__(self, sinks: list[GoodputSink]) -> None:
        """Tell those that are new."""
        monitor = self._monitor
        calculator, ideal = monitor._goodput_calculator, monitor._ideal_step_time
        new = calculator._deviations(ideal, after=self._told).step_deviations
        if new:
            self._told = max(new)
            _each(sinks, lambda sink: sink.step_deviation(new))


class Uploader:
    """A thread that tells something at intervals, and a last time when it is stopped."""

    def __init__(self, name: str, interval_s: float, tell: Tell, target: SinkTarget) -> None:
        self._name, self._interval_s, self._tell, self._target = name, interval_s, tell, target
        self._stopping = threading.Event()
        self._skips_last = False
        title = f"holdfast-{name.replace(' ', '-')}"
        self._thread = threading.Thread(target=self._run, name=title, daemon=True)

    def start(self) -> None:
        """Begin with a pause of one interval."""
        self._thread.start()

    def is_alive(self) -> bool:
        """Whether it has not come to its end."""
        return self._thread.is_alive()

    def stop(self, skips_last: bool, limit_s: float | None) -> None:
        """End it; waits no longer than the limit, and then leaves it to end by itself."""
        self._skips_last = skips_last
        self._stopping.set()
        self._thread.join(limit_s)
        if self._thread.is_alive():
            logger.warning(
                "the %s uploader of job %s is still at work after %s s: its last numbers may be "
                "missing",
                self._name,
                self._target.job_name,
                limit_s,
            )

    def _run(self) -> None:
        sinks = [sink for factory in _sinks if (sink := _made(factory, self._target)) is not None]
        while not self._stopping.wait(self._interval_s):
            self._once(sinks)
        if not self._skips_last:
            self._once(sinks)
        _each(sinks, lambda sink: sink.close())

    def _once(self, sinks: list[GoodputSink]) -> None:
        try:
            self._tell(sinks)
        except Exception as problem:
            logger.warning(
                "%s of job %s is not known this time: %s",
                self._name,
                self._target.job_name,
                problem,
            )


def _made(factory: SinkFactory, target: SinkTarget) -> GoodputSink | None:
    try:
        return factory(target)
    except Exception as problem:
        logger.warning("a sink of job %s cannot be made: %s", target.job_name, problem)
        return None


def _each(sinks: list[GoodputSink], tell: Callable[[GoodputSink], Any]) -> None:
    for sink in sinks:
        try:
            tell(sink)
        except Exception as problem:
            logger.warning("%s took no numbers: %s", type(sink).__name__, problem)
