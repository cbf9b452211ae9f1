"""The watch over a run's attempts: when to look, when a look means a hang, and what was learned.

    Timer.HANG ──▶ Examine ──▶ Examined ──▶ all well: look again when the next clock runs out
                                  └───────▶ hung: CollectStacks ──▶ StacksCollected ──▶ Examine
                                               └──▶ it went on after all │ still hung: Kill

The second look is cheap, and what seemed hung may have gone on meanwhile. A set that is being
written while its ranks hang gets the time to be committed: it is what the next attempt starts
from. Pure: driven by `core.run`, as `core.save.saving` is.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.core import actions as act
from holdfast.core import records
from holdfast.core.durations import SECOND_NS
from holdfast.core.hang.deadline import Experience, HangPolicy
from holdfast.core.hang.events import Examined, RankStack, StacksCollected, Suspended
from holdfast.core.hang.judge import STOPPED, Hung, describe, judge, suspect
from holdfast.core.run.state import Timer

STACKS_LIMIT_NS = 30 * SECOND_NS  # well above what the edges take
SAVE_PATIENCE_NS = 30 * SECOND_NS
SAVE_LOOK_NS = SECOND_NS
STOPPED_LOOKS = 8  # within a deadline: whoever was continued meanwhile was not stopped all the time
# The longest pause is that of this period and of the one before: none is remembered for ever.
MEMORY_NS = 12 * 3600 * SECOND_NS


class HangVerdict(NamedTuple):
    """The attempt hangs: which rank holds it up, the story, and where in the program that is."""

    rank: int
    words: str
    where: str

    @property
    def signature(self) -> str:
        """What two hangs must share to be the same failure."""
        return f"hang: {self.where}" if self.where else "hang"


@dataclass(slots=True)
class Suspicion:
    """The attempt may hang: since when that is looked into, and where its ranks stand."""

    asked_ns: int
    stacks: tuple[RankStack, ...] = ()


@dataclass(slots=True)
class HangWatch:
    """The watch over all attempts of a run. `verdict`: this attempt was ended because it hung."""

    policy: HangPolicy
    verdict: HangVerdict | None = None
    _ranks: int = 0
    _launched_ns: int = 0
    _not_before_ns: int = 0
    _suspicion: Suspicion | None = None
    # Ranks, and since when each look found them stopped.
    _stopped_ns: dict[int, int] = field(default_factory=dict)
    _start_ns: int = 0
    _has_stepped: bool = False
    _longest_ns: tuple[int, int] = (0, 0)  # in the period before, in this one
    _period: int = 0
    _patience: int = 1
    _hung_at_step: int = -1

    @property
    def experience(self) -> Experience:
        """What is known of the run."""
        return Experience(max(self._longest_ns), self._start_ns, self._patience)

    # --- what happens -----------------------------------------------------------------------

    def begin(self, at_ns: int, ranks: int) -> list[act.Action]:
        """All ranks of an attempt were started."""
        self._ranks = ranks
        self.verdict = self._suspicion = None
        self._launched_ns = self._not_before_ns = at_ns
        self._stopped_ns = {}
        self._has_stepped = False
        return self._look_later(at_ns)

    def stepped(self, at_ns: int) -> None:
        """All ranks of the attempt have completed a step."""
        if not self._has_stepped:
            self._has_stepped = True
            self._start_ns = max(self._start_ns, at_ns - self._launched_ns)

    def suspended(self, event: Suspended) -> list[act.Action]:
        """Nothing ran until now: every clock starts anew."""
        self._not_before_ns = event.at_ns
        self._suspicion = None
        self._stopped_ns = {}
        return self._look_later(event.at_ns)

    def collected(self, event: StacksCollected) -> list[act.Action]:
        """Where the ranks stand is known: look once more."""
        if self._suspicion is None:
            return []  # it went on, or was suspended
        self._suspicion.stacks = event.ranks
        return [act.Examine(event.attempt)]

    def examined(
        self, event: Examined, *, gone: Container[int], reached: int, is_writing: bool
    ) -> list[act.Action]:
        """A look at all ranks, of which those in `gone` have left.

        `reached`: the highest step of the run. `is_writing`: a set is being written or committed.
        """
        self._learn(event, reached)
        looks = [look for look in event.ranks if look.rank not in gone]
        self._stopped_ns = {
            look.rank: self._stopped_ns.get(look.rank, event.at_ns)
            for look in looks
            if look.process == STOPPED
        }
        hung, due_ns = judge(
            looks,
            self.policy,
            self.experience,
            at_ns=event.at_ns,
            not_before_ns=self._not_before_ns,
            stopped_ns=self._stopped_ns,
        )
        if not hung:
            self._suspicion = None
            return self._look_later(event.at_ns, due_ns)
        suspicion = self._suspicion
        if suspicion is None:
            return self._suspect(event, hung)
        if is_writing and _may_be_written(event, hung, suspicion):
            return [act.SetTimer(Timer.HANG, event.at_ns + SAVE_LOOK_NS)]
        return self._condemn(event, hung, suspicion.stacks, reached)

    # --- what follows -----------------------------------------------------------------------

    def _look_later(self, at_ns: int, due_ns: int | None = None) -> list[act.Action]:
        """Look at the next clock's end, and often enough to see that another limit holds by now."""
        if not self.policy.is_watched:
            return []
        often_ns = min(self.policy.floor_ns, self.policy.step_ns or self.policy.floor_ns)
        later_ns = at_ns + (often_ns // STOPPED_LOOKS if self._stopped_ns else often_ns)
        if due_ns is not None:
            later_ns = max(at_ns + 1, min(later_ns, due_ns))
        return [act.SetTimer(Timer.HANG, later_ns)]

    def _suspect(self, event: Examined, hung: tuple[Hung, ...]) -> list[act.Action]:
        self._suspicion = Suspicion(event.at_ns)
        words = describe(suspect(hung), event.at_ns, ranks=self._ranks)
        return [
            act.Say("warning", f"{words}; collecting stacks"),
            act.CollectStacks(event.attempt),
            act.SetTimer(Timer.HANG, event.at_ns + STACKS_LIMIT_NS),
        ]

    def _condemn(
        self, event: Examined, hung: tuple[Hung, ...], stacks: tuple[RankStack, ...], reached: int
    ) -> list[act.Action]:
        one = suspect(hung, stacks)
        where = next((stack.where for stack in stacks if stack.rank == one.look.rank), "")
        words = describe(one, event.at_ns, stacks, self._ranks)
        self.verdict = HangVerdict(one.look.rank, words, where)
        self._patience = 2 * self._patience if reached <= self._hung_at_step else 2
        self._hung_at_step = reached
        return [
            records.hang(event.attempt, one.clock.since_ns, event.at_ns),
            act.Say("warning", words),
            act.Kill("hung"),
        ]

    def _learn(self, event: Examined, reached: int) -> None:
        if reached > self._hung_at_step:
            self._patience = 1
        period = event.at_ns // MEMORY_NS
        if period != self._period:
            kept = self._longest_ns[1] if period == self._period + 1 else 0
            self._longest_ns, self._period = (kept, 0), period
        kept, longest_ns = self._longest_ns
        self._longest_ns = (kept, max((longest_ns, *(look.longest_ns for look in event.ranks))))


def _may_be_written(event: Examined, hung: tuple[Hung, ...], suspicion: Suspicion) -> bool:
    """A writer is a thread of its rank: it works while the loop hangs, unless all of it stopped."""
    is_stopped = any(one.look.process == STOPPED for one in hung)
    return not is_stopped and event.at_ns < suspicion.asked_ns + SAVE_PATIENCE_NS
