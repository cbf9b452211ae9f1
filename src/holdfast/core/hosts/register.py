"""Registers: what the controller and a host know of each other is state, not a stream of messages.

An order holds all that is wanted of a host, a report all that is true of it. The newest one holds,
so one that is lost, doubled or overtaken does no harm. Each entry has a number, by which whoever
reads the register finds what is new to it, and a subject: a newer entry takes the place of the one
that has the same.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Register(Generic[T]):
    """Entries by subject, the oldest first. To put one in costs the same however many there are."""

    def __init__(self) -> None:
        self.newest = 0  # the number of the newest entry that there ever was
        self._entries: dict[Hashable, tuple[int, T]] = {}

    def put(self, subject: Hashable, entry: T) -> None:
        """It is the newest one, and the only one of its subject."""
        self.newest += 1
        self._entries.pop(subject, None)
        self._entries[subject] = self.newest, entry

    def drop(self, subject: Hashable) -> None:
        """Forget the entry of that subject: it does not hold any more."""
        self._entries.pop(subject, None)

    def drop_where(self, is_over: Callable[[T], bool]) -> None:
        """Forget all entries that are over."""
        over = [subject for subject, (_, entry) in self._entries.items() if is_over(entry)]
        for subject in over:
            del self._entries[subject]

    def drop_kinds(self, kinds: tuple[type, ...]) -> None:
        """The same of all that are of one of those kinds."""
        entries = self._entries
        for subject in [s for s, (_, entry) in entries.items() if isinstance(entry, kinds)]:
            del entries[subject]

    def change_each(self, change: Callable[[T], T]) -> None:
        """Each is told differently, and is as new as before."""
        for subject, (number, entry) in self._entries.items():
            self._entries[subject] = number, change(entry)

    def after(self, number: int) -> list[T]:
        """Those that are newer than the one that had this number, the oldest first."""
        found: list[T] = []
        if number >= self.newest:
            return found
        for at, entry in reversed(self._entries.values()):
            if at <= number:
                break
            found.append(entry)
        found.reverse()
        return found

    def copy(self, read: int = 0) -> Register[T]:
        """Another one with the same entries, but for those up to number `read`."""
        copy: Register[T] = Register()
        copy.newest = self.newest
        entries = self._entries
        if read:
            entries = {of: one for of, one in entries.items() if one[0] > read}
        copy._entries = entries.copy()
        return copy

    def __contains__(self, subject: Hashable) -> bool:
        return subject in self._entries

    def numbered(self) -> list[tuple[int, T]]:
        """All of them with their numbers, the oldest first."""
        return list(self._entries.values())
