"""Readers of other trainers' logs: whatever stands there, a history that holds, or one sentence."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import google_crc32c
from fuzz_mutate import mutate_bytes, mutate_lines
from fuzz_target import Target, documented, put, sayable

from holdfast.convert.asked import ConvertOptions
from holdfast.convert.formats import convert, kind_of
from holdfast.convert.notes import Notes
from holdfast.core.history.line import to_lines
from holdfast.core.history.text import parse_text

_MAXTEXT = """\
Config param steps: 9
I0317 10:00:10.1 77 m.py:1] System Information: Jax Version: 0.9.1
Num_devices: 8, shape (1, 8)
I0317 10:00:11.5 77 m.py:1] completed step: 0, seconds: 1.500, TFLOP/s/device: 3.2, loss: 1
I0317 10:00:12.5 77 m.py:1] completed step: 1, seconds: 1.000, TFLOP/s/device: 3.2, loss: 1
I0317 10:00:12.7 77 m.py:1] [sync] Finished blocking save in 0.20 seconds. Continuing @ /c/1.
I0317 10:00:12.8 77 m.py:1] Starting eval after train step 1
I0317 10:00:12.9 77 m.py:1] Completed eval after train step 1, loss=1.0
{"textPayload": "completed step: 2, seconds: 1.000, loss: 1", "timestamp": "2026-03-17T10:00:14Z"}
Traceback (most recent call last):
2026-03-17T10:09:00.5Z restoring from this run's directory step 1
2026-03-17 10:09:02,5 CET Finished restoring
[rank1]: completed step: 2, seconds: 1.000, loss: 1
completed step: 3, seconds: 1.000, loss: 1
"""
_TABLE = (
    "step,time,seconds,attempt,rank\n0,100,1.5,a,0\n1,2026-03-17T10:00:00+01:00,1,a,0\n2,,2,b,1\n"
)
_ROWS = "".join(json.dumps({"step": n, "elapsed": n % 3, "x": "y"}) + "\n" for n in range(1, 7))
_DOCUMENT = json.dumps([{"about": 1}, *({"step": n, "time": n} for n in range(4))], indent=1)
_BARS = (
    "  0%|          | 0/9 [00:00<?, ?it/s]\r 11%|█         | 1/9 [00:01<00:08,  1.00it/s]\n"
    "{'eval_loss': '0.9', 'eval_runtime': '0.12'}\n"
    " 33%|███       | 3/9 [01:00:03<00:06,  1.00it/s]\n"
    "  0%|          | 0/9 [00:00<?, ?it/s]\r 22%|██        | 2/9 [00:02<00:07,  1.00it/s]\n"
    "{'train_runtime': '2.1'}\n"
)


def _reader(kind: str, name: str) -> Callable[[bytes, Path], None]:
    def read(data: bytes, place: Path) -> None:
        path = put(place / name, data)
        notes = Notes()
        text = ""
        with documented():
            kind_of(path)
            text = "".join(to_lines(convert([path], kind, ConvertOptions(), notes)))
        if text:
            parse_text(text)  # what is written must hold
        for sentence in notes.all():
            sayable(sentence)

    return read


def record(data: bytes) -> bytes:
    """A record of an event file."""

    def crc(of: bytes) -> bytes:
        value: int = google_crc32c.value(of)
        return struct.pack("<I", ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF)

    length = struct.pack("<Q", len(data))
    return length + crc(length) + data + crc(data)


def _read_event(data: bytes, place: Path) -> None:
    """The bytes are an event, with checksums that are right."""
    first = b"\x09" + struct.pack("<d", 100.0) + b"\x1a\x0dbrain.Event:2"
    _reader("tensorboard", "a.tfevents")(record(first) + record(data) + record(_event(9)), place)


def _event(step: int) -> bytes:
    value = b"\x0a\x0atrain/loss\x15" + struct.pack("<f", 1.0)
    summary = b"\x0a" + bytes([len(value)]) + value
    return (
        b"\x09" + struct.pack("<d", 100.0 + step) + b"\x10" + bytes([step])
        + b"\x2a" + bytes([len(summary)]) + summary
    )  # fmt: skip


TARGETS = [
    Target("maxtext", _reader("maxtext", "a.log"), lambda: [_MAXTEXT.encode()], mutate_lines),
    Target(
        "table",
        _reader("table", "a.csv"),
        lambda: [_TABLE.encode(), _ROWS.encode(), _DOCUMENT.encode()],
        mutate_lines,
    ),
    Target("bars", _reader("huggingface", "a.txt"), lambda: [_BARS.encode()], mutate_lines),
    Target(
        "events",
        _reader("tensorboard", "a.tfevents"),
        lambda: [b"".join(record(_event(n)) for n in range(1, 6))],
        mutate_bytes,
    ),
    Target("event", _read_event, lambda: [_event(3)], mutate_bytes),
]
