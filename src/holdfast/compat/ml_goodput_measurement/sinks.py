"""Where a monitor's numbers go: a small interface, and TensorBoard.

A sink is made by a factory for each thread that uploads; exporters of others register theirs with
`monitoring.add_sink`.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from holdfast.compat.ml_goodput_measurement.shapes import (
    BadputType,
    BadputValue,
    GCPOptions,
    IntervalWorkloadMetricDetails,
    WorkloadMetricDetails,
    flat_badput,
)
from holdfast.export.familiar import badput_tag, goodput_tag

logger = logging.getLogger(__name__)

_WRITERS = ("tensorboardX", "torch.utils.tensorboard")


@dataclass(frozen=True, slots=True)
class SinkTarget:
    """What a sink is told of the job whose numbers it gets.

    `folder` is the monitor's TensorBoard folder; `include_badput` whether a breakdown is wanted.
    """

    job_name: str
    folder: str
    include_badput: bool
    gcp_options: GCPOptions
    include_slice_efficiency: bool = False


class GoodputSink(Protocol):
    """Takes numbers. What it raises is logged, and stops nothing."""

    def cumulative(
        self,
        goodput: float,
        badput: Mapping[BadputType, BadputValue],
        step: int,
        details: WorkloadMetricDetails,
    ) -> None:
        """The job since its start: percent, percent by type ({} unless wanted), last step."""

    def interval(self, details: IntervalWorkloadMetricDetails) -> None:
        """A rolling window."""

    def step_deviation(self, deviations: Mapping[int, float]) -> None:
        """Seconds by step that is new."""

    def close(self) -> None:
        """No more numbers."""


SinkFactory = Callable[[SinkTarget], GoodputSink | None]
"""Makes a sink, or None where there is nothing to send to."""


class TensorBoard:
    """Scalars under the tags that people know, in percent.

    `goodput/goodput`, `badput/<type>`, `badput/custom_badput_events/<event>` and `step_deviation`
    (seconds); windows, which the library tells no TensorBoard, under
    `rolling_window_goodput/<seconds>` and `rolling_window_badput/<seconds>/<type>`.
    """

    def __init__(self, writer: Any) -> None:
        """`writer` is a SummaryWriter."""
        self._writer = writer
        self._step = 0

    @classmethod
    def of(cls, target: SinkTarget) -> TensorBoard | None:
        """With tensorboardX's writer, else PyTorch's; None when neither is installed."""
        for name in _WRITERS:
            try:
                return cls(importlib.import_module(name).SummaryWriter(target.folder))
            except ImportError:
                continue
        logger.warning(
            "no TensorBoard scalars of job %s: install tensorboardX, or tensorboard for PyTorch's "
            "writer",
            target.job_name,
        )
        return None

    def cumulative(
        self,
        goodput: float,
        badput: Mapping[BadputType, BadputValue],
        step: int,
        details: WorkloadMetricDetails,
    ) -> None:
        """As scalars of the last productive step."""
        del details
        self._step = step
        self._writer.add_scalar(goodput_tag(), goodput, step)
        for name, value in flat_badput(badput):
            self._writer.add_scalar(badput_tag(name), value, step)
        self._writer.flush()

    def interval(self, details: IntervalWorkloadMetricDetails) -> None:
        """As scalars of the last productive step that was told."""
        size = details["interval_size"]
        for value in details["interval_goodput"].values():
            self._writer.add_scalar(goodput_tag(size), value, self._step)
        for name, value in flat_badput(details["interval_badput"]):
            self._writer.add_scalar(badput_tag(name, size), value, self._step)
        self._writer.flush()

    def step_deviation(self, deviations: Mapping[int, float]) -> None:
        """As scalars of their steps."""
        for step, deviation in deviations.items():
            self._writer.add_scalar("step_deviation", deviation, step)
        self._writer.flush()

    def close(self) -> None:
        """Close the writer."""
        self._writer.close()
