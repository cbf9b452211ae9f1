"""The hosts of a run, as its controllers have journaled them (`controller.host_book`)."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass, field

from holdfast.journal.clocks import MappedBoot, RunClock
from holdfast.journal.facts.followed import Place
from holdfast.journal.facts.lines import HostPart, HostStated, PartsStated

MOST_HOSTS = 1 << 17  # a damaged file names no more


@dataclass(frozen=True, slots=True)
class HostPartSpan:
    """A host had these ranks in the attempts from one to another."""

    first_attempt: int
    last_attempt: int
    first_rank: int
    last_rank: int


@dataclass(frozen=True, slots=True)
class KnownHost:
    """One host. `slot`: whose part it has now; None: none. `since_ns`: it stands so since then.

    `clock`: how its times are brought onto the run's clock; None: nobody knows. `ahead_ns`: how far
    its wall clock is ahead of the controller's, to within `error_ns`; None: it was not measured.
    `chips`: how many it has; None: it did not say.
    """

    index: int
    state: str
    slot: int | None
    slice: str
    since_ns: int
    parts: tuple[HostPartSpan, ...]
    clock: MappedBoot | None
    ahead_ns: int | None
    error_ns: int | None
    chips: int | None


@dataclass(slots=True)
class KnownHosts:
    """Takes what controllers state of them, in any order."""

    _stated: dict[int, list[tuple[int, Place, int, HostStated]]] = field(default_factory=dict)
    _parts: dict[int, tuple[Place, PartsStated]] = field(default_factory=dict)  # by attempt
    _count: int = 0

    def take(self, place: Place, one: HostStated) -> None:
        """One of them stands so from then on."""
        if one.host in self._stated or len(self._stated) < MOST_HOSTS:
            self._count += 1
            told = (one.at_ns, place, self._count, one)
            insort(self._stated.setdefault(one.host, []), told, key=lambda each: each[:3])

    def take_parts(self, place: Place, one: PartsStated) -> None:
        """That is who has which ranks of an attempt; of two that contradict, the later counts."""
        known = self._parts.get(one.attempt)
        if known is None or place >= known[0]:
            self._parts[one.attempt] = place, one

    def host_of(self, attempt: int, rank: int) -> int | None:
        """Which of them had that rank in that attempt; None: nobody says."""
        known = self._parts.get(attempt)
        parts = () if known is None else known[1].parts
        found = (part.host for part in parts if part.first_rank <= rank <= part.last_rank)
        return next(found, None)

    def all(self, clock: RunClock) -> tuple[KnownHost, ...]:
        """Each by its number, as it stood last."""
        parts = self._parts_of_hosts()
        found = []
        for index, told in sorted(self._stated.items()):
            at_ns, _, _, newest = told[-1]
            boot = next((each[3].boot for each in reversed(told) if each[3].boot), "")
            mapped = clock.mapped(boot) if boot else None
            spans = tuple(_joined(parts.get(index, [])))
            stands = index, newest.state, newest.slot, newest.slice, at_ns
            is_now = newest.ahead_ns, newest.error_ns, newest.chips
            found.append(KnownHost(*stands, spans, mapped, *is_now))
        return tuple(found)

    def _parts_of_hosts(self) -> dict[int, list[tuple[int, HostPart]]]:
        found: dict[int, list[tuple[int, HostPart]]] = {}
        for attempt, (_, one) in sorted(self._parts.items()):
            for part in one.parts:
                found.setdefault(part.host, []).append((attempt, part))
        return found


def _joined(parts: list[tuple[int, HostPart]]) -> Iterator[HostPartSpan]:
    """Of attempts in order; those that follow one another with the same ranks together."""
    span: HostPartSpan | None = None
    for attempt, part in parts:
        ranks = part.first_rank, part.last_rank
        begins = attempt
        if span is not None:
            goes_on = attempt == span.last_attempt + 1
            if goes_on and (span.first_rank, span.last_rank) == ranks:
                begins = span.first_attempt
            else:
                yield span
        span = HostPartSpan(begins, attempt, *ranks)
    if span is not None:
        yield span
