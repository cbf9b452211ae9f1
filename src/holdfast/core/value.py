"""Dataclasses that nobody changes: events, actions, facts, and what each start imports.

    @value
    class Joined:
        at_ns: int

The type checker holds them frozen, as it holds the types of their fields. Nothing does at run time:
a dataclass that is frozen there takes three times as long to make, which was a seventh of the time
of a simulated run.

Of the seven methods that `dataclass` writes and compiles for a class there is `__init__` alone, and
that not before the first object is made: there are three hundred classes, of which a start of a
command or a script uses some, and these were a quarter of its time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(kind: type[T]) -> type[T]:
    """The class as such a dataclass: with slots, and a hash of its fields."""
    made: Any = dataclass(init=False, slots=True, repr=False, eq=False)(kind)
    made.__init__ = _init_of(made)
    names = tuple(made.__dataclass_fields__)
    made.__repr__ = _repr_of(names)
    made.__eq__, made.__hash__ = _comparison_by(attrgetter(*names) if names else lambda _: ())
    return made  # type: ignore[no-any-return]


def _init_of(made: Any) -> Callable[..., None]:
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        """Of the first object. Here the one for all that follow is written."""
        made.__init__ = _written_init(made)
        made.__init__(self, *args, **kwargs)

    return init


def _written_init(made: Any) -> Any:
    """As `dataclass` writes it, from the names of the fields; annotations are left out."""
    known: dict[str, Any] = {"MISSING": MISSING}
    given, work = ["self"], []
    for one in fields(made):
        name, taken = one.name, one.name
        if one.default is not MISSING:
            known[f"default_{name}"] = one.default
            given.append(f"{name}=default_{name}")
        elif one.default_factory is not MISSING:
            known[f"make_{name}"] = one.default_factory
            given.append(f"{name}=MISSING")
            taken = f"make_{name}() if {name} is MISSING else {name}"
        else:
            given.append(name)
        work.append(f"self.{name} = {taken}")
    if hasattr(made, "__post_init__"):
        work.append("self.__post_init__()")
    source = f"def __init__({', '.join(given)}):\n " + "\n ".join(work or ["pass"])
    exec(source, known)  # noqa: S102 - names of fields, and no more
    init = known["__init__"]
    init.__qualname__ = f"{made.__qualname__}.__init__"
    return init


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
