"""The link's port: what strangers say, and what a peer says whose proofs are right."""

from __future__ import annotations

from pathlib import Path

from fuzz_mutate import mutate_bytes, mutate_json
from fuzz_target import Target, documented

from holdfast.link.conversation import Conversation
from holdfast.link.frames import LinkError
from holdfast.link.handshake import Terms
from holdfast.link.values import Peer

_TERMS = Terms("lm", 3, b"s" * 40)
_PEER = Peer(4, "a1" * 16)


def _ends() -> tuple[Conversation, Conversation]:
    return (
        Conversation.of_agent(_TERMS, _PEER, b"\x01" * 32),
        Conversation.of_controller(_TERMS, b"\x02" * 32),
    )


def _sent(end: Conversation) -> bytes:
    data, end.outgoing = end.outgoing, b""
    return data


def _joined() -> tuple[Conversation, Conversation]:
    agent, controller = _ends()
    for here, there in ((agent, controller), (controller, agent)) * 2:
        there.receive(_sent(here), 0)
    return agent, controller


def _read_stranger(data: bytes, _place: Path) -> None:
    for end in _ends():
        with documented(LinkError):
            end.receive(data[:40], 0)
            end.receive(data[40:], 0)
        assert not end.is_proved


def _read_proved(data: bytes, _place: Path) -> None:
    for end in _joined():
        with documented(LinkError):
            message = end.receive(data, 0)
            assert message is None


def _read_peer(data: bytes, _place: Path) -> None:
    """The bytes are what a peer sends as a frame."""
    for from_agent in (True, False):
        here, there = _joined() if from_agent else _joined()[::-1]
        here._send(data)
        with documented(LinkError):
            message = there.receive(_sent(here), 0)
            assert message is None or isinstance(message, dict)


def _handshake() -> bytes:
    agent, controller = _ends()
    hello = _sent(agent)
    controller.receive(hello, 0)
    agent.receive(_sent(controller), 0)
    return hello + _sent(agent)[:-1]  # whole, it would be a proof


def _frames() -> bytes:
    agent, _ = _joined()
    agent.beat(1.0)
    agent.beat(2.0)
    return _sent(agent)


TARGETS = [
    Target("link-stranger", _read_stranger, lambda: [_handshake()], mutate_bytes),
    Target("link-proved", _read_proved, lambda: [_frames()], mutate_bytes),
    Target("link-peer", _read_peer, lambda: [b"P" + bytes(16)], mutate_bytes),
    Target(
        "link-message",
        lambda data, place: _read_peer(b"M" + data, place),
        lambda: [b'{"report": {"number": 1, "ranks": [1, 2]}}'],
        mutate_json,
    ),
]
