from __future__ import annotations

import json
import os

from hypothesis import given
from hypothesis import strategies as st

from holdfast.journal.layout import MAX_LINE_BYTES
from holdfast.journal.sidecar import SidecarWriter, read_sidecar


def test_lines_have_the_offsets_that_were_given(tmp_path):
    path = tmp_path / "a.jsonl"
    writer = SidecarWriter(path)
    offsets = [writer.write({"n": n, "text": "ü" * n}) for n in range(20)]
    writer.close()
    lines, end = read_sidecar(path)
    assert [line.offset for line in lines] == offsets
    assert [line.payload["n"] for line in lines] == list(range(20))
    assert end == path.stat().st_size
    assert writer.write({"n": 21}) is None


def test_reading_goes_on_where_it_stopped(tmp_path):
    path = tmp_path / "a.jsonl"
    assert read_sidecar(path) == ([], 0)
    path.write_bytes(b'{"n": 1}\n{"n":')
    lines, end = read_sidecar(path)
    assert [line.payload for line in lines] == [{"n": 1}]
    with path.open("ab") as file:
        file.write(b" 2}\n")
    lines, end = read_sidecar(path, end)
    assert [(line.offset, line.payload) for line in lines] == [(9, {"n": 2})]
    assert read_sidecar(path, end) == ([], end)


def test_what_is_no_object_is_passed_over(tmp_path):
    path = tmp_path / "a.jsonl"
    torn = [b"\xff\xfe{", b"[1]", b"3", b'{"half": ', b"", b"[" * 9999, b'{"a": NaN']
    path.write_bytes(b'{"n": 1}\n' + b"\n".join(torn) + b'\n{"n": 2}\n')
    assert [line.payload for line in read_sidecar(path)[0]] == [{"n": 1}, {"n": 2}]


def test_a_line_without_end_is_not_kept_in_mind(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"x" * (MAX_LINE_BYTES * 3))
    assert read_sidecar(path) == ([], MAX_LINE_BYTES * 3)
    path.write_bytes(b'{"a": "' + b"x" * MAX_LINE_BYTES + b'"}\n{"n": 1}\n')
    assert [line.payload for line in read_sidecar(path)[0]] == [{"n": 1}]


def test_a_hole_is_passed_over_and_not_read(tmp_path):
    """A terabyte of nothing, before a line: reading it would take the rest of the day."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"n": 1}\n')
    os.truncate(path, 1 << 40)
    lines, end = read_sidecar(path)
    assert [line.payload for line in lines] == [{"n": 1}]
    assert end == 1 << 40


def test_a_line_torn_by_a_full_disk_does_not_spoil_the_next(tmp_path, monkeypatch):
    path = tmp_path / "a.jsonl"
    writer = SidecarWriter(path)
    writer.write({"n": 1})
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:4]))
    assert writer.write({"n": 2}) is None
    monkeypatch.setattr(os, "write", real)
    offset = writer.write({"n": 3})
    writer.close()
    lines, _ = read_sidecar(path)
    assert [(line.offset, line.payload) for line in lines] == [(0, {"n": 1}), (offset, {"n": 3})]


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=4))
def test_any_bytes_read_the_same_in_pieces(tmp_path_factory, data, cuts):
    path = tmp_path_factory.mktemp("s") / "a.jsonl"
    path.write_bytes(data + b'\n{"n": 1}\n')
    whole, _ = read_sidecar(path)
    assert whole[-1].payload == {"n": 1}
    path.write_bytes(b"")
    pieces, end, written = [], 0, 0
    for cut in [*sorted(cuts), len(data) + 10]:
        with path.open("ab") as file:
            file.write((data + b'\n{"n": 1}\n')[written:cut])
        written = max(written, cut)
        lines, end = read_sidecar(path, end)
        pieces += lines
    assert pieces == whole


@given(st.dictionaries(st.text(), st.text() | st.integers() | st.none(), max_size=5))
def test_what_is_written_is_read(tmp_path_factory, payload):
    path = tmp_path_factory.mktemp("s") / "a.jsonl"
    writer = SidecarWriter(path)
    writer.write(payload)
    writer.close()
    ((line,), _) = read_sidecar(path)
    assert line.payload == json.loads(json.dumps(payload))


def test_of_lines_that_a_full_disk_has_cut_those_before_it_stay(tmp_path, monkeypatch):
    path = tmp_path / "a.jsonl"
    writer = SidecarWriter(path)
    payloads = [{"n": n} for n in range(5)]
    write, room = os.write, [20, 0, 1000]  # a line has 8 bytes
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[: room.pop(0)]))
    offsets = [writer.write_all(payloads) for _ in range(3)]
    monkeypatch.undo()
    writer.close()
    assert offsets[0] == [0, 8, None, None, None]
    assert offsets[1] == [None] * 5
    assert [(line.offset, line.payload) for line in read_sidecar(path)[0]] == [
        *zip(offsets[0][:2], payloads[:2], strict=True),
        *zip(offsets[2], payloads, strict=True),
    ]
