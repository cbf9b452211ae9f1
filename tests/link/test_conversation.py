"""After the handshake: registers, heartbeats, an attacker in the middle who changes nothing."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from two_ends import TERMS, agent, as_json, controller, join, joined, sent

from holdfast.link.conversation import Conversation
from holdfast.link.frames import LinkError, pack_frame


def test_a_message_each_way() -> None:
    one, other = joined()
    one.say(as_json({"report": 1}))
    assert other.receive(sent(one), 0) == {"report": 1}
    other.say(as_json({"order": 1}))
    assert one.receive(sent(other), 0) == {"order": 1}


def test_the_newest_of_several_counts() -> None:
    one, other = joined()
    for number in range(5):
        one.say(as_json({"report": number}))
    one.beat(0)
    assert other.receive(sent(one), 0) == {"report": 4}


def test_a_round_trip_is_measured_on_one_clock_and_told_to_the_other_end() -> None:
    one, other = joined()
    assert math.isnan(one.round_trip_s)
    one.beat(100.0)
    assert other.receive(sent(one), 7.0) is None
    assert math.isnan(other.round_trip_s)
    one.receive(sent(other), 100.25)
    assert one.round_trip_s == 0.25
    one.beat(101.0)
    other.receive(sent(one), 8.0)
    assert other.round_trip_s == 0.25


@pytest.mark.parametrize("kind", [b"Q" + bytes(8), b"X", b"P", b"P" + bytes(17), b"M", b"M[]"])
def test_a_peer_that_speaks_nonsense_is_refused(kind: bytes) -> None:
    one, other = joined()
    one._send(kind)
    with pytest.raises(LinkError):
        other.receive(sent(one), 0)


def test_an_agent_does_not_answer_heartbeats() -> None:
    one, other = joined()
    other._send(b"P" + bytes(16))
    with pytest.raises(LinkError, match="not known"):
        one.receive(sent(other), 0)


def test_nothing_is_sent_before_both_are_proved() -> None:
    for end in (agent(), controller()):
        with pytest.raises(RuntimeError, match="before both ends are proved"):
            end.say(b"{}")


def test_frames_without_a_proof_are_refused() -> None:
    _, other = joined()
    with pytest.raises(LinkError, match="changed, repeated or left out"):
        other.receive(pack_frame(b"M{}"), 0)


_ACTS = st.sampled_from(["flip", "drop", "repeat", "swap", "reflect", "cut"])


@given(st.integers(1, 6), _ACTS, st.integers(0, 5), st.integers(0, 10_000))
def test_an_attacker_in_the_middle_ends_the_connection_and_changes_nothing(
    count: int, act: str, at: int, bit: int
) -> None:
    """Up to the frame that was touched the messages are the true ones; after it there is none."""
    one, other = joined()
    frames = []
    for number in range(count):
        one.say(as_json({"report": number}))
        frames.append(sent(one))
    other.say(as_json({"order": 0}))
    back = sent(other)
    at %= count
    attacked = list(frames)
    if act == "flip":
        changed = bytearray(frames[at])
        changed[bit // 8 % len(changed)] ^= 1 << bit % 8
        attacked[at] = bytes(changed)
    elif act == "drop":
        del attacked[at]
    elif act == "repeat":
        attacked.insert(at, frames[at])
    elif act == "swap":
        attacked[at], attacked[at - 1] = attacked[at - 1], attacked[at]
    elif act == "reflect":
        attacked.insert(at, back)
    else:
        attacked[at] = frames[at][: bit % len(frames[at])]
    heard = []
    for data in attacked:
        try:
            message = other.receive(data, 0)
        except LinkError:
            break
        if message is not None:
            heard.append(message["report"])
    assert heard == list(range(len(heard)))
    if attacked != frames and len(attacked) > at + 1:
        assert len(heard) <= at + (act == "repeat")


def test_frames_of_an_earlier_connection_are_refused() -> None:
    one, _ = joined()
    one.say(as_json({"report": "old"}))
    later, other = agent(), Conversation.of_controller(TERMS, b"\x09" * 32)
    join(later, other)
    with pytest.raises(LinkError, match="changed, repeated or left out"):
        other.receive(sent(one), 0)
