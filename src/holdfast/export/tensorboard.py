"""TensorBoard: scalars under the tags that people know, beside their losses.

`goodput/goodput` and `badput/TYPE` are in percent of all time, as ml-goodput-measurement 0.2.3
writes them, into a folder `goodput` of the log folder. Beside them, as its drop-in does,
`rolling_window_goodput/SECONDS` and `rolling_window_badput/SECONDS/TYPE`, and our factors
`goodput/scheduling`, `/runtime`, `/program`, `/program_of_reached`.

The script's own numbers (`run.done`'s metrics) go into a folder `metrics`, under their names and
at their steps, and no step is shown twice: when a run has gone back, and when an exporter begins, a
new file says from which step on it stands in the place of those before it.

`holdfast-ml[tensorboard]`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from holdfast.core.ledger.summary import ALL, ROLLING_S
from holdfast.errors import ConfigurationError, needs_extra
from holdfast.export.familiar import badput_tag, goodput_tag, percent_of
from holdfast.export.outlet import ExportLook
from holdfast.export.sample import Sample
from holdfast.runs.curves import Curve

FOLDER, METRICS_FOLDER = "goodput", "metrics"
EVERY_S = 30.0  # a point of all tags is 3 kB, and runs are long


class TensorBoardExporter:
    """Writes event files. `is_fleet`: each run gets a folder of its name."""

    name = "tensorboard"

    def __init__(self, folder: str, *, is_fleet: bool) -> None:
        """Raises ConfigurationError without the library."""
        self._make = _writer_class()
        self._folder = Path(folder).expanduser()
        self._is_fleet = is_fleet
        self._writers: dict[str, Any] = {}
        self._numbers: dict[str, _Numbers] = {}

    def deliver(self, look: ExportLook) -> None:
        """One point for each tag of each run that has one; raises OSError."""
        for sample in look.samples:
            if sample.curves:
                self._numbers_of(sample.run.name).tell(sample.curves)
            rows = list(scalars(sample))
            if not rows:
                continue
            writer = self._writer(sample.run.name)
            for tag, value in rows:
                writer.add_scalar(tag, value, sample.run.step or 0, walltime=sample.at_s)
            writer.flush()
        names = {sample.run.name for sample in look.samples}
        for name in [name for name in self._writers if name not in names]:
            self._writers.pop(name).close()  # it is over, or was deleted
        for name in [name for name in self._numbers if name not in names]:
            self._numbers.pop(name).close()

    def close(self) -> None:
        """Close the files."""
        for writer in (*self._writers.values(), *self._numbers.values()):
            writer.close()
        self._writers.clear()
        self._numbers.clear()

    def _writer(self, run: str) -> Any:
        if run not in self._writers:
            self._writers[run] = self._make(self._place(run, FOLDER), flush_secs=3600)
        return self._writers[run]

    def _numbers_of(self, run: str) -> _Numbers:
        if run not in self._numbers:
            place = self._place(run, METRICS_FOLDER)
            self._numbers[run] = _Numbers(
                lambda step, suffix: self._make(
                    place, flush_secs=3600, purge_step=step, filename_suffix=suffix
                )
            )
        return self._numbers[run]

    def _place(self, run: str, folder: str) -> str:
        place = self._folder / run / folder if self._is_fleet else self._folder / folder
        place.mkdir(parents=True, exist_ok=True)
        return str(place)


class _Numbers:
    """A run's own numbers, as far as they are written."""

    def __init__(self, begin: Callable[[int, str], Any]) -> None:
        """`begin` makes a writer whose file stands for all steps from that one on.

        And the end of the file's name: two of one second are read in the order of their names.
        """
        self._begin = begin
        self._files = 0
        self._writer: Any = None
        self._written: dict[str, tuple[int, int, int]] = {}  # name: attempt, step, how many by then

    def tell(self, curves: Sequence[Curve]) -> None:
        """Write what was kept and is new; raises OSError."""
        since = min((step for one in curves if (step := self._lost_from(one)) is not None),
                    default=None)  # fmt: skip
        since = 0 if self._writer is None else since
        if since is not None:
            self.close()
            self._files += 1
            self._writer = self._begin(since, f".{self._files:06}")
        for one in curves:
            kept = one.kept
            new = slice(self._still_there(one), None) if since is None else kept.step >= since
            rows = zip(kept.step[new], kept.value[new], kept.at_s[new], strict=True)
            for step, value, at_s in rows:
                self._writer.add_scalar(one.name, float(value), int(step), walltime=float(at_s))
            if len(kept):
                newest = int(kept.attempt[-1]), int(kept.step[-1])
                self._written[one.name] = *newest, len(kept)
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()

    def _still_there(self, curve: Curve) -> int:
        """How many of its kept values are written."""
        attempt, step, _ = self._written.get(curve.name, (-1, 0, 0))
        kept = curve.kept
        earlier = (kept.attempt < attempt) | ((kept.attempt == attempt) & (kept.step <= step))
        return int(earlier.sum())

    def _lost_from(self, curve: Curve) -> int | None:
        """The first step of which a value is written that was lost; None: none was."""
        there = self._still_there(curve)
        if there >= self._written.get(curve.name, (-1, 0, 0))[2]:
            return None
        return int(curve.kept.step[there - 1]) + 1 if there else 0


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
    logging.getLogger("tensorboardX.x2num").setLevel(logging.ERROR)  # a line for each NaN
    return SummaryWriter


def scalars(sample: Sample) -> Iterator[tuple[str, float]]:
    """Tag and value, of what is known."""
    spent, elapsed_s = sample.run.spent(), sample.elapsed_s()
    if not elapsed_s:
        return
    yield goodput_tag(), percent_of(sample.productive_s(), elapsed_s)
    rolling = ((size_s, sample.run.spent(window).goodput) for window, size_s in ROLLING_S.items())
    for tag, share in (
        ("goodput/scheduling", spent.scheduling),
        ("goodput/runtime", spent.runtime),
        ("goodput/program", spent.program),
        ("goodput/program_of_reached", spent.program_of_reached),
        *((goodput_tag(size_s), share) for size_s, share in rolling),
    ):
        if share is not None:
            yield tag, 100 * share
    for window, size_s in {ALL: 0, **ROLLING_S}.items():
        within_s = sample.elapsed_s(window)
        for kind, seconds in sample.badput_by_type_s(window).items() if within_s else ():
            yield badput_tag(kind, size_s), percent_of(seconds, within_s)
