"""Frames come out as they went in, however the network cuts them; rubbish gets one sentence."""

from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.link.frames import FrameReader, LinkError, pack_frame, pack_json, unpack_json

LIMIT_BYTES = 64
BODIES = st.lists(st.binary(max_size=LIMIT_BYTES), max_size=8)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    LEAVES.filter(lambda leaf: not (isinstance(leaf, float) and math.isinf(leaf))),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


def read_all(reader: FrameReader, data: bytes) -> list[bytes]:
    reader.feed(data)
    bodies = []
    while (body := reader.next()) is not None:
        bodies.append(body)
    return bodies


@given(bodies=BODIES, data=st.data())
def test_frames_come_out_however_they_are_cut(bodies: list[bytes], data: st.DataObject) -> None:
    sent = b"".join(map(pack_frame, bodies))
    cuts = data.draw(st.lists(st.integers(0, len(sent)), max_size=12).map(sorted))
    reader, got = FrameReader(LIMIT_BYTES), []
    for start, end in zip([0, *cuts], [*cuts, len(sent)], strict=True):
        got += read_all(reader, sent[start:end])
    assert got == bodies
    assert reader.is_between_frames


@given(body=st.binary(min_size=1, max_size=LIMIT_BYTES), data=st.data())
def test_a_part_of_a_frame_is_no_frame(body: bytes, data: st.DataObject) -> None:
    sent = pack_frame(body)
    part = sent[: data.draw(st.integers(1, len(sent) - 1))]
    reader = FrameReader(LIMIT_BYTES)
    assert read_all(reader, part) == []
    assert not reader.is_between_frames


def test_a_long_frame_is_refused_by_its_length_alone() -> None:
    reader = FrameReader(LIMIT_BYTES)
    reader.feed(pack_frame(b"x" * (LIMIT_BYTES + 1))[:4])
    with pytest.raises(LinkError, match="a frame of 65 bytes, and 64 are allowed"):
        reader.next()


def test_what_came_before_a_long_frame_still_counts() -> None:
    reader = FrameReader(LIMIT_BYTES)
    reader.feed(pack_frame(b"first") + b"GET / HTTP/1.1\r\n")
    assert reader.next() == b"first"
    with pytest.raises(LinkError, match="a frame of 1195725856 bytes"):
        reader.next()


@given(message=st.dictionaries(st.text(), VALUES))
def test_messages_come_out_as_they_went_in(message: dict[str, object]) -> None:
    assert unpack_json(pack_json(message)) == message


@given(body=st.binary(max_size=80))
def test_any_bytes_are_a_message_or_refused(body: bytes) -> None:
    with contextlib.suppress(LinkError):
        assert isinstance(unpack_json(body), dict)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "a message that is no JSON: Expecting value"),
        (b"\xff\xfe", "a message that is no JSON: 'utf-8' codec can't decode"),
        (b'{"a": NaN}', "a message that is no JSON: NaN is no number"),
        (b'{"a": -Infinity}', "a message that is no JSON: -Infinity is no number"),
        (b"[1]", "a message that is no object, but a list"),
        (b"null", "a message that is no object, but a NoneType"),
        (b'{"a":' + b"[" * 100_000, "a message that is nested too deep"),
        (b'{"a": ' + b"9" * 5000 + b"}", "a message that is no JSON: Exceeds the limit"),
    ],
)
def test_what_is_no_message_is_refused(body: bytes, words: str) -> None:
    with pytest.raises(LinkError, match=words):
        unpack_json(body)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_json_has_not_is_not_sent(value: float) -> None:
    with pytest.raises(ValueError, match="Out of range float"):
        pack_json({"a": value})
