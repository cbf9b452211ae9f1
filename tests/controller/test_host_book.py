"""What a controller journals of its hosts, and what a reader of its journal makes of that."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.controller.host_book import EVERY_NS, EXACT_NS, HostBook, Noted, is_news
from holdfast.core.hosts.clocks import ClockBound
from holdfast.core.hosts.placement import NOWHERE, Placement, place
from holdfast.journal.clocks import RunClock
from holdfast.journal.facts.hosts import HostPartSpan, KnownHosts
from holdfast.journal.facts.lines import HostStated, PartsStated, parse_statement

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
from test_remote_hosts import AHEAD, Lab

sys.path.pop(0)

TAKES_NS = 3_000_000  # a message
UNIX = 1_700_000_000_000_000_000
HOUR = 3_600_000_000_000


class Book:
    """A book of the hosts of a lab, and the facts that were written."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.attempt, self.placement = -1, NOWHERE
        self.facts: list[Any] = []
        self.book = HostBook(
            lab.hosts, self.newest, "controller's boot", lambda fact: self.facts.append(dict(fact))
        )

    def newest(self) -> tuple[int, Placement]:
        return self.attempt, self.placement

    def look(self, *, is_launched: bool = False) -> list[Any]:
        """A second later: what is new."""
        self.lab.now_ns += EVERY_NS
        self.facts.clear()
        self.book.look(self.lab.now_ns, UNIX, is_launched=is_launched)
        return list(self.facts)


def talk(lab: Lab, seat: Any, times: int = 3) -> None:
    for _ in range(times):
        lab.up(seat)
        lab.down(seat)


@pytest.fixture
def book() -> Book:
    lab = Lab(slots=2, spares=1, takes_ns=TAKES_NS)
    for index in range(3):
        seat = lab.seat(index)
        seat.boot, seat.slice = f"boot {index}", "a" if index < 2 else "b"
        seat.wall_ns = UNIX - AHEAD + index * HOUR
        talk(lab, seat)
    return Book(lab)


def test_each_host_is_told_once_with_the_difference_of_its_clock(book):
    facts = book.look()
    assert [(one["host"], one["state"], one["slot"], one["slice"]) for one in facts] == [
        (0, "assigned", 0, "a"), (1, "assigned", 1, "a"), (2, "spare", None, "b")
    ]  # fmt: skip
    for one in facts:
        assert (one["fact"], one["boot"]) == ("host", f"boot {one['host']}")
        assert TAKES_NS <= one["error_ns"] <= 2 * TAKES_NS
        assert abs(one["offset_ns"] + AHEAD) <= one["error_ns"]
        assert abs(one["ahead_ns"] - one["host"] * HOUR) <= EVERY_NS + 100_000_000
    assert book.look() == []


def test_within_the_second_nothing_is_looked_at_but_a_new_attempt(book):
    book.look()
    book.attempt, book.placement = 0, place(4, [0, 1])
    book.facts.clear()
    book.book.look(book.lab.now_ns, UNIX, is_launched=False)
    assert book.facts == []
    book.book.look(book.lab.now_ns, UNIX, is_launched=True)
    (fact,) = book.facts
    assert (fact["fact"], fact["attempt"]) == ("parts", 0)
    assert fact["parts"] == [[0, 0, 1], [1, 2, 3]]
    assert book.look(is_launched=True) == []


def test_a_host_that_is_lost_and_the_spare_in_its_place_are_told(book):
    book.look()
    book.lab.hosts.gone("host 1", "its node is gone")
    facts = book.look()
    assert [(one["host"], one["state"], one["slot"]) for one in facts] == [
        (1, "lost", None), (2, "assigned", 1)
    ]  # fmt: skip


def test_the_controllers_own_clock_needs_no_measuring():
    lab = Lab(slots=1)
    lab.seat(0)
    seat = lab.seat(0)
    seat.boot = "controller's boot"
    lab.up(seat)
    (fact,) = Book(lab).look()
    assert (fact["offset_ns"], fact["error_ns"]) == (0, 0)


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (None, ClockBound(5, 1000), True),
        (ClockBound(5, 400_000), ClockBound(9, 210_000), False),  # little better
        (ClockBound(5, 400_000), ClockBound(9, 200_000), True),
        (ClockBound(5, EXACT_NS), ClockBound(5, 1), False),  # exact enough
        (ClockBound(0, EXACT_NS), ClockBound(3 * EXACT_NS, EXACT_NS), True),  # drifted apart
        (ClockBound(0, EXACT_NS), None, False),
    ],
)
def test_of_a_clock_what_is_better_or_contradicts_is_news(before, now, expected):
    def host(clock):
        return Noted("assigned", 0, "", 4, "boot", clock)

    assert is_news(host(before), host(now)) is expected


def test_a_reader_makes_of_it_what_was_written(book):
    written = book.look()
    book.attempt, book.placement = 0, place(4, [0, 1])
    written += book.look(is_launched=True)
    book.attempt = 1
    written += book.look(is_launched=True)
    book.lab.hosts.gone("host 1", "its node is gone")
    written += book.look()
    book.attempt = 2
    written += book.look(is_launched=True)
    hosts, place_of = KnownHosts(), (-1, "controller-000001.hfj")
    for fact in written:
        told = parse_statement(fact, 7)
        if isinstance(told, HostStated):
            hosts.take(place_of, told)
        else:
            assert isinstance(told, PartsStated)
            hosts.take_parts(place_of, told)
    known = hosts.all(RunClock())
    assert [(one.index, one.state, one.slot, one.slice) for one in known] == [
        (0, "assigned", 0, "a"), (1, "lost", None, "a"), (2, "assigned", 1, "b")
    ]  # fmt: skip
    assert [one.parts for one in known] == [
        (HostPartSpan(0, 2, 0, 1),), (HostPartSpan(0, 1, 2, 3),), (HostPartSpan(2, 2, 2, 3),)
    ]  # fmt: skip
    assert [hosts.host_of(attempt, 3) for attempt in (0, 1, 2, 3)] == [1, 1, 2, None]


@pytest.mark.parametrize(
    "damage",
    [{"host": -1}, {"host": 2**40}, {"state": 7}, {"error_ns": -1}, {"boot": None}, {"slot": "x"}],
)
def test_a_damaged_fact_says_nothing(book, damage):
    (fact, *_) = book.look()
    assert parse_statement(fact, 0) is not None
    assert parse_statement(fact | damage, 0) is None


@pytest.mark.parametrize("parts", [None, 7, [7], [[0, 1]], [[0, -1, 2]], [["a", 0, 1]]])
def test_damaged_parts_say_nothing(parts):
    fact = {"fact": "parts", "at_ns": 5, "attempt": 0, "parts": parts}
    assert parse_statement(fact, 0) is None
    assert parse_statement(fact | {"parts": []}, 0) is not None
