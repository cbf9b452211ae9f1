"""Enums and shapes of answers of the goodput API, as `goodput_utils` of version 0.2.3 has them."""

from __future__ import annotations

import datetime
import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

BadputValue = float | dict[str, float]
"""Seconds or percent; of custom events, by their type."""


@dataclass
class GCPOptions:
    """Where, and as what, a sink for Google Cloud Monitoring sends its metrics."""

    project_id: str | None = None
    location: str | None = None
    replica_id: str = "0"
    acc_type: str | None = None
    cluster_name: str | None = None
    enable_gcp_goodput_metrics: bool = True
    enable_gcp_step_deviation_metrics: bool = True


class MetricType(enum.Enum):
    """Keys of a job's details since its start."""

    GOODPUT_TIME = "goodput_time"
    BADPUT_TIME = "badput_time"
    MAX_PRODUCTIVE_STEP = "max_productive_step"
    TOTAL_ELAPSED_TIME = "total_elapsed_time"
    DISRUPTION_COUNT = "disruption_count"
    STEP_TIME_DEVIATION = "step_time_deviation"
    IDEAL_STEP_TIME = "ideal_step_time"
    TOTAL_EXCLUDED_TIME = "total_excluded_time"


class IntervalMetricType(enum.Enum):
    """Keys of a window's details."""

    INTERVAL_GOODPUT = "interval_goodput"
    INTERVAL_BADPUT = "interval_badput"
    INTERVAL_SIZE = "interval_size"


class GoodputType(enum.Enum):
    """Kinds of productive time: there is one."""

    TOTAL = 1


class BadputType(enum.Enum):
    """Kinds of time that was not productive."""

    TPU_INITIALIZATION = 1
    TRAINING_PREP = 2
    PROGRAM_STARTUP = 3
    DATA_LOADING_SYNC = 4
    DATA_LOADING_ASYNC = 5
    UNPRODUCTIVE_CHECKPOINT_SAVE_TIME = 6
    UNPRODUCTIVE_CHECKPOINT_RESTORE_TIME = 7
    WASTED_PROGRESS_FROM_DISRUPTION = 8
    INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION = 9
    CUSTOM_BADPUT_EVENTS = 10
    OTHER = 11
    ELASTIC_SLICE_DOWN = 12
    ELASTIC_SCALE_UP = 13
    ELASTIC_REINITIALIZATION = 14


class MonitoringWindowType(enum.Enum):
    """Whether a number is of the whole job or of a window."""

    CUMULATIVE = "cumulative"
    INTERVAL = "interval"


class WorkloadMetricDetails(TypedDict):
    """A job since its start; times in seconds. The keys are the values of MetricType."""

    goodput_time: dict[GoodputType, float]
    badput_time: dict[BadputType, BadputValue]
    max_productive_step: int
    total_elapsed_time: float
    disruption_count: int
    step_time_deviation: dict[int, float]
    ideal_step_time: float
    total_excluded_time: float


class IntervalWorkloadMetricDetails(TypedDict):
    """A window of a job; goodput and badput in percent, the size in seconds.

    The last productive step by its end is ours: sinks want to know when it was.
    """

    interval_goodput: dict[GoodputType, float]
    interval_badput: dict[BadputType, BadputValue]
    interval_size: int
    max_productive_step: int


class ElasticWorkloadMetricDetails(WorkloadMetricDetails, total=False):
    """With the shares of all slices that trained, and that were there."""

    stepping_slice_efficiency: float
    available_slice_efficiency: float


class ElasticIntervalWorkloadMetricDetails(IntervalWorkloadMetricDetails, total=False):
    """With the shares of all slices that trained, and that were there."""

    stepping_slice_efficiency: float
    available_slice_efficiency: float


class GoodputInfo:
    """The last answer about a job since its start; times in seconds."""

    def __init__(
        self,
        total_productive_time: float = 0.0,
        total_elapsed_time: float = 0.0,
        total_unproductive_time: dict[BadputType, BadputValue] | None = None,
        max_productive_step: int = 0,
        last_recorded_step: int = 0,
        last_updated_timestamp: datetime.datetime | None = None,
        number_of_disruptions: int = 0,
        total_excluded_time: float = 0.0,
    ) -> None:
        self.total_productive_time = total_productive_time
        self.total_elapsed_time = total_elapsed_time
        self.total_unproductive_time = total_unproductive_time or {}
        self.max_productive_step = max_productive_step
        self.last_recorded_step = last_recorded_step
        self.last_updated_timestamp = last_updated_timestamp or datetime.datetime.now(datetime.UTC)
        self.number_of_disruptions = number_of_disruptions
        self.total_excluded_time = total_excluded_time


class StepInfo:
    """How long a step should take, and how far each was from it; seconds."""

    def __init__(self, ideal_step_time: float, step_deviations: dict[int, float]) -> None:
        self.ideal_step_time = ideal_step_time
        self.step_deviations = step_deviations


def flat_badput(badput: Mapping[BadputType, BadputValue]) -> Sequence[tuple[str, float]]:
    """(name, value) of each kind; of custom events `CUSTOM_BADPUT_EVENTS.TYPE`."""
    flat: list[tuple[str, float]] = []
    for kind, value in badput.items():
        if isinstance(value, dict):
            flat += [(f"{kind.name}.{name.upper()}", seconds) for name, seconds in value.items()]
        else:
            flat.append((kind.name, value))
    return flat
