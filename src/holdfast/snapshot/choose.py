"""Which set the next attempt restores: a pure decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.errors import NoGoodCheckpoint
from holdfast.snapshot.sets import SetInfo, parse_set_name

Chain = Sequence[tuple[int, int | None]]
"""The lineage, newest attempt first: (attempt, the last step of it that counts; None: all)."""

SHOWN = 3


def on_chain(chain: Chain, attempt: int, step: int) -> bool:
    """Whether a set belongs to the lineage: the attempt does, and its child resumed no earlier."""
    return any(
        attempt == one and (up_to_step is None or step <= up_to_step) for one, up_to_step in chain
    )


def newest_first(sets: Sequence[SetInfo], chain: Chain) -> list[SetInfo]:
    """The sets on the lineage, the one with the most progress first."""
    generation = {attempt: place for place, (attempt, _) in enumerate(chain)}
    mine = [one for one in sets if on_chain(chain, one.attempt, one.step)]
    return sorted(mine, key=lambda one: (generation[one.attempt], -one.step))


def choose(
    sets: Sequence[SetInfo], chain: Chain, bad: Mapping[str, str]
) -> tuple[SetInfo | None, str]:
    """The newest set on the lineage that is not known to be bad, and why it is the one.

    `bad` maps names of sets to what is wrong with them: those that a rank failed to read and those
    that `list_sets` reports as damaged (which are not among `sets`). None means that no checkpoint
    was ever made on this lineage: start from scratch.

    Raises:
        NoGoodCheckpoint: there were checkpoints, and none of them is good.

    """
    skipped: dict[str, str] = {}
    for name, reason in bad.items():
        known = parse_set_name(name)
        if known is not None and on_chain(chain, *known):
            skipped[name] = reason
    for one in newest_first(sets, chain):
        if one.name in skipped:
            continue
        newer = [name for name in skipped if _is_newer(name, one, chain)]
        why = f"step {one.step} of attempt {one.attempt} is the newest checkpoint on the lineage"
        if newer:
            why += f" that is good; skipped {_listed({name: skipped[name] for name in newer})}"
        return one, why
    if skipped:
        raise NoGoodCheckpoint(
            f"checkpoints were made, but none can be trusted: {_listed(skipped)}; "
            "bring one of them back, or start a run of another name from scratch"
        )
    abandoned = len(sets)
    if abandoned:
        return None, f"no checkpoint on this lineage ({abandoned} on abandoned branches)"
    return None, "no checkpoint was ever made"


def _is_newer(name: str, than: SetInfo, chain: Chain) -> bool:
    known = parse_set_name(name)
    if known is None:
        return False
    generation = [attempt for attempt, _ in chain]
    here, there = generation.index(known[0]), generation.index(than.attempt)
    return (here, -known[1]) < (there, -than.step)


def _listed(reasons: Mapping[str, str]) -> str:
    """The newest few, each with its reason."""
    names = sorted(reasons, reverse=True)
    shown = "; ".join(f"{name} ({reasons[name]})" for name in names[:SHOWN])
    return shown + (f"; and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
