"""Monitoring of jobs that train on with fewer slices."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable

from holdfast.compat.ml_goodput_measurement import goodput, goodput_elastic, monitoring
from holdfast.compat.ml_goodput_measurement.goodput_utils import GCPOptions


class ElasticGoodputMonitor(monitoring.GoodputMonitor):
    """A monitor whose answers have the elastic badput types and the slices' efficiency."""

    _calculator: Callable[..., goodput.GoodputCalculator] = goodput_elastic.ElasticGoodputCalculator

    def __init__(
        self,
        job_name: str,
        logger_name: str,
        tensorboard_dir: str,
        upload_interval: int,
        monitoring_enabled: bool = False,
        include_badput_breakdown: bool = False,
        include_step_deviation: bool = False,
        include_slice_efficiency: bool = False,
        configured_ideal_step_time: float | None = None,
        step_deviation_interval_seconds: int = 10,
        gcp_options: GCPOptions | None = None,
        skip_final_flush: bool = False,
        final_flush_timeout_seconds: float | None = monitoring.FINAL_FLUSH_S,
        gcs_sync_interval_seconds: int = 3600,
        cache_dir: str = "/tmp",  # noqa: S108 - as in the library; nothing is written there
        max_logs_retention_period: datetime.timedelta | None = None,
    ) -> None:
        """As any monitor; `include_slice_efficiency` asks sinks to tell it."""
        super().__init__(
            job_name=job_name,
            logger_name=logger_name,
            tensorboard_dir=tensorboard_dir,
            upload_interval=upload_interval,
            monitoring_enabled=monitoring_enabled,
            pathway_enabled=True,
            include_badput_breakdown=include_badput_breakdown,
            include_step_deviation=include_step_deviation,
            configured_ideal_step_time=configured_ideal_step_time,
            step_deviation_interval_seconds=step_deviation_interval_seconds,
            gcp_options=gcp_options,
            skip_final_flush=skip_final_flush,
            final_flush_timeout_seconds=final_flush_timeout_seconds,
            gcs_sync_interval_seconds=gcs_sync_interval_seconds,
            cache_dir=cache_dir,
            max_logs_retention_period=max_logs_retention_period,
        )
        if self._initialized:
            self._target = dataclasses.replace(
                self._target, include_slice_efficiency=include_slice_efficiency
            )
