"""What rank 0 tells of its steps' FLOPs, and of the device they run on: once, in its journal."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import ConfigurationError
from holdfast.journal.clocks import now_ns
from holdfast.journal.layout import NoteType

if TYPE_CHECKING:
    from holdfast.program.flops import Flops
    from holdfast.session.attachment import Attachment

MOST_FLOPS = 1e26
MOST_GAPS = 16
MOST_TOKENS = 2**48 - 1  # what a record of the journal holds
DEFAULT_DTYPE = "bf16"
SMALLER = "calls with smaller shapes, each of which counts like the largest"


class StepFlops:
    """Holds what the script says until the first step is done: by then the device is open."""

    def __init__(
        self, attachment: Attachment, calibrated: Callable[[], Path] | None = None
    ) -> None:
        """`calibrated` says where calibrations of this host are kept."""
        self._attachment = attachment
        self._calibrated = calibrated
        self._flops = 0
        self._bytes = self._tokens = 0
        self._left_out: tuple[str, ...] = ()
        self._functions: dict[str, None] = {}  # that run.compile counted, in order
        self._dtype = DEFAULT_DTYPE
        self._has_stepped = self._is_said = False
        self._written: dict[str, Any] = {}

    def tell(self, per_step: Any, dtype: str, tokens: Any = None) -> None:
        """The FLOPs of a step; raises ConfigurationError for what is no such number."""
        from holdfast.program.peaks import DTYPES

        flops = getattr(per_step, "model", per_step)
        if flops == 0 and (gaps := getattr(per_step, "left_out", ())):
            raise ConfigurationError(
                f"run.flops: nothing could be counted, for it leaves out {'; '.join(gaps)}: give "
                "the number itself, or what the count lacks (while_turns, a kernel's cost_estimate)"
            )
        is_number = isinstance(flops, Real) and not isinstance(flops, bool)
        if not is_number or not math.isfinite(flops) or not 1 <= flops <= MOST_FLOPS:
            raise ConfigurationError(
                f"run.flops(per_step={per_step!r}): give the FLOPs of one step, a number from 1 to "
                f"{MOST_FLOPS:g}, or what holdfast.program counts"
            )
        if dtype not in DTYPES:
            raise ConfigurationError(f"run.flops(dtype={dtype!r}): give one of {', '.join(DTYPES)}")
        is_whole = isinstance(tokens, Integral) and not isinstance(tokens, bool)
        if tokens is not None and not (is_whole and 1 <= tokens <= MOST_TOKENS):
            raise ConfigurationError(
                f"run.flops(tokens={tokens!r}): give the tokens of the step that was counted, a "
                "whole number, 1 or more"
            )
        self._flops, self._dtype, self._tokens = round(flops), dtype, int(tokens or 0)
        self._bytes = int(getattr(per_step, "executed_bytes", 0))
        self._is_said = True
        self._hold(getattr(per_step, "left_out", ()))

    def count(self, flops: Flops, of: str = "") -> None:
        """A step that `run.compile` found or compiled; what the script says itself stays.

        `of`: the function's name. Of its calls with several shapes the dearest counts: the last
        batch of an epoch is smaller. Where nothing could be counted, what is left out is told.
        """
        self._functions[of] = None
        if self._is_said or flops.model > MOST_FLOPS or (self._flops and not flops.model):
            return
        before = self._flops if len(self._functions) == 1 else 0
        gaps = flops.left_out if flops.model >= before else self._left_out
        if before and (flops.model != before or SMALLER in self._left_out):
            gaps = tuple(dict.fromkeys((*gaps, SMALLER)))
        if flops.model >= before:
            self._flops, self._bytes, self._tokens = flops.model, flops.executed_bytes, 0
        if len(self._functions) > 1:
            names = " and ".join(self._functions)
            gaps = (f"{names} are said to be a whole step each, and only {of} counts", *gaps)
        self._hold(gaps)

    def _hold(self, left_out: Iterable[object]) -> None:
        self._left_out = tuple(map(str, left_out))[:MOST_GAPS]
        if self._has_stepped:
            self._write()

    def stepped(self) -> None:
        """The first step is done."""
        self._has_stepped = True
        self._write()

    def _write(self) -> None:
        if self._attachment.rank or self._attachment.is_inert:
            return
        from holdfast.program.device import find_device

        device = find_device()
        if not device.name and not self._flops:
            return
        from holdfast.program.peaks import AS_OF, highest_flops, peak_of

        peak = peak_of(device.name, self._dtype)
        fact = {
            "fact": "program",
            "flops": self._flops,
            "bytes": self._bytes,
            "tokens": self._tokens,
            "left_out": list(self._left_out),
            "device": device.name,
            "devices": device.many,
            "kinds": device.kinds,
            "dtype": self._dtype,
            "chip": peak.chip if peak else "",
            "peak_flops": peak.flops if peak else 0,
            "most_flops": highest_flops(device.name),
            "peak_source": peak.source if peak else "",
            "peak_as_of": AS_OF if peak else "",
            **_reached(
                None if self._calibrated is None else self._calibrated(),
                device.name,
                self._dtype,
                peak is not None,
            ),
        }
        if fact != self._written:
            self._written = fact
            self._attachment.writer.note(NoteType.FACT, fact | {"at_ns": now_ns()})


def _reached(path: Path | None, device: str, dtype: str, has_sheet: bool) -> dict[str, Any]:
    """What `holdfast calibrate` measured of this device. A file of rubbish says nothing."""
    from holdfast.journal.calibrated import read_calibrations

    found = None
    with contextlib.suppress(ValueError):
        found = None if path is None else read_calibrations(path).get(device)
    if found is None:
        return {}
    reached_dtype, flops = found.peak(dtype, of_any=not has_sheet and dtype == DEFAULT_DTYPE)
    return {
        "reached_flops": flops,
        "reached_dtype": reached_dtype,
        "reached_bytes": found.copy_bytes,
        "reached_most": max(found.flops.values(), default=0),
        "reached_together": found.together,
        "reached_together_bytes": found.together_bytes,
        "reached_on": time.strftime("%Y-%m-%d", time.gmtime(found.at_unix_s)),
    }
