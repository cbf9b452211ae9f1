"""What is said while a run waits for its hosts. Pure."""

from __future__ import annotations

from collections.abc import Collection

from holdfast.core.durations import in_words


def why_nobody_comes(heard: Collection[int], waited_ns: int, limit_ns: int, store: str) -> str:
    """What may be wrong where, after a while, one host alone has come; "": nothing is known.

    `heard`: the numbers of the hosts that were heard at all. Where the store is not shared, each
    host finds no controller in its own, and has one started that hears nobody else.
    """
    if waited_ns < limit_ns or len(heard) != 1:
        return ""
    (index,) = heard
    return (
        f"No other host than host {index} has come in {in_words(waited_ns)}: if the others wait "
        f"as well, they have another store; have all hosts share this one, {store}, or give all "
        "the same --store"
    )
