"""Chance that can be sown anew for each life: as cheap to sow as to draw from."""

from __future__ import annotations

from random import Random

_MASK = 2**64 - 1
_STEP = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio


class SplitMix(Random):
    """SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).

    The standard generator needs as long to be sown as a hundred draws take.
    """

    def __init__(self, kind: str) -> None:
        """`kind` tells this sequence from others'."""
        super().__init__(kind)
        self._kind = self._state = self.getrandbits(64)

    def sow(self, place: int, number: int) -> None:
        """Begin the sequence that belongs to the `number`-th life in that place."""
        self._state = _mixed(_mixed(self._kind + place) + number)
        self.gauss_next = None  # the half of a pair of normal numbers that was not used

    def random(self) -> float:
        """A number in [0, 1)."""
        self._state += _STEP
        return (_mixed(self._state) >> 11) * 2.0**-53


def _mixed(z: int) -> int:
    z &= _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)
