"""Replicas that should hold the same bytes and do not: whose are wrong? Pure.

    hosts, words = judge(differing, placement.hosts)

Data-parallel replicas are equal to the last bit after each step. An array that was equal on two
hosts in one set after the other, and differs in the next, was changed by something that is no
training: a bad memory chip, a core that computes wrongly. With three replicas the majority is
right; of two nobody knows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from holdfast.core.value import value


@value
class Replica:
    """One rank's copy of an array, by its checksums."""

    rank: int
    digest: str


@value
class ReplicaDifference:
    """An array that was the same everywhere before, and what it is now."""

    array: str
    replicas: tuple[Replica, ...]


MOST = 8  # arrays that a host tells of: one is enough, and a bad step spoils all of them


def merged(parts: Iterable[Sequence[ReplicaDifference]]) -> tuple[ReplicaDifference, ...]:
    """What all hosts have found, an array's replicas together."""
    found: dict[str, dict[int, str]] = {}
    for part in parts:
        for one in part:
            replicas = found.setdefault(one.array, {})
            replicas.update((replica.rank, replica.digest) for replica in one.replicas)
    return tuple(
        ReplicaDifference(array, tuple(Replica(*pair) for pair in sorted(replicas.items())))
        for array, replicas in sorted(found.items())
    )


def judge(
    differing: Sequence[ReplicaDifference], hosts: Sequence[int], of: str = "hosts"
) -> tuple[tuple[int, ...], str]:
    """Whose replicas are wrong, as hosts of the placement, and why; `hosts`: by rank.

    One host: the others agree with each other. Several: nobody knows which of them. `of`: what
    they are, where they are not hosts.
    """
    wrong: set[int] = set()
    involved: set[int] = set()
    for one in differing:
        counts = Counter(replica.digest for replica in one.replicas)
        (digest, most), *others = counts.most_common()
        involved |= {hosts[replica.rank] for replica in one.replicas}
        if others and most > others[0][1]:
            wrong |= {hosts[replica.rank] for replica in one.replicas if replica.digest != digest}
    arrays = f"{differing[0].array}" + (
        f" and {len(differing) - 1} more" if len(differing) > 1 else ""
    )
    if len(wrong) == 1:
        return tuple(sorted(wrong)), f"its {arrays} differs from what all other {of} have"
    return tuple(sorted(wrong or involved)), f"{arrays} was the same on them, and is not any more"
