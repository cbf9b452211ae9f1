"""Going back: who wants the run to continue from an earlier checkpoint, and whose wish counts.

A wish comes from a person (`holdfast rollback`) or from the script (`run.fail`). It stands until
an attempt that settles it is on record, and that record names it. So whoever controls the run next
finds in the store what still stands: no wish is lost, and none is granted twice.

Which set a wish comes to is decided when the sets are known (`core.save.choose`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.core.value import value

if TYPE_CHECKING:
    from holdfast.core.exits import Exit
    from holdfast.core.run.restart import Failure

Target = int | str | None
"""Where to: the newest set at or before a step (0: from scratch), a tag, or None: the newest."""

_NO_STEP = 2**62  # behind every step


@value
class Wish:
    """Somebody wants the run to go back to `to`, and to pass over so many batches from there.

    The batches are those of each rank's data streams, after the position that the set holds.
    `words`: why, or who asks.
    """

    id: str
    to: Target
    skip_batches: int
    words: str
    is_from_script: bool


@value
class Rollback:
    """What the attempt that goes back has on record: the wishes that it settles, and why."""

    ids: tuple[str, ...]
    to: Target
    words: str


def target_words(to: Target) -> str:
    """`step 400`, `scratch`, `the checkpoint tagged best`."""
    if to is None:
        return "the newest checkpoint"
    if isinstance(to, str):
        return f"the checkpoint tagged {to}"
    return f"step {to}" if to else "scratch"


def way_back(wish: Wish) -> str:
    """`back to step 400, skipping 20 batches`."""
    back = f"back to {target_words(wish.to)}"
    if not wish.skip_batches:
        return back
    batches = "1 batch" if wish.skip_batches == 1 else f"{wish.skip_batches} batches"
    return f"{back}, skipping {batches}"


def wish_words(wish: Wish) -> str:
    """The wish in one phrase: where to, and why."""
    return f"{way_back(wish)}: {wish.words}"


def wishes_of(attempt: int, ends: Iterable[tuple[int, Exit]]) -> tuple[Wish, ...]:
    """What the ranks of an attempt asked for when they gave up, by rank."""
    wishes = []
    for rank, end in sorted(ends, key=lambda one: one[0]):
        report = end.report
        if report is None or not report.declared:
            continue
        if report.rollback_to is not None or report.skip_batches:
            name = f"fail-{attempt:04d}-{rank:05d}"
            wishes.append(Wish(name, report.rollback_to, report.skip_batches, report.message, True))
    return tuple(wishes)


def prevailing(wishes: Sequence[Wish]) -> tuple[Wish | None, str]:
    """The wish that counts, of several in the order made, and why it is that one.

    A person's goes before a script's, and the last word before earlier ones. Of ranks that gave up
    together, the one that wants to go back furthest counts: what one of them holds for bad is bad.
    """
    if not wishes:
        return None, ""
    persons = [wish for wish in wishes if not wish.is_from_script]
    if persons:
        return persons[-1], "a person's last word counts" if len(wishes) > 1 else ""
    different = {(wish.to, wish.skip_batches): None for wish in wishes}
    return min(wishes, key=_how_far), "it goes back furthest" if len(different) > 1 else ""


def _how_far(wish: Wish) -> tuple[int, bool, int, str]:
    step = wish.to if isinstance(wish.to, int) else _NO_STEP
    return step, wish.to is None, -wish.skip_batches, wish.id


def progress_from(failures: Sequence[Failure], completed_before: int, *, asks: bool) -> int:
    """The step beyond which a failed attempt made progress.

    After a rollback progress is counted anew, from the step gone back to. But an attempt whose
    script asks to go back once more has only made some if it got further than the last that did:
    else the same failure at the same place would be progress for ever.
    """
    if not asks:
        return completed_before
    reached = [failure.completed_after for failure in failures if failure.asked_rollback]
    return max([completed_before, *reached])


@dataclass(slots=True)
class Rollbacks:
    """The wishes that stand, as the run's machine knows them."""

    standing: tuple[Wish, ...] = ()
    _known: tuple[str, ...] = ()
    _taken_up: tuple[Wish, ...] = ()
    _settled: tuple[Wish, ...] = ()  # by the newest attempt

    def add(self, wishes: Iterable[Wish]) -> bool:
        """Note wishes; whether one of them was new. A wish may be told of more than once."""
        fresh = tuple([wish for wish in wishes if wish.id not in self._known])
        if not fresh:
            return False
        self.standing += fresh
        self._known += tuple(wish.id for wish in fresh)
        return True

    @property
    def asked_by_person(self) -> bool:
        """Whether a person waits for it: nothing else is worth waiting for then."""
        return any(not wish.is_from_script for wish in self.standing)

    def take_up(self) -> tuple[Wish | None, str]:
        """The wish that the next choice of a set goes by, and why that one."""
        self._taken_up = self.standing
        return prevailing(self.standing)

    @property
    def is_overtaken(self) -> bool:
        """Whether more was wished for since the choice began: then it has to be made again."""
        return self._taken_up != self.standing

    def settle(self) -> tuple[Wish | None, Rollback | None]:
        """The next attempt starts from what was chosen: the wish it grants, and its record."""
        wishes, self.standing, self._taken_up = self.standing, (), ()
        self._settled = wishes
        granted, _ = prevailing(wishes)
        if granted is None:
            return None, None
        ids = tuple(wish.id for wish in wishes)
        return granted, Rollback(ids, granted.to, granted.words)

    def stand_again(self) -> None:
        """Nothing came of the attempt that was to settle them, and it is not on record."""
        self.standing = (*self._settled, *self.standing)
