"""Small statistics of steps, and what a cloud says of this machine; with the API's `shapes`."""

from __future__ import annotations

import datetime
import logging
from typing import Any

from holdfast.compat.ml_goodput_measurement import shapes

BadputType = shapes.BadputType
BadputValue = shapes.BadputValue
ElasticIntervalWorkloadMetricDetails = shapes.ElasticIntervalWorkloadMetricDetails
ElasticWorkloadMetricDetails = shapes.ElasticWorkloadMetricDetails
GCPOptions = shapes.GCPOptions
GoodputInfo = shapes.GoodputInfo
GoodputType = shapes.GoodputType
IntervalMetricType = shapes.IntervalMetricType
IntervalWorkloadMetricDetails = shapes.IntervalWorkloadMetricDetails
MetricType = shapes.MetricType
MonitoringWindowType = shapes.MonitoringWindowType
StepInfo = shapes.StepInfo
WorkloadMetricDetails = shapes.WorkloadMetricDetails

ACTIVITY_EXCLUSION_LIST = ["DATA_LOADING_ASYNC"]
"""Names of BadputType that are for information: their time is in another one, or productive."""

MACHINE_TYPE_TO_ACCELERATOR_TYPE_MAPPING = {
    "tpu7x": "TPU-7x",
    "ct6e": "TPU-v6e",
    "ct5p": "TPU-v5p",
    "ct5lp": "TPU-v5e",
    "ct5l": "TPU-v5e",
    "ct4p": "TPU-v4p",
    "ct3p": "TPU-v3",
    "ct3": "TPU-v3",
    "tpu-v2": "TPU-v2",
    "tpu": "TPU",
    "a3-edgegpu": "NVIDIA-H100",
    "a3-highgpu": "NVIDIA-H100",
    "a3-megagpu": "NVIDIA-H100",
    "a3-ultragpu": "NVIDIA-H200",
    "a2": "NVIDIA-A100",
    "gpu": "GPU",
}
"""A part of a machine type's name → the accelerator in it; the first that fits counts."""

_METADATA = "http://metadata.google.internal/computeMetadata/v1/"
_RETRIED = (429, 500, 502, 503, 504)
_RECENT_STEPS, _BASELINE_STEPS, _SPIKE_PERCENT = 100, 1000, 90
DEVIATION_STEPS = _RECENT_STEPS + _BASELINE_STEPS
"""Ours: the last steps, by which `compute_step_deviation_from_baseline` goes."""

logger = logging.getLogger(__name__)


def compute_percentile(values: list[float], percentile: float) -> float:
    """The percentile (0 to 100) between the two nearest values; 0.0 of none."""
    if not values:
        return 0.0
    ranked = sorted(values)
    place = (len(ranked) - 1) * percentile / 100.0
    below = int(place)
    above = min(below + 1, len(ranked) - 1)
    return ranked[below] + (ranked[above] - ranked[below]) * (place - below)


def compute_step_deviation_from_baseline(
    step_time_deviation: dict[int, float],
    mode: MonitoringWindowType = MonitoringWindowType.CUMULATIVE,
    recent_window_size: int = _RECENT_STEPS,
    baseline_window_size: int = _BASELINE_STEPS,
    spike_percentile: int = _SPIKE_PERCENT,
) -> float:
    """How far recent steps are off (a high percentile), less what is usual, in seconds.

    Of fewer than 100 steps it is their mean deviation. INTERVAL takes nothing off, nor does
    CUMULATIVE while there is no whole baseline.
    """
    import statistics  # not with the module: every script that measures itself has it

    deviations = [abs(deviation) for deviation in step_time_deviation.values()]
    if not deviations:
        return 0.0
    if len(deviations) < _RECENT_STEPS:
        return statistics.fmean(deviations)
    spike = compute_percentile(deviations[-recent_window_size:], spike_percentile)
    if mode is MonitoringWindowType.INTERVAL:
        return spike
    if mode is not MonitoringWindowType.CUMULATIVE:
        raise ValueError(f"{mode!r} is no MonitoringWindowType")
    baseline = deviations[-recent_window_size - baseline_window_size : -recent_window_size]
    if len(baseline) < baseline_window_size or not baseline:
        return spike
    return spike - statistics.median(baseline)


def compute_ideal_step_time(step_times: Any) -> float | None:
    """The mean of the usual step times, in seconds: up to the median and three times the MAD.

    Steps of less than a second are left out; None when none is left.
    """
    import numpy as np

    lengths = np.asarray(step_times, dtype=float)
    long = lengths[lengths >= 1.0]
    if not long.size:
        return None
    return float(long[long <= _limit(long)].mean())


def get_anomalous_and_normal_step_times(step_times: list[Any]) -> tuple[list[Any], list[Any]]:
    """The step times above the median and three times the MAD, and the others."""
    limit = _limit(step_times)
    return (
        [length for length in step_times if length > limit],
        [length for length in step_times if length <= limit],
    )


def get_extra_time_from_anomalous_steps(step_times: list[Any]) -> float:
    """What the anomalous steps took longer than the normal ones' mean, in seconds."""
    anomalous, normal = get_anomalous_and_normal_step_times(step_times)
    if not anomalous:
        return 0.0
    return float(sum(anomalous) - len(anomalous) * sum(normal) / len(normal))


def _limit(step_times: Any) -> float:
    """The median and three times the median absolute deviation."""
    import numpy as np

    lengths = np.asarray(step_times, dtype=float)
    middle = np.median(lengths)
    return float(middle + 3 * np.median(np.abs(lengths - middle)))


def get_timestamp_from_log_entry(entry: dict[str, Any]) -> datetime.datetime | None:
    """When an entry happened: its first field whose name speaks of time; None: it has none."""
    for name, value in entry.items():
        if "time" in name:
            return datetime.datetime.fromtimestamp(value, datetime.UTC)
    return None


def get_gcp_metadata(
    category: str, attribute: str, timeout: float = 5, retries: int = 3
) -> str | None:
    """Ask Google's metadata server; None when it does not answer, or `requests` is missing.

    Nothing in this package asks by itself.
    """
    try:
        import requests
        from urllib3.util.retry import Retry
    except ImportError:
        logger.warning("Google's metadata is asked through `requests`, which is not installed")
        return None
    session = requests.Session()
    retry = Retry(total=retries, backoff_factor=0.5, status_forcelist=_RETRIED)
    session.mount("http://", requests.adapters.HTTPAdapter(max_retries=retry))
    url = f"{_METADATA}{category}/{attribute}"
    try:
        answer = session.get(url, headers={"Metadata-Flavor": "Google"}, timeout=timeout)
        answer.raise_for_status()
    except requests.exceptions.RequestException as problem:
        logger.warning("no metadata for %s/%s: %s", category, attribute, problem)
        return None
    return str(answer.text)


def get_gcp_project_id() -> str | None:
    """The project that this machine belongs to."""
    return get_gcp_metadata("project", "project-id")


def get_node_zone() -> str | None:
    """The zone of this machine, such as us-central1-a."""
    return _last_part(get_gcp_metadata("instance", "zone"))


def get_accelerator_type() -> str:
    """The accelerator of this machine, by its machine type; UNKNOWN when nobody says."""
    machine = (_last_part(get_gcp_metadata("instance", "machine-type")) or "").lower()
    found = (
        name for part, name in MACHINE_TYPE_TO_ACCELERATOR_TYPE_MAPPING.items() if part in machine
    )
    return next(found, "UNKNOWN")


def get_cluster_name() -> str | None:
    """The cluster of this machine."""
    return get_gcp_metadata("instance", "attributes/cluster-name")


def _last_part(path: str | None) -> str | None:
    return path.rsplit("/", 1)[-1] if path else None
