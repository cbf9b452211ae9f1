"""Values compare, hash and show themselves as the dataclasses do that they stand for."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from holdfast.core.value import value


@value
class Nothing:
    pass


@value
class Point:
    x: int
    name: str = "here"


@value
class Other:
    x: int
    name: str = "here"


@dataclass(slots=True, unsafe_hash=True)
class Plain:
    x: int
    name: str = "here"


def test_it_shows_itself_as_a_dataclass():
    assert repr(Point(1)) == repr(Plain(1)).replace("Plain", "Point")
    assert repr(Nothing()) == "Nothing()"


def test_it_is_equal_to_what_has_the_same_fields_and_class():
    assert Point(1) == Point(1, "here")
    assert Point(1) != Point(2)
    assert Point(1) != Other(1)
    assert Nothing() == Nothing()
    assert len({Point(1), Point(1), Point(1, "there")}) == 2
    assert hash(Point(1)) == hash(Plain(1))


def test_it_has_slots_and_can_be_replaced():
    assert replace(Point(1), name="there") == Point(1, "there")
    with pytest.raises(AttributeError):
        Point(1).z = 1
    match Point(1):
        case Point(x, name):
            assert (x, name) == (1, "here")
