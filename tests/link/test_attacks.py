"""An attacker who holds all that was ever said on any connection, and can say it again anywhere.

Each end is played alone, in virtual time. What it hears is made of the true bytes of its own
connection and of pieces of others: other nonces, host, life, run, term, secret or channel, the rest
the same. The oracle knows nothing of proofs: an end may believe the longest beginning that is true.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from two_ends import TERMS, sent

from holdfast.link import conversation as conversation_module
from holdfast.link import handshake as handshake_module
from holdfast.link.conversation import LIMIT_BYTES, MAC_BYTES, Conversation
from holdfast.link.frames import FrameReader, LinkError
from holdfast.link.handshake import NONCE_BYTES, PROOF_BYTES, Terms
from holdfast.link.values import Peer

HELLO_BYTES, NAMED_BYTES = 40, 52  # the agent's first and second flight
Attack = list[bytes]  # what an end hears, piece by piece


class Session(NamedTuple):
    """One connection between two honest ends."""

    terms: Terms = TERMS
    peer: Peer = Peer(4, "a1" * 16)
    agents: bytes = b"\x01" * 32
    controllers: bytes = b"\x02" * 32

    def end(self, *, hears_agent: bool) -> Conversation:
        if hears_agent:
            return Conversation.of_controller(self.terms, self.controllers)
        return Conversation.of_agent(self.terms, self.peer, self.agents)


NOW = Session()
OTHERS = [
    NOW._replace(agents=b"\x03" * 32, controllers=b"\x04" * 32),  # an old connection
    NOW._replace(agents=b"\x03" * 32),
    NOW._replace(controllers=b"\x04" * 32),
    NOW._replace(peer=Peer(5, "a1" * 16)),
    NOW._replace(peer=Peer(4, "b2" * 16)),
    NOW._replace(terms=dataclasses.replace(TERMS, term=4)),
    NOW._replace(terms=dataclasses.replace(TERMS, run="ln")),
    NOW._replace(terms=dataclasses.replace(TERMS, secret=b"t" * 40)),
    NOW._replace(terms=dataclasses.replace(TERMS, channel=b"another")),
]
SESSIONS = [NOW, *OTHERS]


class Recorded(NamedTuple):
    """What went over the wire, flight by flight and frame by frame, and what was meant."""

    up: list[bytes]
    down: list[bytes]

    def heard(self, *, hears_agent: bool) -> list[bytes]:
        return self.up if hears_agent else self.down


def _record(session: Session) -> Recorded:
    one, other = session.end(hears_agent=False), session.end(hears_agent=True)
    up, down = [sent(one)], []
    other.receive(up[0], 0)
    for _ in range(2):
        down.append(sent(other))
        one.receive(down[-1], 0)
        if flight := sent(one):
            up.append(flight)
            other.receive(flight, 0)
    assert one.is_proved
    assert other.is_proved
    for number in range(2):
        for end, flights in ((one, up), (other, down)):
            end.say(json.dumps({"number": number, "by": len(flights)}).encode())
            flights.append(sent(end))
        one.beat(number)
        up.append(sent(one))
        for frame in up[-2:]:
            other.receive(frame, 0)
        down.append(sent(other))  # the answer to the heartbeat
    return Recorded(up, down)


def _messages(chunks: list[bytes]) -> list[tuple[int, dict[str, Any]]]:
    """Each message, and where in the stream its frame ends."""
    found, at = [], 0
    for number, chunk in enumerate(chunks):
        at += len(chunk)
        if number >= 2 and chunk[4 + MAC_BYTES :][:1] == b"M":
            found.append((at, json.loads(chunk[5 + MAC_BYTES :])))
    return found


class Suite:
    """All attacks. It records its own sessions: with a mutant they are the mutant's."""

    def __init__(self) -> None:
        self.recorded = {session: _record(session) for session in SESSIONS}
        self.played = 0

    def play(self, session: Session, attack: Attack, *, hears_agent: bool) -> None:
        """An end of that session hears that; raises AssertionError for what it should not do."""
        self.played += 1
        end, heard, said = session.end(hears_agent=hears_agent), [], 0
        sent(end)  # an agent speaks first
        for piece in attack:
            try:
                message = end.receive(piece, 0)
            except LinkError:
                break
            finally:
                said += len(sent(end))
            heard += [] if message is None else [message]
            if not end.is_proved:
                assert _held_bytes(end) < NAMED_BYTES
        stream = b"".join(attack)
        true, length = self._truth(session, stream, hears_agent=hears_agent)
        flights = [len(flight) for flight in true[:2]]
        may_be_proved = length >= sum(flights)
        meant = [message for at, message in _messages(true) if at <= length]
        assert end.is_proved <= may_be_proved
        assert heard == [message for message in meant if message in heard]  # in order, each once
        if attack is true:
            assert heard == meant
        if end.is_proved:
            assert end.peer is not None
            assert not hears_agent or stream[HELLO_BYTES:].startswith(_name(end.peer))
        else:
            assert said in (0, NONCE_BYTES if hears_agent else NAMED_BYTES)

    def _truth(
        self, session: Session, stream: bytes, *, hears_agent: bool
    ) -> tuple[list[bytes], int]:
        """Of what such an end may believe, what this begins with, and how much of it that is.

        The other end's nonce is its own affair, and so is to the controller which host dials.
        """
        found: list[tuple[int, list[bytes]]] = []
        for other, recorded in self.recorded.items():
            mine = (other.terms, other.controllers) if hears_agent else other[:3]
            ours = (session.terms, session.controllers) if hears_agent else session[:3]
            if mine == ours:
                true = recorded.heard(hears_agent=hears_agent)
                found.append((_common(stream, b"".join(true)), true))
        length, true = max(found, key=lambda one: one[0])
        return true, length

    def run(self) -> None:
        """Attacks on NOW are attacks on each: what differs between two is the same both ways."""
        pieces = [_cut_up(all_)[2:] for one in self.recorded.values() for all_ in one]
        proofs = [piece for all_ in pieces for piece in all_ if len(piece) == PROOF_BYTES]
        assert len(proofs) == len(set(proofs))  # each is about all that differs
        for hears_agent in (True, False):
            true = self.recorded[NOW].heard(hears_agent=hears_agent)
            self.play(NOW, true, hears_agent=hears_agent)
            for attacks in (self._with_pieces, self._with_flights, _with_changed_bytes):
                for attack in attacks(true):
                    self.play(NOW, attack, hears_agent=hears_agent)

    def _with_flights(self, true: list[bytes]) -> Iterator[Attack]:
        """A whole flight or frame of any connection and direction, anywhere; splices."""
        pool = {flight for one in self.recorded.values() for flight in (*one.up, *one.down)}
        for at in range(len(true) + 1):
            yield [*true[:at], *true[at + 1 :]]
            for one in pool:
                yield [*true[:at], one, *true[at:]]
                yield [*true[:at], one, *true[at + 1 :]]
            for other in range(at):
                swapped = list(true)
                swapped[other : at + 1] = reversed(swapped[other : at + 1])
                yield swapped
        for recorded in self.recorded.values():
            for others in recorded:
                for at in range(len(true) + 1):
                    for begin in range(len(others)):
                        yield [*true[:at], *others[begin:]]

    def _with_pieces(self, true: list[bytes]) -> Iterator[Attack]:
        """A name, a proof, a length, a MAC, the bytes of a frame: each in each one's place."""
        mine = _cut_up(true)
        pool = {piece for one in self.recorded.values() for all_ in one for piece in _cut_up(all_)}
        for at in range(len(mine)):
            for piece in pool:
                yield [*mine[:at], piece, *mine[at + 1 :]]
        for at in range(len(mine) - 1):
            for one in self.recorded.values():
                for all_ in one:
                    theirs = _cut_up(all_)
                    for begin in range(len(theirs) - 1):
                        yield [*mine[:at], *theirs[begin : begin + 2], *mine[at + 2 :]]


def _with_changed_bytes(true: list[bytes]) -> Iterator[Attack]:
    """Each bit flipped, each byte left out or said twice, each cut."""
    stream = b"".join(true)
    for at in range(len(stream)):
        before, after = stream[:at], stream[at + 1 :]
        yield _in_turns(before, true)
        yield _in_turns(before + after, true)
        yield _in_turns(before + stream[at : at + 1] + stream[at:], true)
        for bit in range(8):
            yield _in_turns(before + bytes([stream[at] ^ 1 << bit]) + after, true)


def _in_turns(stream: bytes, true: list[bytes]) -> Attack:
    """Cut where the true one is, so that nobody speaks before its turn."""
    pieces, at = [], 0
    for flight in true:
        pieces.append(stream[at : at + len(flight)])
        at += len(flight)
    return [*pieces, stream[at:]]


def _cut_up(flights: list[bytes]) -> list[bytes]:
    first, second, *frames = flights
    pieces = [first[:8], first[8:]] if len(first) == HELLO_BYTES else [first]
    pieces += [second[:-PROOF_BYTES], second[-PROOF_BYTES:]]
    for frame in frames:
        pieces += [frame[:4], frame[4 : 4 + MAC_BYTES], frame[4 + MAC_BYTES :]]
    return [piece for piece in pieces if piece]


def _common(one: bytes, other: bytes) -> int:
    """How many bytes both begin with."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[:middle] == other[:middle] else (low, middle - 1)
    return low


def _name(peer: Peer) -> bytes:
    return peer.index.to_bytes(4, "big") + bytes.fromhex(peer.incarnation)


def _held_bytes(end: Conversation) -> int:
    handshake = end._handshake
    assert handshake is not None
    return len(handshake._came)


def test_what_was_said_elsewhere_or_before_or_changed_is_never_believed() -> None:
    suite = Suite()
    suite.run()
    assert suite.played > 12_000


# --- the tests can fail ---------------------------------------------------------------------


def _proofs_without(index: int) -> Callable[[pytest.MonkeyPatch], None]:
    """Of what a proof is about one thing is left out."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        kind = handshake_module._Proofs
        true = kind.__init__

        def init(self: Any, terms: Terms, agent: Peer, agents: bytes, controllers: bytes) -> None:
            said: list[Any] = [terms.run, terms.term, terms.channel, agent, agents, controllers]
            said[index] = ("", 0, b"", Peer(0, "00" * 16), b"", b"")[index]
            run, term, channel, *others = said
            terms = dataclasses.replace(terms, run=run, term=term, channel=channel)
            true(self, terms, *others)

        patch.setattr(kind, "__init__", init)

    return plant


def _one_label(patch: pytest.MonkeyPatch) -> None:
    true = handshake_module._Proofs.of
    patch.setattr(
        handshake_module._Proofs,
        "of",
        lambda self, label: true(self, label.replace("controller", "agent")),
    )


def _unread_proofs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(handshake_module.hmac, "compare_digest", lambda _, __: True)


def _unnumbered(patch: pytest.MonkeyPatch) -> None:
    numbered = conversation_module._Numbered
    patch.setattr(
        numbered,
        "_next",
        lambda self, payload: handshake_module.hmac.digest(self._key, payload, "sha256"),
    )


def _without_bytes(patch: pytest.MonkeyPatch) -> None:
    numbered = conversation_module._Numbered
    true = numbered._next
    patch.setattr(numbered, "_next", lambda self, payload: true(self, payload[:1]))


def _answers_strangers(patch: pytest.MonkeyPatch) -> None:
    kind = handshake_module.ControllerHandshake
    true = kind.receive

    def receive(self: Any, data: bytes) -> bytes:
        try:
            return true(self, data)
        except LinkError:
            return b"you are no agent of run lm"

    patch.setattr(kind, "receive", receive)


def _collects(patch: pytest.MonkeyPatch) -> None:
    kind = handshake_module.ControllerHandshake
    patch.setattr(kind, "_is_whole", lambda self, size: len(self._came) >= size and False)


MUTANTS = {
    "run": _proofs_without(0),
    "term": _proofs_without(1),
    "channel": _proofs_without(2),
    "host": _proofs_without(3),
    "agent's nonce": _proofs_without(4),
    "controller's nonce": _proofs_without(5),
    "who proves": _one_label,
    "proofs are not read": _unread_proofs,
    "number of a frame": _unnumbered,
    "bytes of a frame": _without_bytes,
    "strangers get an answer": _answers_strangers,
    "strangers are collected": _collects,
}


@pytest.mark.parametrize("left_out", MUTANTS)
def test_what_a_proof_would_leave_out_is_found(
    left_out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    MUTANTS[left_out](monkeypatch)
    with pytest.raises(AssertionError):
        Suite().run()


# --- memory ---------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 7, 1 << 10, 1 << 20])
@pytest.mark.parametrize("hears_agent", [True, False])
def test_a_stranger_has_a_few_bytes_kept_whatever_it_sends(size: int, hears_agent: bool) -> None:
    end, flood = NOW.end(hears_agent=hears_agent), b"HFLINK01" + bytes(1 << 20)
    sent(end)

    def send_all() -> None:
        for at in range(0, len(flood), size):
            end.receive(flood[at : at + size], 0)
            assert _held_bytes(end) < NAMED_BYTES

    with pytest.raises(LinkError):
        send_all()


def test_lengths_beyond_the_limit_end_it_before_anything_is_kept() -> None:
    for length in (LIMIT_BYTES + 1, *(1 << bit for bit in range(25, 32)), 2**32 - 1):
        reader = FrameReader(LIMIT_BYTES)
        reader.feed(length.to_bytes(4, "big") + bytes(100))
        with pytest.raises(LinkError, match="are allowed"):
            reader.next()
