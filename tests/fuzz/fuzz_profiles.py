"""Readers of a profile: the traces of JAX and PyTorch, what a rank tells, and the summary."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

from fuzz_mutate import mutate_bytes, mutate_json
from fuzz_target import Target, documented, put, sayable

from holdfast.profiles.capture import Capture, read_capture
from holdfast.profiles.chrome import read_chrome
from holdfast.profiles.read import read_trace, summarised, unpacked
from holdfast.profiles.summary import summarise, summary_bytes
from holdfast.profiles.trace import DeviceTrace
from holdfast.profiles.xplane import read_xspace
from holdfast.report.profile_picture import picture

_TRACES = Path(__file__).parents[1] / "profiles" / "traces"
_SHORT = 40  # events of the trace: enough of each kind


def _capture(name: str) -> Capture:
    capture = read_capture(_TRACES / name / "rank-00000.json")
    assert capture is not None
    return capture


def _chrome() -> bytes:
    """A part of the real trace: its marks, some of its events, and a kernel of a GPU."""
    whole = json.loads(gzip.decompress(next((_TRACES / "torch").glob("*.gz")).read_bytes()))
    rows = [row for row in whole["traceEvents"] if row.get("ph") == "X"]
    marks = [row for row in rows if row["name"].startswith("holdfast clock")]
    products = [row for row in rows if row["name"] == "aten::addmm"][:2]
    kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 5, "dur": 2}
    return json.dumps({"traceEvents": [*marks, *products, *rows[:_SHORT], kernel]}).encode()


def _reader(name: str, read: Callable[[bytes], DeviceTrace]) -> Callable[[bytes, Path], None]:
    def target(data: bytes, _: Path) -> None:
        with documented(ValueError):
            found = summarise(read(data), _capture(name))
            for line in picture(found):
                sayable(line)

    return target


def _read_capture(data: bytes, place: Path) -> None:
    path = put(place / "profile" / "rank-00000.json", data)
    with documented(ValueError):
        capture = read_capture(path)
        if capture is not None:
            read_trace(path, capture)


def _read_summary(data: bytes, place: Path) -> None:
    put(place / "summarised" / "summary.json", data)
    found = summarised(place / "summarised")
    if found is not None:
        for line in picture(found):
            sayable(line)


def _summary() -> bytes:
    path = _TRACES / "torch" / "rank-00000.json"
    return summary_bytes(read_trace(path, _capture("torch")))


TARGETS = [
    Target("chrome", _reader("torch", read_chrome), lambda: [_chrome()], mutate_json),
    Target(
        "xplane",
        _reader("jax", read_xspace),
        lambda: [unpacked(next((_TRACES / "jax").glob("*.gz")).read_bytes())],
        mutate_bytes,
        max_bytes=1 << 18,
    ),
    Target(
        "capture",
        _read_capture,
        lambda: [(_TRACES / "torch" / "rank-00000.json").read_bytes()],
        mutate_json,
    ),
    Target("profile", _read_summary, lambda: [_summary()], mutate_json),
]
