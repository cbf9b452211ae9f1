"""Which set the next attempt restores, of what is seen of a run's checkpoints.

    choose(seen, wish, rejected) == (Resume("0002-000000000040", 40, 2), "starting from step 40 …")

The newest on the lineage that is complete in the store or sealed in memory, and that is not known
to be bad. Never silently from step 0: only where no checkpoint was ever made on the lineage, or
somebody asked for it. What is seen are facts that an edge reads; they are journaled with the
choice, so that it can be made again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Protocol, TypeVar

from holdfast.core.run.rollback import Target, Wish, target_words
from holdfast.core.value import value
from holdfast.errors import EXIT_CONFIGURATION, EXIT_UNAVAILABLE

Chain = Sequence[tuple[int, int | None]]
"""The lineage, newest attempt first: (attempt, the last step of it that counts; None: all)."""

_NAME = re.compile(r"([0-9]{4,9})-([0-9]{12,13})")


def set_name(attempt: int, step: int) -> str:
    """What a set is called: sorts by attempt, then step."""
    return f"{attempt:04d}-{step:012d}"


def parse_set_name(name: str) -> tuple[int, int] | None:
    """(attempt, step) of a set's name; None when it is no such name."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    attempt, step = int(found.group(1)), int(found.group(2))
    return (attempt, step) if set_name(attempt, step) == name else None


@value
class StoredSet:
    """A set in the run store: it has its manifest, and every shard has its size."""

    attempt: int
    step: int
    tags: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the set, unique in the run."""
        return set_name(self.attempt, self.step)


@value
class SealedSet:
    """A set in this host's memory, in the buffer of that number: it is sealed."""

    attempt: int
    step: int
    buffer: int
    tags: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the set, unique in the run."""
        return set_name(self.attempt, self.step)


@value
class Skip:
    """An attempt of the lineage that passes over batches from the set that it started from."""

    restore_set: str | None
    resume_step: int
    batches: int


@value
class TrainingEnd:
    """The script ended its training at `step`, though it had meant to go on to step `until`."""

    step: int
    until: int


@value
class SeenSets:
    """All of it.

    `bad`: a set's name, and why it cannot be chosen: it is damaged, or being removed. `bad_copies`:
    the same of buffers, in words. `pins`: a tag, and the name of its set. `unread`: an attempt that
    wrote a set, or is the newest, whose record cannot be read, and where that lies. `training_end`:
    of the newest attempts, in a run that is not done.
    """

    run: str
    newest_attempt: int  # -1: there was none
    chain: tuple[tuple[int, int | None], ...] = ()
    stored: tuple[StoredSet, ...] = ()
    sealed: tuple[SealedSet, ...] = ()
    bad: tuple[tuple[str, str], ...] = ()
    bad_copies: tuple[str, ...] = ()
    pins: tuple[tuple[str, str], ...] = ()
    skips: tuple[Skip, ...] = ()
    unread: tuple[tuple[int, str], ...] = ()
    training_end: TrainingEnd | None = None


SHOWN = 3


@value
class Resume:
    """What an attempt starts from: the set and who wrote it; `set_name` None: from scratch.

    `skip_batches`: how many batches of each data stream it passes over from there. `buffer`: the
    set is read from that buffer of the memory tier; None: from the durable tier. `committed_step`:
    the newest step of the lineage that is durable; None: `step` is. `ended_until`: the script ended
    its training at `step`, though it had meant to go on to that one; None: it did not.
    """

    set_name: str | None
    step: int
    parent: int | None
    skip_batches: int = 0
    buffer: int | None = None
    committed_step: int | None = None
    ended_until: int | None = None

    @property
    def durable_step(self) -> int:
        """The newest step of the lineage that is durable; not above `step`, 0 for none."""
        return self.step if self.committed_step is None else min(self.committed_step, self.step)

    @property
    def training_end(self) -> TrainingEnd | None:
        """Where the script ended its training, if that is here."""
        return None if self.ended_until is None else TrainingEnd(self.step, self.ended_until)


SCRATCH = Resume(None, 0, None)


class NoChoice(StrEnum):
    """Why there is nothing that an attempt may start from."""

    NONE_GOOD = "checkpoints were made, and none of them can be trusted"
    NONE_SUCH = "none is what somebody wants to go back to"

    @property
    def exit_code(self) -> int:
        """The exit code of a controller that ends on account of it."""
        return EXIT_UNAVAILABLE if self is NoChoice.NONE_GOOD else EXIT_CONFIGURATION


FETCHES = 2  # of one set, before an older one is restored
LATELY_NS = 600_000_000_000


@value
class Rejected:
    """The sets that ranks have found to be bad when they read them: name, and what was wrong.

    `unfetched`: those in memory of which a part did not come from another host: name, why, when.
    """

    stored: tuple[tuple[str, str], ...] = ()
    sealed: tuple[tuple[str, str], ...] = ()
    unfetched: tuple[tuple[str, str, int], ...] = ()

    def add(self, name: str, why: str, *, in_memory: bool) -> Rejected:
        """One more: it is never chosen again, or its copy in memory is not."""
        if in_memory:
            return replace(self, sealed=(*self.sealed, (name, why)))
        return replace(self, stored=(*self.stored, (name, why)))

    def not_fetched(self, name: str, why: str, at_ns: int) -> Rejected:
        """A part of it did not come: the host that was asked may answer the next time."""
        lately = [one for one in self.unfetched if at_ns - one[2] < LATELY_NS]
        return replace(self, unfetched=(*lately, (name, why, at_ns)))

    def now(self, at_ns: int) -> Rejected:
        """As a choice takes it: copies too, that are not asked for again for a while.

        A set is asked for once more when it did not come; when that fails as well it is passed
        over, until as long has passed since. Who would wait for it trains from an older one.
        """
        lately = [one for one in self.unfetched if at_ns - one[2] < LATELY_NS]
        whys: dict[str, list[str]] = {}
        for name, why, _ in lately:
            whys.setdefault(name, []).append(why)
        over = [
            (name, f"not fetched {len(each)} times of late: {each[-1]}")
            for name, each in whys.items()
            if len(each) >= FETCHES
        ]
        return replace(self, sealed=(*self.sealed, *over)) if over else self


NOTHING_REJECTED = Rejected()


def choose(
    seen: SeenSets, wish: Wish | None = None, rejected: Rejected | None = None
) -> tuple[Resume | NoChoice, str]:
    """What the next attempt restores, and why; with a `wish`, what that comes to.

    Of a set that is both in memory and in the store, the copy in memory.
    """
    rejected = rejected or NOTHING_REJECTED
    distrusted = dict(rejected.sealed)
    sealed = {one.name: one for one in seen.sealed if one.name not in distrusted}
    bad, unread = dict(seen.bad) | dict(rejected.stored), dict(seen.unread)
    if (seen.stored or seen.bad or sealed) and seen.newest_attempt in unread:
        return NoChoice.NONE_GOOD, _lineage_lost(seen.newest_attempt, unread)
    made: list[StoredSet | SealedSet] = list(seen.stored)
    if sealed:
        names = {one.name for one in seen.stored}
        made += [one for name, one in sealed.items() if name not in names]
    lost = {name: why for name, why in bad.items() if name not in sealed}
    chosen, words = _newest(seen, wish, made, lost)
    if isinstance(chosen, NoChoice):
        return chosen, words
    if bad_copies := [*seen.bad_copies, *(f"{name} ({why})" for name, why in distrusted.items())]:
        words += f"; passed over in memory: {'; '.join(bad_copies)}"
    skip, said = _skip(seen, wish, chosen)
    words += said
    if chosen is None:
        strangers = [one.attempt for one in made if one.attempt in unread]
        if strangers:  # never silently from step 0
            return NoChoice.NONE_GOOD, _lineage_lost(max(strangers), unread)
        return Resume(None, 0, None, skip), words
    name = chosen.name
    resume = Resume(name, chosen.step, chosen.attempt, skip)
    if wish is None and seen.training_end is not None and seen.training_end.step == chosen.step:
        resume = replace(resume, ended_until=seen.training_end.until)
        words += "; the script ended its training there"
    copy = sealed.get(name)
    if copy is None:
        return resume, words
    durable = newest_first([one for one in seen.stored if one.name not in bad], seen.chain)
    committed = next((one.step for one in durable if one.step <= chosen.step), 0)
    resume = replace(resume, buffer=copy.buffer, committed_step=committed)
    return resume, f"{words}; it is read from memory"


def _newest(
    seen: SeenSets, wish: Wish | None, made: Sequence[StoredSet | SealedSet], bad: Mapping[str, str]
) -> tuple[StoredSet | SealedSet | NoChoice | None, str]:
    if wish is None:
        return newest_good(made, seen.chain, bad)
    chosen, words = newest_up_to(wish.to, made, seen.chain, bad, dict(seen.pins))
    if chosen is NoChoice.NONE_SUCH and wish.words:
        words = f"{wish.words}: {words} (holdfast rollback {seen.run} --to STEP)"
    return chosen, words


def _skip(
    seen: SeenSets, wish: Wish | None, chosen: StoredSet | SealedSet | None
) -> tuple[int, str]:
    """How many batches are passed over from there, and what is said of it.

    As many as the attempt of the lineage that started from there: it may have died before it
    saved. Skips behind a later checkpoint than can still be read cannot be repeated.
    """
    if wish is not None:
        lost, batches = [], wish.skip_batches
    elif not seen.skips:
        return 0, ""
    else:
        name, step = (chosen.name, chosen.step) if chosen is not None else (None, 0)
        batches = next((one.batches for one in seen.skips if one.restore_set == name), 0)
        lost = sorted({(o.resume_step, o.batches) for o in seen.skips if o.resume_step > step})
    words = f"; {batches} batches from there are skipped" if batches else ""
    for step, number in lost:
        words += (
            f"; the {number} batches after step {step} were to be skipped, and are not: "
            "the checkpoint there cannot be read"
        )
    return batches, words


def _lineage_lost(attempt: int, unread: Mapping[int, str]) -> str:
    return (
        f"the record of attempt {attempt} cannot be read, so it is not known which checkpoints "
        f"count: bring {unread[attempt]} back, or start a run of another name from scratch"
    )


# --- of sets by their places ----------------------------------------------------------------


class _Made(Protocol):
    @property
    def attempt(self) -> int: ...
    @property
    def step(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def tags(self) -> tuple[str, ...]: ...


_S = TypeVar("_S", bound=_Made)


def on_chain(chain: Chain, attempt: int, step: int) -> bool:
    """Whether a set belongs to the lineage: the attempt does, and its child resumed no earlier."""
    for one, up_to_step in chain:
        if attempt == one and (up_to_step is None or step <= up_to_step):
            return True
    return False


def newest_first(sets: Sequence[_S], chain: Chain) -> list[_S]:
    """The sets on the lineage, the one with the most progress first."""
    generation = {attempt: place for place, (attempt, _) in enumerate(chain)}
    mine = [one for one in sets if on_chain(chain, one.attempt, one.step)]
    return sorted(mine, key=lambda one: (generation[one.attempt], -one.step))


def newest_good(
    sets: Sequence[_S], chain: Chain, bad: Mapping[str, str]
) -> tuple[_S | NoChoice | None, str]:
    """The newest set on the lineage that is not known to be bad, and why it is the one.

    `bad` maps names of sets to what is wrong with them; those that cannot be read are not among
    `sets`. None: no checkpoint was ever made on this lineage, so it is from scratch.
    """
    skipped = {name: why for name, why in bad.items() if _is_on_chain(chain, name)}
    for one in newest_first(sets, chain):
        if skipped and one.name in skipped:
            continue
        newer = [name for name in skipped if _is_newer(name, one, chain)]
        why = f"starting from step {one.step} of attempt {one.attempt}, the newest checkpoint"
        if newer:
            why += f" that is good; skipped {_listed({name: skipped[name] for name in newer})}"
        return one, why
    if skipped:
        return NoChoice.NONE_GOOD, (
            f"checkpoints were made, but none can be trusted: {_listed(skipped)}; "
            "bring one of them back, or start a run of another name from scratch"
        )
    if sets:
        return None, (
            f"starting from scratch (no checkpoint on this branch; {len(sets)} on abandoned ones)"
        )
    return None, "starting from scratch (no checkpoint yet)"


def newest_up_to(
    to: Target,
    sets: Sequence[_S],
    chain: Chain,
    bad: Mapping[str, str],
    pins: Mapping[str, str],
) -> tuple[_S | NoChoice | None, str]:
    """The set to go back to: the newest good one on the lineage that is no newer than asked.

    From scratch only for 0, or where no checkpoint was ever made on the lineage, as without the
    wish. `pins` maps tags to names of sets.
    """
    if to is None:
        return newest_good(sets, chain, bad)
    if to == 0:
        return None, "starting from scratch, as asked"
    made = newest_first(sets, chain)
    broken = {name: why for name, why in bad.items() if _is_on_chain(chain, name)}
    if not made and not broken:
        _, why = newest_good(sets, chain, {})
        return None, f"{why}, though {target_words(to)} was asked for"
    limit = to if isinstance(to, int) else _tagged_step(to, made, chain, pins)
    old_enough = [one for one in made if limit is not None and one.step <= limit]
    too_new = [name for name in broken if limit is None or _step_of(name) > limit]
    if not old_enough and len(too_new) == len(broken):
        return NoChoice.NONE_SUCH, _none_such(to, [one.step for one in made])
    asked = {name: why for name, why in broken.items() if name not in too_new}
    chosen, why = newest_good(old_enough, chain, asked)
    if isinstance(chosen, NoChoice):
        return chosen, why
    return chosen, f"{why} up to {target_words(to)}, as asked"


def _tagged_step(
    tag: str, made: Sequence[_Made], chain: Chain, pins: Mapping[str, str]
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


def _is_newer(name: str, than: _Made, chain: Chain) -> bool:
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
