"""Those who have connected and proved nothing yet: so many at most, and for so long. Pure."""

from __future__ import annotations

from typing import Generic, TypeVar

HANDSHAKE_S = 5.0  # within that each end proves itself
STRANGERS = 1024  # at a time; the oldest makes place

Stranger = TypeVar("Stranger")


class Strangers(Generic[Stranger]):
    """The oldest first. Who only holds connections open keeps nobody out."""

    def __init__(self, most: int | None = None) -> None:
        """`most` at a time; None: as many as on the link."""
        self._most = STRANGERS if most is None else most
        self._since_s: dict[Stranger, float] = {}

    def __len__(self) -> int:
        return len(self._since_s)

    def admit(self, one: Stranger, now_s: float) -> Stranger | None:
        """It has come; who is to go for it."""
        oldest = next(iter(self._since_s)) if len(self._since_s) >= self._most else None
        if oldest is not None:
            del self._since_s[oldest]
        self._since_s[one] = now_s
        return oldest

    def forget(self, one: Stranger) -> None:
        """It is none any more: it has proved itself, or is gone."""
        self._since_s.pop(one, None)

    def late(self, now_s: float) -> list[Stranger]:
        """Those whose time is over; whatever they have said meanwhile."""
        found = []
        for one, since_s in self._since_s.items():
            if now_s - since_s <= HANDSHAKE_S:
                break
            found.append(one)
        return found

    def all(self) -> list[Stranger]:
        """Everybody who is left."""
        return list(self._since_s)
