"""What `holdfast calibrate` measured, by device: one small file of this user on this host."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from holdfast.core.ledger.program import MAX_FLOPS
from holdfast.errors import StoreUnavailable
from holdfast.journal.atomic import encode_json, make_folder, read_json, write_atomic
from holdfast.journal.fields import text, whole

FORMAT = 1
MAX_BYTES = 1 << 20
MAX_UNIX_S = 10**11
FLOATS = ("bf16", "fp16", "tf32", "fp32")  # in which a training may go on by default


@dataclass(frozen=True, slots=True)
class Calibration:
    """What one device reached: FLOP/s by type of numbers, and bytes a second.

    `copy_bytes`: memory read and written. `together` devices summed something up, each sending and
    receiving `together_bytes`; 0: there was one. `at_unix_s`: when. `by`: which framework's.
    """

    device: str
    at_unix_s: int
    by: str
    flops: Mapping[str, int] = field(default_factory=dict)
    copy_bytes: int = 0
    together: int = 0
    together_bytes: int = 0

    def peak(self, dtype: str, *, of_any: bool = False) -> tuple[str, int]:
        """The type and what was reached in it; ("", 0): it was not measured.

        `of_any`: the fastest of float types. A device that no data sheet is known of may reach more
        in another type than the one that is the convention elsewhere.
        """
        if of_any:
            reached = {one: self.flops[one] for one in FLOATS if one in self.flops}
            if reached:
                return max(reached.items(), key=lambda one: one[1])
        return (dtype, self.flops[dtype]) if dtype in self.flops else ("", 0)


def read_calibrations(path: Path) -> dict[str, Calibration]:
    """By device; empty where nothing was measured. Raises ValueError for any other file."""
    try:
        raw = read_json(path, MAX_BYTES)
        devices = raw.get("devices")
        if raw.get("format") != FORMAT or not isinstance(devices, list):
            raise ValueError("it is of another format")
        found = [_calibration(one) for one in devices]
    except FileNotFoundError:
        return {}
    except (StoreUnavailable, ValueError) as error:
        raise ValueError(f"{path} is no file of `holdfast calibrate`: {error}") from None
    return {one.device: one for one in found}


def _calibration(raw: Any) -> Calibration:
    if not isinstance(raw, dict) or not isinstance(raw.get("flops"), dict):
        raise ValueError("it has no flops")
    flops = {str(one): whole(raw["flops"], one, 1, MAX_FLOPS) for one in raw["flops"]}
    return Calibration(
        text(raw, "device"),
        whole(raw, "at_unix_s", high=MAX_UNIX_S),
        text(raw, "by"),
        flops,
        whole(raw, "copy_bytes"),
        whole(raw, "together"),
        whole(raw, "together_bytes"),
    )


def write_calibration(path: Path, one: Calibration) -> None:
    """Beside those of other devices. Raises StoreUnavailable where the folder takes no file."""
    known: dict[str, Calibration] = {}
    with contextlib.suppress(ValueError):  # what is no calibration is written anew
        known = read_calibrations(path)
    known[one.device] = one
    make_folder(path.parent)
    write_atomic(path, encode_json({"format": FORMAT, "devices": [*map(asdict, known.values())]}))
