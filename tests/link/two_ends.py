"""Two ends of the link with the test between them, in virtual time."""

from __future__ import annotations

import json
from typing import Any

from holdfast.link.conversation import Conversation
from holdfast.link.handshake import Terms
from holdfast.link.values import Peer

SECRET = b"s" * 40
TERMS = Terms("lm", 3, SECRET)
ME = Peer(4, "a1" * 16)
AGENTS_NONCE, CONTROLLERS_NONCE = b"\x01" * 32, b"\x02" * 32


def agent(terms: Terms = TERMS, me: Peer = ME) -> Conversation:
    return Conversation.of_agent(terms, me, AGENTS_NONCE)


def controller(terms: Terms = TERMS) -> Conversation:
    return Conversation.of_controller(terms, CONTROLLERS_NONCE)


def sent(end: Conversation) -> bytes:
    data, end.outgoing = end.outgoing, b""
    return data


def join(one: Conversation, other: Conversation, now_s: float = 0.0) -> None:
    """Carry bytes to and fro until neither says any more."""
    while (up := sent(one)) or (down := sent(other)):
        if up:
            other.receive(up, now_s)
        else:
            one.receive(down, now_s)


def joined() -> tuple[Conversation, Conversation]:
    one, other = agent(), controller()
    join(one, other)
    assert one.is_proved
    assert other.is_proved
    return one, other


def as_json(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode()
