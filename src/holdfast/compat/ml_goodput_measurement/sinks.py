"""Where a monitor's numbers go: a small interface, and TensorBoard.

A sink is made by a factory for each thread that uploads; exporters of others register theirs with
`monitoring.add_sink`.
"""

from __future__ import annotations

import importlib
import itertools
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
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
_files = itertools.count()


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

    @classmethod
    def of(cls, target: SinkTarget) -> TensorBoard | None:
        """With tensorboardX's writer, else PyTorch's; None when neither is installed.

        Its file is its own: tensorboardX gives two of one second one name, and one overwrites the
        other. The folder is made first, for two of them that make it at once fail.
        """
        suffix = f".{os.getpid()}.{next(_files)}"
        for name in _WRITERS:
            try:
                make = importlib.import_module(name).SummaryWriter
            except ImportError:
                continue
            if "://" not in target.folder:
                Path(target.folder).mkdir(parents=True, exist_ok=True)
            return cls(make(target.folder, filename_suffix=suffix))
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
        self._writer.add_scalar(goodput_tag(), goodput, step)
        for name, value in flat_badput(badput):
            self._writer.add_scalar(badput_tag(name), value, step)
        self._writer.flush()

    def interval(self, details: IntervalWorkloadMetricDetails) -> None:
        """As scalars of the last productive step."""
        size, step = details["interval_size"], details["max_productive_step"]
        for value in details["interval_goodput"].values():
            self._writer.add_scalar(goodput_tag(size), value, step)
        for name, value in flat_badput(details["interval_badput"]):
            self._writer.add_scalar(badput_tag(name, size), value, step)
        self._writer.flush()

    def step_deviation(self, deviations: Mapping[int, float]) -> None:
        """As scalars of their steps."""
        for step, deviation in deviations.items():
            self._writer.add_scalar("step_deviation", deviation, step)
        self._writer.flush()

    def close(self) -> None:
        """Close the writer."""
        self._writer.close()
