"""How many chips an attempt's hosts have, and the run, whose hosts need not all have as many. Pure.

    chips = SlotChips(slots=2, total=8)
    chips.have(1, 16)  # the host that has slot 1 says so
    chips.train([1])
    chips.counted == CountedChips(here=16, of=20)  # slot 0 is away, and has its share of the 8

A slot without a host counts what the last one had. Spares count nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.core.events import CountedChips


class SlotChips:
    """`total`: of all hosts together, where none says what it has."""

    def __init__(self, slots: int, total: int) -> None:
        each, rest = divmod(total, max(1, slots))
        self._share = [each + (slot < rest) for slot in range(slots)]
        self._said: dict[int, int] = {}
        self._train: tuple[int, ...] = tuple(range(slots))
        self._counted: CountedChips | None = None  # counted once: agents speak often

    def have(self, slot: int, chips: int) -> None:
        """The host that has that slot now says so; 0: it does not say, and has its share."""
        self._counted = None
        if chips:
            self._said[slot] = chips
        else:
            self._said.pop(slot, None)

    def train(self, slots: Iterable[int]) -> None:
        """These have a part of the attempt that begins; at first all have."""
        self._train, self._counted = tuple(slots), None

    @property
    def counted(self) -> CountedChips:
        """Of the attempt that runs."""
        if self._counted is None:
            self._counted = self.of(self._train)
        return self._counted

    @property
    def are_said(self) -> bool:
        """Whether any host says what it has."""
        return bool(self._said)

    def of(self, slots: Iterable[int]) -> CountedChips:
        """Of an attempt that these slots have a part in."""
        chips = [self._said.get(slot, share) for slot, share in enumerate(self._share)]
        wanted = frozenset(slots)
        here = sum(number for slot, number in enumerate(chips) if slot in wanted)
        return CountedChips(here, sum(chips))


def chips_of_slices(hosts: Iterable[tuple[str, int | None]]) -> dict[str, int]:
    """Of hosts, each with the name of its slice: by slice, without those that do not say."""
    found: dict[str, int] = {}
    for name, chips in hosts:
        if chips is not None:
            found[name] = found.get(name, 0) + chips
    return dict(sorted(found.items()))
