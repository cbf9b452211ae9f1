"""What was assumed, and what was odd: said once each, with its first places and how often."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

PLACES = 3  # so many of each oddity are named
MAX_CHARS = 400
SORTS = 200  # a log cannot bring more sorts of them than a person reads


class LogPlace(NamedTuple):
    """Where something stood."""

    file: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(slots=True)
class Notes:
    """Sentences about a conversion; each sort is kept once, in the order of the first."""

    _assumed: dict[str, str] = field(default_factory=dict)
    _odd: dict[str, tuple[int, list[str]]] = field(default_factory=dict)  # count, first places

    def assume(self, sentence: str, sort: str | None = None) -> None:
        """Say what was taken for true; a later sentence of the same sort replaces the earlier."""
        sentence = sentence[:MAX_CHARS]
        if sort in self._assumed or len(self._assumed) < SORTS:
            self._assumed[sort or sentence] = sentence

    def evaluates(self, name: str) -> None:
        """Say that a value of that name tells of evaluations."""
        self.assume(
            f"a row of steps in which {name!r} was written is longer than usual because of an "
            "evaluation",
            "evaluations",
        )

    def odd(self, place: LogPlace, words: str) -> None:
        """Say what is wrong at a place; the same words elsewhere are counted."""
        words = words[:MAX_CHARS]
        if words not in self._odd and len(self._odd) >= SORTS:
            words = "there was more that could not be understood"
        count, places = self._odd.get(words, (0, []))
        first = [str(place)[-MAX_CHARS:]] if count < PLACES else []
        self._odd[words] = count + 1, places + first

    def assumptions(self) -> list[str]:
        """What the numbers rest on."""
        return list(self._assumed.values())

    def oddities(self) -> Iterator[str]:
        """What was wrong, and what was made of it."""
        for words, (count, places) in self._odd.items():
            rest = f", and {count - PLACES:,} more" if count > PLACES else ""
            yield f"{', '.join(places)}{rest}: {words}"

    def all(self) -> tuple[str, ...]:
        """Both: what a report on the history should repeat."""
        return (*self.assumptions(), *self.oddities())
