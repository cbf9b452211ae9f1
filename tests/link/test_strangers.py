"""Who connects and proves nothing, in virtual time: few at a time, not for long."""

from __future__ import annotations

from two_ends import agent, controller, join, sent

from holdfast.link.conversation import Conversation
from holdfast.link.strangers import HANDSHAKE_S, STRANGERS, Strangers


def test_the_oldest_makes_place() -> None:
    strangers: Strangers[int] = Strangers()
    gone = [strangers.admit(number, number / 1e6) for number in range(3 * STRANGERS)]
    assert gone == [None] * STRANGERS + list(range(2 * STRANGERS))
    assert strangers.all() == list(range(2 * STRANGERS, 3 * STRANGERS))


def test_a_byte_now_and_then_is_no_life() -> None:
    """Slow loris: each says its next byte just in time, for ever."""
    strangers: Strangers[Conversation] = Strangers()
    slow = {controller(): 0 for _ in range(STRANGERS)}
    for one in slow:
        strangers.admit(one, 0.0)
    hello = sent(agent())
    now_s = 0.0
    while len(strangers):
        now_s += 0.25
        for one in strangers.all():
            one.receive(hello[slow[one] : slow[one] + 1], now_s)
            slow[one] += 1
        for one in strangers.late(now_s):
            strangers.forget(one)
    assert HANDSHAKE_S < now_s <= HANDSHAKE_S + 0.25


def test_a_crowd_keeps_no_agent_out() -> None:
    """Each agent needs two turns; so many strangers come in each that all others must go."""
    strangers: Strangers[object] = Strangers()
    for turn in range(50):
        one, other = agent(), controller()
        strangers.admit(other, turn)
        gone = {strangers.admit(object(), turn) for _ in range(STRANGERS - 1)}
        assert other not in gone
        join(one, other)
        assert other.is_proved
        strangers.forget(other)


def test_who_is_proved_is_no_stranger_and_never_late() -> None:
    strangers: Strangers[str] = Strangers()
    strangers.admit("a", 0.0)
    strangers.admit("b", 1.0)
    strangers.forget("a")
    strangers.forget("a")
    assert strangers.late(HANDSHAKE_S + 0.5) == []
    assert strangers.late(HANDSHAKE_S + 1.5) == ["b"]
