"""The module of that name: a recorder, a calculator, and what else version 0.2.3 has in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.compat.ml_goodput_measurement import (
    calculator,
    checkpoint_badput_calculator,
    goodput_cache,
    goodput_utils,
    keys,
    recorder,
)

GoodputRecorder = recorder.GoodputRecorder
GoodputCalculator = calculator.GoodputCalculator
UnproductiveTimeDict = calculator.UnproductiveTimeDict
BadputType = goodput_utils.BadputType
CheckpointBadputCalculator = checkpoint_badput_calculator.CheckpointBadputCalculator
CheckpointLoggerOptions = checkpoint_badput_calculator.CheckpointLoggerOptions
GoodputCache = goodput_cache.GoodputCache
GoodputInfo = goodput_utils.GoodputInfo
GoodputType = goodput_utils.GoodputType
IntervalMetricType = goodput_utils.IntervalMetricType
IntervalWorkloadMetricDetails = goodput_utils.IntervalWorkloadMetricDetails
MetricType = goodput_utils.MetricType
StepInfo = goodput_utils.StepInfo
WorkloadMetricDetails = goodput_utils.WorkloadMetricDetails
compute_ideal_step_time = goodput_utils.compute_ideal_step_time
get_extra_time_from_anomalous_steps = goodput_utils.get_extra_time_from_anomalous_steps
get_timestamp_from_log_entry = goodput_utils.get_timestamp_from_log_entry

# What others name the fields by.
_JOB_NAME = keys.JOB_NAME
_STEP_COUNT = keys.STEP
_STEP_START_TIME = keys.STEP_START
_JOB_START_TIME = keys.JOB_START
_JOB_END_TIME = keys.JOB_END
_TPU_INIT_START_TIME = keys.TPU_INIT_START
_TPU_INIT_END_TIME = keys.TPU_INIT_END
_TRAINING_PREPARATION_START_TIME = keys.PREPARATION_START
_TRAINING_PREPARATION_END_TIME = keys.PREPARATION_END
_DATA_LOADING_START_TIME = keys.DATA_START
_DATA_LOADING_END_TIME = keys.DATA_END
_CUSTOM_BADPUT_EVENT_TYPE = keys.CUSTOM_TYPE
_CUSTOM_BADPUT_EVENT_START_TIME = keys.CUSTOM_START
_CUSTOM_BADPUT_EVENT_END_TIME = keys.CUSTOM_END


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """What a recorder makes for itself, which was a cloud's logger: a run in the store."""
        if name == "_CloudLogger":
            from holdfast.compat.ml_goodput_measurement.local import LocalLog

            return LocalLog
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
