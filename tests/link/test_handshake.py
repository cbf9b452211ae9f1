"""Who may speak: who knows the secret, for one connection, run, term and life of a host."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from two_ends import (
    AGENTS_NONCE,
    CONTROLLERS_NONCE,
    ME,
    SECRET,
    TERMS,
    agent,
    controller,
    join,
    joined,
    sent,
)

from holdfast.link.conversation import Conversation
from holdfast.link.frames import LinkError
from holdfast.link.handshake import Terms
from holdfast.link.values import Peer


def test_both_ends_know_who_the_other_is() -> None:
    one, other = joined()
    assert one.peer == other.peer == ME


@pytest.mark.parametrize(
    "terms",
    [
        dataclasses.replace(TERMS, secret=b"t" * 40),
        dataclasses.replace(TERMS, run="ln"),
        dataclasses.replace(TERMS, term=4),
        dataclasses.replace(TERMS, channel=b"another"),
    ],
    ids=["secret", "run", "term", "channel"],
)
def test_what_differs_keeps_both_out(terms: Terms) -> None:
    one, other = agent(terms), controller()
    with pytest.raises(LinkError, match="could not prove that it is an agent of this run"):
        join(one, other)
    assert not other.is_proved
    assert not other.outgoing  # the stranger is told nothing
    assert not one.is_proved


def test_a_stranger_gets_a_nonce_and_no_word_more() -> None:
    one, other = agent(), controller()
    assert other.outgoing == b""  # it does not speak first
    other.receive(sent(one), 0)
    assert sent(other) == CONTROLLERS_NONCE


@given(st.binary(min_size=8, max_size=200))
def test_rubbish_is_refused_or_waited_for_and_never_proves(data: bytes) -> None:
    for end in (agent(), controller()):
        sent(end)
        try:
            end.receive(data, 0)
        except LinkError:
            continue
        assert not end.is_proved


@given(st.lists(st.integers(1, 60), max_size=30))
def test_in_pieces_of_any_size(sizes: list[int]) -> None:
    one, other = agent(), controller()
    left = {one: b"", other: b""}
    pieces = itertools.chain(sizes, itertools.repeat(1))
    while not (one.is_proved and other.is_proved):
        left[other] += sent(one)
        left[one] += sent(other)
        for end in (one, other):
            size = next(pieces)
            end.receive(left[end][:size], 0)
            left[end] = left[end][size:]
    assert one.peer == other.peer == ME


class _Recorded:
    """The four flights of one good handshake, and those of another connection."""

    def __init__(self, agents: bytes, controllers: bytes) -> None:
        one = Conversation.of_agent(TERMS, ME, agents)
        other = Conversation.of_controller(TERMS, controllers)
        self.flights = []
        for here, there in ((one, other), (other, one)) * 2:
            self.flights.append(sent(here))
            there.receive(self.flights[-1], 0)


OLD = _Recorded(b"\x03" * 32, b"\x04" * 32).flights
NOW = _Recorded(AGENTS_NONCE, CONTROLLERS_NONCE).flights


def test_every_order_of_flights_old_and_new() -> None:
    """To each end any three of: those of now, those of an old connection, rubbish.

    An attacker who saw both gets in only by carrying the true flights in their order.
    """
    said = [*NOW, *OLD, bytes(40)]
    for start, true in ((controller, (0, 2)), (agent, (1, 3))):
        proved = set()
        for flights in itertools.product(range(9), repeat=3):
            end = start()
            sent(end)
            heard: list[int] = []
            with contextlib.suppress(LinkError):
                for flight in flights:
                    end.receive(said[flight], 0)
                    heard.append(flight)
                    if end.is_proved:
                        proved.add(tuple(heard))
                        break
        assert proved == {true}


def test_every_flipped_bit_of_the_handshake_is_noticed() -> None:
    """In a proof or in what it is about; the magic, too."""
    for number, flight in enumerate(NOW):
        for bit in range(len(flight) * 8):
            changed = bytearray(flight)
            changed[bit // 8] ^= 1 << bit % 8
            with pytest.raises(LinkError):
                _carry(number, bytes(changed))


def _carry(changed_flight: int, changed: bytes) -> None:
    one, other = agent(), controller()
    for number in range(4):
        here, there = (one, other) if number % 2 == 0 else (other, one)
        flight = sent(here)
        there.receive(changed if number == changed_flight else flight, 0)


def test_an_end_that_meets_itself_is_refused() -> None:
    """Reflection: what it says comes back to it."""
    one = agent()
    with pytest.raises(LinkError, match="spoke before its turn"):
        one.receive(sent(one), 0)
    one, twin = agent(), agent()
    twin_said = sent(twin)
    sent(one)
    one.receive(CONTROLLERS_NONCE, 0)
    with pytest.raises(LinkError, match="could not prove that it is the controller"):
        one.receive(sent(one)[-32:], 0)
    assert twin_said == NOW[0]


def test_who_speaks_before_its_turn_is_refused() -> None:
    other = controller()
    with pytest.raises(LinkError, match="spoke before its turn"):
        other.receive(NOW[0] + NOW[2], 0)


def test_another_protocol_is_refused_at_its_first_bytes() -> None:
    with pytest.raises(LinkError, match="another protocol"):
        controller().receive(b"GET", 0)


def test_a_secret_is_in_no_repr() -> None:
    assert SECRET.decode() not in repr(TERMS)


@pytest.mark.parametrize(
    ("index", "incarnation"), [(-1, "a1" * 16), (2**32, "a1" * 16), (0, "x"), (0, "A1" * 16)]
)
def test_what_is_no_peer(index: int, incarnation: str) -> None:
    with pytest.raises(ValueError, match=r"index|incarnation"):
        Peer(index, incarnation)
