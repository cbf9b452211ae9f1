"""Dataclasses that nobody changes: events, actions, facts, and what each start imports.

    @value
    class Joined:
        at_ns: int

The type checker holds them frozen, as it holds the types of their fields. Nothing does at run time:
a dataclass that is frozen there takes three times as long to make, which was a seventh of the time
of a simulated run.

Only `__init__` is written and compiled for each class, as `dataclass` does for seven methods, at
every start of a command or a script: there are three hundred classes, which was a fifth of a start.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(kind: type[T]) -> type[T]:
    """The class as such a dataclass: with slots, and a hash of its fields."""
    made: Any = dataclass(slots=True, repr=False, eq=False)(kind)
    names = tuple(made.__dataclass_fields__)
    made.__repr__ = _repr_of(names)
    made.__eq__, made.__hash__ = _comparison_by(attrgetter(*names) if names else lambda _: ())
    return made  # type: ignore[no-any-return]


def _repr_of(names: tuple[str, ...]) -> Callable[[Any], str]:
    def represent(self: Any) -> str:
        fields = ", ".join([f"{name}={getattr(self, name)!r}" for name in names])
        return f"{type(self).__qualname__}({fields})"

    return represent


def _comparison_by(
    values: Callable[[Any], object],
) -> tuple[Callable[[Any, object], bool], Callable[[Any], int]]:
    def is_equal(self: Any, other: object) -> bool:
        return values(self) == values(other) if type(other) is type(self) else NotImplemented

    def hashed(self: Any) -> int:
        return hash(values(self))

    return is_equal, hashed
