"""What must never be: a virtual run that comes to it stops there."""

from __future__ import annotations


class Broken(AssertionError):  # noqa: N818 - what a found script says
    """Something happened that must never happen."""


def require(is_so: object, words: str) -> None:
    """Raises Broken, which says what is wrong, unless it is so."""
    if not is_so:
        raise Broken(words)
