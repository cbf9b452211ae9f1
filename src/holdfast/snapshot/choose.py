"""Which set the next attempt restores: a pure decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from holdfast.core.run.rollback import Target, target_words
from holdfast.errors import CorruptCheckpoint, NoGoodCheckpoint, NoSuchCheckpoint
from holdfast.snapshot.receipt import MANIFEST
from holdfast.snapshot.sets import SetInfo, parse_set_name, sound_set, vanished
from holdfast.snapshot.vault import open_vault

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


def newest_sound(ckpt_dir: Path, chain: Chain) -> tuple[SetInfo | None, dict[str, str]]:
    """The set that a restart would use now, and what is wrong with those it would pass over.

    Only these are read: of a long run's sets the first one nearly always. Raises StoreUnavailable.
    """
    vault = open_vault(ckpt_dir)
    sets = vault.look()
    generation = {attempt: place for place, (attempt, _) in enumerate(chain)}
    known = [(name, place) for name in sets if (place := parse_set_name(name)) is not None]
    mine = [(name, place) for name, place in known if on_chain(chain, *place)]
    damage: dict[str, str] = {}
    for name, _ in sorted(mine, key=lambda one: (generation[one[1][0]], -one[1][1])):
        if sets[name].has(MANIFEST):
            try:
                return sound_set(vault, sets[name], name, ckpt_dir), damage
            except CorruptCheckpoint as error:
                damage[name] = str(error)
    is_empty = not any(files.has(MANIFEST) for files in sets.values())
    return None, vanished(vault) if is_empty else damage


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
        if _is_on_chain(chain, name):
            skipped[name] = reason
    for one in newest_first(sets, chain):
        if one.name in skipped:
            continue
        newer = [name for name in skipped if _is_newer(name, one, chain)]
        why = f"starting from step {one.step} of attempt {one.attempt}, the newest checkpoint"
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
        return (
            None,
            f"starting from scratch (no checkpoint on this branch; {abandoned} on abandoned ones)",
        )
    return None, "starting from scratch (no checkpoint yet)"


def choose_back(
    to: Target,
    sets: Sequence[SetInfo],
    chain: Chain,
    bad: Mapping[str, str],
    pins: Mapping[str, str],
) -> tuple[SetInfo | None, str]:
    """The set to go back to: the newest good one on the lineage that is no newer than asked.

    From scratch only for 0, or where no checkpoint was ever made on the lineage, as without the
    wish. `pins` maps tags to names of sets.

    Raises:
        NoSuchCheckpoint: none of the lineage's checkpoints is old enough, or has the tag.
        NoGoodCheckpoint: some are, and none of them is good.

    """
    if to is None:
        return choose(sets, chain, bad)
    if to == 0:
        return None, "starting from scratch, as asked"
    made = newest_first(sets, chain)
    broken = {name: why for name, why in bad.items() if _is_on_chain(chain, name)}
    if not made and not broken:
        _, why = choose(sets, chain, {})
        return None, f"{why}, though {target_words(to)} was asked for"
    limit = to if isinstance(to, int) else _tagged_step(to, made, chain, pins)
    old_enough = [one for one in made if limit is not None and one.step <= limit]
    too_new = [name for name in broken if limit is None or _step_of(name) > limit]
    if not old_enough and len(too_new) == len(broken):
        raise NoSuchCheckpoint(_none_such(to, [one.step for one in made]))
    asked = {name: why for name, why in broken.items() if name not in too_new}
    chosen, why = choose(old_enough, chain, asked)
    return chosen, f"{why} up to {target_words(to)}, as asked"


def _tagged_step(
    tag: str, made: Sequence[SetInfo], chain: Chain, pins: Mapping[str, str]
) -> int | None:
    """The step of the lineage's set with that tag: the pinned one, else the last that was given it.

    A pin may point at a branch that was given up: what was rolled back does not come back.
    """
    if (name := pins.get(tag)) is not None and _is_on_chain(chain, name):
        return _step_of(name)
    return next((one.step for one in made if tag in one.tags), None)


def _none_such(to: Target, steps: Sequence[int]) -> str:
    there = f"; the lineage has steps {_few(sorted(steps))}" if steps else ""
    if isinstance(to, str):
        return f"no checkpoint of the lineage is tagged {to}{there}"
    return (
        f"no checkpoint of the lineage is as old as step {to}{there}; "
        "to begin again from scratch, ask for 0"
    )


def _few(steps: Sequence[int]) -> str:
    if len(steps) <= 2 * SHOWN:
        return ", ".join(map(str, steps))
    return f"{', '.join(map(str, steps[:SHOWN]))}, … {', '.join(map(str, steps[-SHOWN:]))}"


def _is_on_chain(chain: Chain, name: str) -> bool:
    known = parse_set_name(name)
    return known is not None and on_chain(chain, *known)


def _step_of(name: str) -> int:
    known = parse_set_name(name)
    return known[1] if known is not None else 0


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
