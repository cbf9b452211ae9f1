"""What was assumed, and what was odd: said once each, with its first places and how often."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from holdfast.convert.seen import LogPlace

PLACES = 3  # so many of each oddity are named
MAX_CHARS = 400
SORTS = 200  # a log cannot bring more sorts of them than a person reads


@dataclass(slots=True)
class _Odd:
    places: list[str] = field(default_factory=list)
    count: int = 0


@dataclass(slots=True)
class Notes:
    """Sentences about a conversion; each sort is kept once, in the order of the first."""

    _assumed: dict[str, str] = field(default_factory=dict)
    _odd: dict[str, _Odd] = field(default_factory=dict)

    def assume(self, sentence: str, sort: str | None = None) -> None:
        """Say what was taken for true; a later sentence of the same sort replaces the earlier."""
        sentence = sentence[:MAX_CHARS]
        if sort in self._assumed or len(self._assumed) < SORTS:
            self._assumed[sort or sentence] = sentence

    def odd(self, place: LogPlace, words: str) -> None:
        """Say what is wrong at a place; the same words elsewhere are counted."""
        words = words[:MAX_CHARS]
        if words not in self._odd and len(self._odd) >= SORTS:
            words = "there was more that could not be understood"
        one = self._odd.setdefault(words, _Odd())
        one.count += 1
        if len(one.places) < PLACES:
            one.places.append(str(place)[-MAX_CHARS:])

    def assumptions(self) -> Iterator[str]:
        """What the numbers rest on."""
        yield from self._assumed.values()

    def oddities(self) -> Iterator[str]:
        """What was wrong, and what was made of it."""
        for words, one in self._odd.items():
            more = one.count - len(one.places)
            rest = f", and {more:,} more" if more else ""
            yield f"{', '.join(one.places)}{rest}: {words}"

    def all(self) -> tuple[str, ...]:
        """Both: what a report on the history should repeat."""
        return (*self.assumptions(), *self.oddities())
