"""Values compare, hash and show themselves as the dataclasses do that they stand for."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

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


@value
class Made(Point):
    parts: list[int] = field(default_factory=list)
    more: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        self.parts.append(self.x)


def test_it_is_made_as_a_dataclass_is():
    """The first object as all that follow."""
    first, second = Made(1), Made(2, "there", [0], more=(3,))
    assert (first.name, first.parts, first.more) == ("here", [1], ())
    assert (second.name, second.parts, second.more) == ("there", [0, 2], (3,))
    assert Made(3).parts == [3], "each has its own"
    for wrong in (Made, lambda: Made(1, y=2), lambda: Made(1, "a", [], (), 5)):
        with pytest.raises(TypeError, match=r"Made\.__init__"):
            wrong()


def test_a_class_that_no_object_was_made_of_says_what_is_wrong():
    @value
    class Unused:
        x: int

    with pytest.raises(TypeError, match=r"Unused.__init__\(\) missing 1 required"):
        Unused()
    assert Unused(1).x == 1
