"""Whether the ranks of a set hold alike what a framework keeps equal on all of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from holdfast.core.save.corruption import MOST, Replica, ReplicaDifference
from holdfast.snapshot.receipt import DeclaredReplicas, Receipt, Tensor
from holdfast.snapshot.sealed import checksum


def is_below(path: str, prefixes: Collection[str]) -> bool:
    """Whether a path is one of these, or below one. `prefixes`: a set, for there may be many."""
    while path:
        if path in prefixes:
            return True
        path = path.rpartition("/")[0]
    return False


class RankComparison(NamedTuple):
    """Of what the framework keeps equal on all ranks of a set. `is_made`: all of them have it."""

    is_made: bool = False
    differing: tuple[ReplicaDifference, ...] = ()


def compare(receipts: Sequence[Receipt], declared: Iterable[DeclaredReplicas]) -> RankComparison:
    """Whether these ranks, which hold all of it, hold it alike; `declared`: by each of them."""
    said = set(declared)
    if len(receipts) < 2 or len(said) != 1:
        return RankComparison()
    below, own = map(frozenset, said.pop())
    if not below:
        return RankComparison()
    found: dict[str, dict[int, Tensor]] = {}
    for receipt in receipts:
        for tensor in receipt.tensors:
            path = tensor.path
            if tensor.nbytes and tensor.index is None and path not in own and is_below(path, below):
                found.setdefault(path, {})[receipt.rank] = tensor
    differing = [
        ReplicaDifference(path, tuple(Replica(rank, _digest(one)) for rank, one in by.items()))
        for path, by in found.items()
        if len(by) < len(receipts) or len(set(map(_digest, by.values()))) > 1
    ]
    return RankComparison(bool(found), tuple(differing[:MOST]))


def _digest(tensor: Tensor) -> str:
    kind = f"{tensor.dtype} {tensor.global_shape} {''.join(tensor.xxh3)}"
    return checksum(kind.encode())
