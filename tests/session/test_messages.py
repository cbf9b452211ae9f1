"""What ranks without a supervisor say to one another: nothing lost on the way, no rubbish in."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.session.messages import (
    MAX_MESSAGE_BYTES,
    MAX_WORD,
    FollowerSays,
    LeaderSays,
    Welcome,
)

words = st.integers(0, MAX_WORD)
texts = st.text(max_size=40)
holders = st.dictionaries(st.sampled_from(["host", "pid", "boot_id"]), st.text() | st.integers())

followers = st.builds(
    FollowerSays,
    rank=st.integers(1, 10_000),
    me=texts,
    to=texts,
    number=words,
    run=texts,
    world_size=words,
    holder=holders,
    sent_ns=words,
    choice=words,
    refused=st.none() | texts,
    report=holders,
)
leaders = st.builds(
    LeaderSays,
    me=texts,
    number=words,
    run=texts,
    world_size=words,
    attempt=words,
    lease_epoch=words,
    holder=holders,
    sent_ns=words,
    choice=words,
    set_name=st.none() | texts,
    set_step=words,
    set_parent=st.none() | words,
    skip_batches=words,
    refusal=st.none() | texts,
    closing=st.booleans(),
    order=holders,
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(followers | leaders | st.builds(Welcome, leader=texts, follower=texts))
def test_what_is_said_is_what_is_heard(message: FollowerSays | LeaderSays | Welcome) -> None:
    assert type(message).from_bytes(message.to_bytes()) == message


@given(followers, st.sampled_from(sorted(json.loads(FollowerSays(
    1, "", "", 0, "", 2, {}).to_bytes()))), anything)  # fmt: skip
def test_a_field_of_another_kind_is_refused_or_fits(
    message: FollowerSays, name: str, value: Any
) -> None:
    raw = json.loads(message.to_bytes())
    raw[name] = value
    try:
        heard = FollowerSays.from_bytes(json.dumps(raw).encode())
    except ValueError:
        return
    assert heard == message if name == "v" else getattr(heard, name) == value
    assert FollowerSays.from_bytes(heard.to_bytes()) == heard


@given(st.binary(max_size=200))
def test_rubbish_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        LeaderSays.from_bytes(data)


def test_a_newer_holdfast_is_named() -> None:
    with pytest.raises(ValueError, match="speaks protocol 7, this Holdfast 4"):
        Welcome.from_bytes(b'{"v": 7, "leader": "a", "follower": "b"}')


def test_a_message_out_of_all_proportion_is_not_parsed() -> None:
    with pytest.raises(ValueError, match="bytes"):
        Welcome.from_bytes(b" " * (MAX_MESSAGE_BYTES + 1))
