"""Which host runs which rank of an attempt. Pure.

    placement = place(5, [0, 2])
    placement == Placement((0, 0, 0, 2, 2))
    placement.on(2) == (3, 4)

A placement belongs to one attempt, and so does the number of ranks: the next attempt may have other
hosts, and fewer ranks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import groupby

from holdfast.core.value import value

MOST_RANKS = 1 << 20


@value
class Placement:
    """`hosts`: by rank, the index of the host that runs it."""

    hosts: tuple[int, ...] = ()

    @property
    def ranks(self) -> int:
        """The world size."""
        return len(self.hosts)

    def on(self, host: int) -> tuple[int, ...]:
        """The ranks that run on that host, by their local rank."""
        return tuple(rank for rank, where in enumerate(self.hosts) if where == host)

    @property
    def by_host(self) -> dict[int, tuple[int, ...]]:
        """The ranks of each host that has any."""
        found: dict[int, list[int]] = {}
        for rank, where in enumerate(self.hosts):
            found.setdefault(where, []).append(rank)
        return {host: tuple(ranks) for host, ranks in found.items()}

    @property
    def runs(self) -> list[tuple[int, int, int]]:
        """The same in brief: from a host on, so many neighbours with so many ranks each."""
        found: list[tuple[int, int, int]] = []
        for host, ranks in ((host, len(list(same))) for host, same in groupby(self.hosts)):
            first, hosts, each = found[-1] if found else (0, 0, 0)
            if (host, ranks) == (first + hosts, each):
                found[-1] = first, hosts + 1, each
            else:
                found.append((host, 1, ranks))
        return found

    @classmethod
    def of_runs(cls, runs: Iterable[tuple[int, int, int]]) -> Placement:
        """The inverse of `runs`; raises ValueError for more ranks than any run has."""
        return _of_runs(tuple(runs))

    def on_hosts(self, hosts: Sequence[int]) -> Placement:
        """With as many ranks on each host, but on these hosts alone."""
        counts = Counter(self.hosts)
        if len(hosts) == len(counts):
            return self
        return place(max(counts.values(), default=0) * len(hosts), hosts)


@lru_cache(maxsize=4)  # each order says it again, and hosts may be ten thousand
def _of_runs(runs: tuple[tuple[int, int, int], ...]) -> Placement:
    if sum(abs(hosts * each) for _, hosts, each in runs) > MOST_RANKS:
        raise ValueError(f"{list(runs)} would be more than {MOST_RANKS} ranks")
    return Placement(
        tuple(
            host
            for first, hosts, each in runs
            for host in range(first, first + hosts)
            for _ in range(each)
        )
    )


NOWHERE = Placement()


def ranks_words(first: int | None, last: int | None) -> str:
    """Those from the first to the last, as a table shows them; None: there are none."""
    if first is None or last is None:
        return "–"
    return f"{first}" if first == last else f"{first}–{last}"


@value
class Meeting:
    """Where the ranks of one attempt find each other: ports of the host that runs rank 0.

    `port`: for torch.distributed. `coordinator_port`: for jax.distributed, which runs beside it.
    """

    address: str
    port: int
    coordinator_port: int


def place(ranks: int, hosts: Sequence[int]) -> Placement:
    """Neighbouring ranks run on one host, so that they talk within it; of a rest, the first ones.

    Raises ValueError where there is no host.
    """
    if not hosts:
        raise ValueError(f"there is no host to place {ranks} ranks on")
    each, rest = divmod(ranks, len(hosts))
    counts = [each + (number < rest) for number in range(len(hosts))]
    return Placement(tuple(h for h, count in zip(hosts, counts, strict=True) for _ in range(count)))
