"""What rank 0 tells of its steps' FLOPs, and of the device they run on: once, in its journal."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.errors import ConfigurationError
from holdfast.journal.clocks import now_ns
from holdfast.journal.layout import NoteType

if TYPE_CHECKING:
    from holdfast.session.attachment import Attachment

MOST_FLOPS = 1e26
MOST_GAPS = 16


class Device(NamedTuple):
    """Its name, and on how many of them the program runs; 0: that is not known."""

    name: str
    many: int


class StepFlops:
    """Holds what the script says until the first step is done: by then the device is open."""

    def __init__(self, attachment: Attachment) -> None:
        self._attachment = attachment
        self._flops = 0
        self._bytes = 0
        self._left_out: tuple[str, ...] = ()
        self._dtype = "bf16"
        self._has_stepped = False
        self._written: dict[str, Any] = {}

    def tell(self, per_step: Any, dtype: str) -> None:
        """The FLOPs of a step; raises ConfigurationError for what is no such number."""
        from holdfast.program.peaks import DTYPES

        flops = getattr(per_step, "model", per_step)
        is_number = isinstance(flops, int | float) and not isinstance(flops, bool)
        if not is_number or not math.isfinite(flops) or not 1 <= flops <= MOST_FLOPS:
            raise ConfigurationError(
                f"run.flops(per_step={per_step!r}): give the FLOPs of one step, more than 0, or "
                "what holdfast.program counts"
            )
        if dtype not in DTYPES:
            raise ConfigurationError(f"run.flops(dtype={dtype!r}): give one of {', '.join(DTYPES)}")
        self._flops, self._dtype = round(flops), dtype
        self._bytes = int(getattr(per_step, "executed_bytes", 0))
        self._left_out = tuple(map(str, getattr(per_step, "left_out", ())))[:MOST_GAPS]
        if self._has_stepped:
            self._write()

    def stepped(self) -> None:
        """The first step is done."""
        self._has_stepped = True
        self._write()

    def _write(self) -> None:
        if self._attachment.rank or self._attachment.is_inert:
            return
        device = find_device()
        if not device.name and not self._flops:
            return
        from holdfast.program.peaks import peak_of

        peak = peak_of(device.name, self._dtype)
        fact = {
            "fact": "program",
            "flops": self._flops,
            "bytes": self._bytes,
            "left_out": list(self._left_out),
            "device": device.name,
            "devices": device.many,
            "dtype": self._dtype,
            "chip": peak.chip if peak else "",
            "peak_flops": peak.flops if peak else 0,
        }
        if fact != self._written:
            self._written = fact
            self._attachment.writer.note(NoteType.FACT, fact | {"at_ns": now_ns()})


def find_device() -> Device:
    """The device that the script has opened, by its framework; none is opened to find out."""
    on_jax = on_torch = Device("", 0)
    try:
        bridge = sys.modules.get("jax._src.xla_bridge")
        if bridge is not None and bridge.backends_are_initialized():
            jax = sys.modules["jax"]
            kinds = sorted({str(device.device_kind) for device in jax.devices()})
            on_jax = Device(" and ".join(kinds), len(jax.devices()))
    except Exception:  # another version of JAX: the device is not known, and the training goes on
        on_jax = Device("", 0)
    if on_jax.name.lower() not in ("", "cpu"):
        return on_jax
    try:
        torch = sys.modules.get("torch")
        if torch is not None:
            has_cuda = torch.cuda.is_initialized()
            on_torch = Device(str(torch.cuda.get_device_name()) if has_cuda else "cpu", 0)
    except Exception:
        on_torch = Device("", 0)
    return on_jax if on_torch.name in ("", "cpu") and on_jax.name else on_torch
