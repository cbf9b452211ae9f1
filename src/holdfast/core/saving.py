"""The saves of one attempt: when they are due, and their agreement, in one place.

Joins `core.saves` (when), `core.agree` (how all ranks save one step) and what is measured on the
way (step time, cost of a save). The controller's run machine and the conductor of a session
without supervisor both drive this class. Pure: times come in with the events.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from holdfast.core import agree_events as news
from holdfast.core.agree import Agreement, Phase, lead_steps, step, wake_at_ns
from holdfast.core.saves import SavePolicy, SaveView

# From reading the ranks' progress to an order's being stored: the edges' slowest polling, doubled.
REACTION_NS = 500_000_000
# The pace is measured over stretches of at least this long, and the fastest of the last few counts:
# a mean would hold evaluations and stalls, and an order given by it would come too late.
PACE_STRETCH_NS = REACTION_NS // 2
PACE_STRETCHES = 8
# The same for a request: its edge reads the ranks' progress just before it feeds it.
REQUEST_REACTION_NS = 5_000_000
NO_FAILURES = (0, 0)


@dataclass(frozen=True, slots=True)
class SaveCost:
    """What the last save took: training blocked for it, and order to durable."""

    blocked_ns: int = 0
    total_ns: int = 0


class Saving:
    """The save side of one attempt; `hear` takes news and gives agreement actions."""

    def __init__(
        self, ranks: int, policy: SavePolicy, *, request_reaction_ns: int = REQUEST_REACTION_NS
    ) -> None:
        """`request_reaction_ns`: as REQUEST_REACTION_NS, where news travels more slowly."""
        self._request_reaction_ns = request_reaction_ns
        self.policy = policy
        self.ranks = ranks
        self.cost = SaveCost()
        self.reason = ""
        self.step_time_ns = 0
        self.failures_seen, self.observed_ns = NO_FAILURES
        self.begin(0, 0)

    def begin(self, at_ns: int, committed_step: int) -> None:
        """A new attempt starts from `committed_step` (0: from scratch)."""
        self.agreement = Agreement.start(self.ranks, committed_step)
        self.joined: tuple[int, ...] = ()
        self._asked: tuple[str, bool] | None = None  # a request that cannot be ordered yet
        self._started_ns = at_ns
        self._resumed_step = committed_step
        self._committed_ns = at_ns
        self._ordered_ns = at_ns
        self._first_progress: tuple[int, int] | None = None
        self._stretch: tuple[int, int] | None = None  # where the one under way began
        self._paces_ns: deque[int] = deque(maxlen=PACE_STRETCHES)

    def end(self, at_ns: int) -> None:
        """The attempt is over: its time counts towards the failure rate."""
        self.observed_ns += max(0, at_ns - self._started_ns)
        self._started_ns = at_ns

    # --- what others want to know -----------------------------------------------------------

    @property
    def committed_step(self) -> int:
        """The newest step known to be durable on all ranks."""
        return self.agreement.committed_step

    @property
    def fastest_step(self) -> int:
        """The largest boundary any rank has published."""
        return self.agreement.fastest_step

    @property
    def slowest_step(self) -> int:
        """The largest boundary that all ranks have published."""
        return min(rank.step for rank in self.agreement.ranks)

    @property
    def is_active(self) -> bool:
        """Whether an order is out: the edges look at the ranks' words more often then."""
        phase = self.agreement.phase
        ended = any(rank.ended for rank in self.agreement.ranks)
        return ended or phase in (Phase.COLLECTING, Phase.WRITING, Phase.COMMITTING)

    @property
    def is_writing(self) -> bool:
        """Whether a set was copied and is on its way to the store."""
        return self.agreement.phase in (Phase.WRITING, Phase.COMMITTING)

    @property
    def is_ended(self) -> bool:
        """Whether every rank's loop is over: what they still do is not ours to cut short."""
        return all(rank.ended for rank in self.agreement.ranks)

    @property
    def is_over(self) -> bool:
        """Whether the ranks have been told that they may leave."""
        return self.agreement.phase is Phase.OVER

    @property
    def what_is_saved(self) -> str:
        """What is durable of what was done, and what is not, for people."""
        if not self.joined:
            return "no session was there to save (a plain command, or one still starting)"
        committed, lost = self.committed_step, self.fastest_step - self.committed_step
        if not committed:
            return (
                f"nothing is saved of {_steps(lost)} done" if lost > 0 else "no step was done yet"
            )
        if lost <= 0:
            return f"step {committed} is saved"
        rest = f"{lost} steps after it are not" if lost > 1 else "the one after it is not"
        return f"step {committed} is saved, {rest}"

    @property
    def wake_at_ns(self) -> int | None:
        """When to feed a Tick if nothing else happens."""
        return wake_at_ns(self.agreement)

    # --- what happens -----------------------------------------------------------------------

    def join(self, rank: int) -> None:
        """A rank's session showed itself."""
        if rank not in self.joined:
            self.joined = (*self.joined, rank)

    def hear(self, what: news.Event) -> tuple[news.Action, ...]:
        """Take one piece of news; what the edges must do now, in order."""
        self.agreement, actions = step(self.agreement, what)
        if isinstance(what, news.Committed) and what.step == self.committed_step:
            self._committed_ns = what.at_ns
            total_ns = what.at_ns - self._ordered_ns
            self.cost = replace(self.cost, total_ns=max(0, total_ns))
        if isinstance(what, news.Snapped):
            self._ordered_ns = what.at_ns
        if isinstance(what, news.Progress):
            self._measure(what)
            actions += self._ask_if_due(what.at_ns)
        return actions + self._ask_as_asked(what.at_ns)

    def ask(self, at_ns: int, why: str, *, in_step: bool = False) -> tuple[news.Action, ...]:
        """Somebody wants a save. It waits for one that is under way, and for a step to save.

        `in_step`: a script asks, and waits with its step until the order is there.
        """
        self._asked = why, in_step
        return self._ask_as_asked(at_ns)

    def _ask_as_asked(self, at_ns: int) -> tuple[news.Action, ...]:
        agreement = self.agreement
        idle = agreement.phase is Phase.IDLE and agreement.stop is None
        if self._asked is None or not idle or agreement.is_saved:
            return ()
        (why, in_step), self._asked = self._asked, None
        lead = 1 if in_step else self._request_lead()
        return self.hear(news.SaveAsked(at_ns, why, lead))

    def stop(self, at_ns: int, why: str, leave_by_ns: int | None) -> tuple[news.Action, ...]:
        """Save at the next boundary that all ranks can answer, and leave."""
        limit_ns = max(news.DEFAULT_ANSWER_LIMIT_NS, 4 * self.cost.blocked_ns)
        lead = self._request_lead()
        return self.hear(news.StopAsked(at_ns, why, leave_by_ns, lead, limit_ns))

    def _request_lead(self) -> int:
        if not self.step_time_ns:
            return 1
        return lead_steps(self.step_time_ns, self._request_reaction_ns)

    def note_cost(self, blocked_ns: int) -> None:
        """The slowest rank was blocked this long by the last copy."""
        self.cost = replace(self.cost, blocked_ns=blocked_ns)

    def _measure(self, what: news.Progress) -> None:
        """Mean time of a step since the second boundary: the first one holds the compilation."""
        slowest = self.slowest_step
        if slowest <= self._resumed_step:
            return
        if self._first_progress is None or self._stretch is None:
            self._first_progress = (what.at_ns, slowest)
            self._stretch = (what.at_ns, self.fastest_step)
            return
        since_ns, since_step = self._first_progress
        if slowest > since_step:
            self.step_time_ns = (what.at_ns - since_ns) // (slowest - since_step)
        since_ns, since_step = self._stretch
        if what.at_ns - since_ns >= PACE_STRETCH_NS and self.fastest_step > since_step:
            self._paces_ns.append((what.at_ns - since_ns) // (self.fastest_step - since_step))
            self._stretch = (what.at_ns, self.fastest_step)

    def _ask_if_due(self, at_ns: int) -> tuple[news.Action, ...]:
        if self.agreement.phase is not Phase.IDLE or self.agreement.stop is not None:
            return ()
        paces_ns = [*self._paces_ns, self.step_time_ns] if self.step_time_ns else []
        furthest = lead_steps(min(paces_ns), REACTION_NS) if paces_ns else 1
        due, self.reason = self._due(at_ns, furthest)
        if not due:
            return ()
        # The nearest boundary at which it is due: being due never ends by waiting.
        nearest = 1
        while nearest < furthest:
            middle = (nearest + furthest) // 2
            if self._due(at_ns, middle)[0]:
                furthest = middle
            else:
                nearest = middle + 1
        return self.hear(news.SaveAsked(at_ns, self.reason, lead=nearest))

    def _due(self, at_ns: int, lead: int) -> tuple[bool, str]:
        at_ns += (lead - 1) * self.step_time_ns
        view = SaveView(
            now_ns=at_ns,
            step=self.fastest_step + lead,
            last_committed_step=self.committed_step,
            last_committed_ns=self._committed_ns,
            step_time_ns=self.step_time_ns,
            save_blocked_ns=self.cost.blocked_ns,
            save_total_ns=self.cost.total_ns,
            failures_seen=self.failures_seen,
            observed_ns=self.observed_ns + (at_ns - self._started_ns),
            save_under_way=False,
        )
        return self.policy.decide(view)


def _steps(count: int) -> str:
    return "the one step" if count == 1 else f"the {count} steps"
