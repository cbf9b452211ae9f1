"""Who may stay connected: whoever only holds a connection open never keeps others out.

A connection is idle until it has asked for something that it may see, and again once that is
answered: who is refused, or is about to log in, is idle all the time. Idle ones get `HEAD_S`, and
where there are too many, in all or of one address, the one that has been idle the longest leaves
for the newcomer. The newcomer goes only where all others are being answered.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Generic, TypeVar

HEAD_S = 10.0  # from a connection's start, or its last answer, until it may see what it asks for
GRANTED = "holdfast.granted"  # in a request's state: to be called once it may see that
MOST = 512
MOST_OF_ONE = 128  # address; a proxy's, which is everybody's, may have all

C = TypeVar("C")


class Crowd(Generic[C]):
    """The connections of one server. `proxies`: addresses that many people share."""

    def __init__(
        self, proxies: Collection[str] = (), most: int = MOST, most_of_one: int = MOST_OF_ONE
    ) -> None:
        self._proxies, self._most, self._most_of_one = proxies, most, most_of_one
        self._address: dict[C, str] = {}
        self._idle: dict[C, None] = {}  # the longest first

    def __len__(self) -> int:
        return len(self._address)

    def come(self, one: C, address: str) -> C | None:
        """A new connection; who must leave for it, which may be itself."""
        of_one = [c for c, at in self._address.items() if at == address]
        leaves: C | None = None
        if address not in self._proxies and len(of_one) >= self._most_of_one:
            leaves = next((c for c in self._idle if self._address[c] == address), one)
        elif len(self._address) >= self._most:
            leaves = next(iter(self._idle), one)
        self._address[one] = address
        self._idle[one] = None
        if leaves is not None:
            self.go(leaves)
        return leaves

    def busy(self, one: C) -> None:
        """It is being answered."""
        self._idle.pop(one, None)

    def idle(self, one: C) -> None:
        """It has been answered."""
        if one in self._address:
            self._idle.pop(one, None)
            self._idle[one] = None

    def go(self, one: C) -> None:
        """It is gone; again: no effect."""
        self._address.pop(one, None)
        self._idle.pop(one, None)
