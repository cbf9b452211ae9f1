"""TensorBoard: scalars under the tags that people know, beside their losses.

`goodput/goodput` and `badput/TYPE` are in percent of all time, as ml-goodput-measurement 0.2.3
writes them, into a folder `goodput` of the log folder. Beside them, as its drop-in does,
`rolling_window_goodput/SECONDS` and `rolling_window_badput/SECONDS/TYPE`, and our factors
`goodput/scheduling`, `/runtime`, `/program`.
`holdfast[tensorboard]`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast.core.summary import ALL, ROLLING_S
from holdfast.errors import ConfigurationError, needs_extra
from holdfast.export.familiar import badput_by_type, percent_of
from holdfast.export.outlet import Look
from holdfast.export.sample import Sample

FOLDER = "goodput"
EVERY_S = 30.0  # a point of all tags is 3 kB, and runs are long


class TensorBoard:
    """Writes event files. `is_fleet`: each run gets a folder of its name."""

    name = "tensorboard"

    def __init__(self, folder: str, *, is_fleet: bool) -> None:
        """Raises ConfigurationError without the library."""
        self._make = _writer_class()
        self._folder = Path(folder).expanduser()
        self._is_fleet = is_fleet
        self._writers: dict[str, Any] = {}

    def deliver(self, look: Look) -> None:
        """One point for each tag of each run that has one; raises OSError."""
        for sample in look.samples:
            rows = list(scalars(sample))
            if not rows:
                continue
            writer = self._writer(sample.run.name)
            for tag, value in rows:
                writer.add_scalar(tag, value, sample.run.step or 0, walltime=sample.at_s)
            writer.flush()
        told = {sample.run.name for sample in look.samples}
        for name in [name for name in self._writers if name not in told]:
            self._writers.pop(name).close()  # it is over, or was deleted

    def close(self) -> None:
        """Close the files."""
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()

    def _writer(self, run: str) -> Any:
        if run not in self._writers:
            place = self._folder / run / FOLDER if self._is_fleet else self._folder / FOLDER
            place.mkdir(parents=True, exist_ok=True)
            self._writers[run] = self._make(str(place), flush_secs=3600)
        return self._writers[run]


def _writer_class() -> Any:
    """TensorboardX's SummaryWriter.

    Where torch is installed it would be imported, for graphs that nobody draws here: two seconds
    and 170 MB of a process that is to be small. It does without.
    """
    is_hidden = "torch" not in sys.modules
    if is_hidden:
        sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        raise ConfigurationError(
            needs_extra("the exporter tensorboard needs", "tensorboard")
        ) from None
    finally:
        if is_hidden:
            del sys.modules["torch"]
    return SummaryWriter


def scalars(sample: Sample) -> Iterator[tuple[str, float]]:
    """Tag and value, of what is known."""
    spent, elapsed_s = sample.run.spent(), sample.elapsed_s()
    if not elapsed_s:
        return
    yield "goodput/goodput", percent_of(sample.productive_s(), elapsed_s)
    rolling = ((size_s, sample.run.spent(window).goodput) for window, size_s in ROLLING_S.items())
    for tag, share in (
        ("goodput/scheduling", spent.scheduling),
        ("goodput/runtime", spent.runtime),
        ("goodput/program", spent.program),
        *((f"rolling_window_goodput/{size_s}", share) for size_s, share in rolling),
    ):
        if share is not None:
            yield tag, 100 * share
    for window, size_s in {ALL: 0, **ROLLING_S}.items():
        within_s = sample.elapsed_s(window)
        family = "badput" if window == ALL else f"rolling_window_badput/{size_s}"
        for kind, seconds in badput_by_type(sample, window).items() if within_s else ():
            tag = f"{family}/{kind.lower().replace('.', '/', 1)}"
            yield tag, percent_of(seconds, within_s)
