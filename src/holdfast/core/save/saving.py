"""The saves of one attempt: when they are due, and their agreement, in one place.

Joins `core.save.policy` (when), `core.save.agree` (how all ranks save one step), `core.save.memory`
(where to) and what is measured on the way (`core.save.pace`, cost of a save). The run's
machine drives it. Pure: times come in with events.

Where ranks have buffers, a periodic save goes to memory, and is over when all have copied: the next
order follows at once, so that it reaches the ranks while they work on the steps between.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, InitVar, dataclass, field, replace

from holdfast.core.events import Resume
from holdfast.core.hosts.copies import NOTHING_IN_MEMORY, InMemory
from holdfast.core.notices.plan import SaveTime
from holdfast.core.save import events as news
from holdfast.core.save.adopted import go_on_with
from holdfast.core.save.agree import Agreement, lead_steps, step
from holdfast.core.save.agree_moves import NOT_COPIED, AgreementPhase
from holdfast.core.save.flushes import PATIENCE_NS, Flushes
from holdfast.core.save.memory import MemoryTier
from holdfast.core.save.pace import FailureRate, SavePace, latest, median
from holdfast.core.save.policy import Never, SavePolicy, SaveView, Tier
from holdfast.core.save.replicas import Replicas
from holdfast.core.save.word import IN_PARTS, buffer_of, is_in_parts, unpack

# From reading the ranks' progress to an order's being stored: the edges' slowest polling, doubled.
REACTION_NS = 500_000_000
# The same for a request, at least: its edge reads the ranks' progress just before it feeds it.
REQUEST_REACTION_NS = 5_000_000
LONG_STEP = 2  # times the usual: when it will be over, nobody knows
# The same for a save to memory, ordered in answer to the ranks' last copies: at first. Each order
# that came too late doubles it, and each that came in time takes an eighth of it away.
COPIED_REACTION_NS = 5_000_000
# From the first step of an attempt that resumed from memory until it saves without buffers.
BUFFERS_WAIT_NS = 10_000_000_000


# Of news: those of a set that has become durable, and those after which a save may be due.
DURABLE = (news.Committed, news.DurableBeside)
MOVES = frozenset({news.Progress, news.Snapped})


@dataclass(slots=True)
class Saving:
    """The save side of one attempt; `hear` takes news and gives agreement actions.

    `policy` is the durable tier's, `memory_policy` the memory tier's, where there is one.
    `request_reaction_ns`: as REQUEST_REACTION_NS, where news travels more slowly. `hold_ns`: how
    long the last step is tried again that could not be saved.
    """

    ranks: int
    policy: SavePolicy
    _: KW_ONLY
    memory_policy: SavePolicy = field(default_factory=Never)
    request_reaction_ns: int = REQUEST_REACTION_NS
    hold_ns: int = 0
    flush_patience_ns: InitVar[int] = PATIENCE_NS
    replicates: InitVar[bool] = False

    # Of the run.
    tier: MemoryTier = field(init=False)
    pace: SavePace = field(default_factory=SavePace)
    failures: FailureRate = field(default_factory=FailureRate)
    held_from_ns: int | None = None  # from then on nothing becomes durable but the announced save
    _blocked_ns: tuple[int, ...] = ()  # training, by the last few copies
    _total_ns: int = 0  # of the last save: from its order until it was durable
    _asked_last: tuple[SavePolicy, SaveView] | None = None
    _reaction_ns: int = COPIED_REACTION_NS
    _committed_ns: int = 0
    oldest_durable_step: int = 0  # of the lineage, as far as it is known here; 0: none is

    # Of the attempt.
    answered: tuple[int, int] = (0, 0)  # took and since, as of `core.events.HostsAnswered`
    agreement: Agreement = field(init=False)
    joined: set[int] = field(default_factory=set)
    _request: tuple[str, bool] | None = None  # a request that cannot be ordered yet
    _resumed_step: int = 0
    _ordered_ns: int = 0
    _known_ns: int = 0  # when the fastest rank was last seen to move
    _is_split: bool = False  # the newest copies are ordered in parts

    def __post_init__(self, flush_patience_ns: int, replicates: bool) -> None:
        """No attempt has begun yet."""
        self.tier = MemoryTier(self.ranks, Flushes(flush_patience_ns), Replicas(replicates))
        self.begin(0, 0)

    def begin(
        self,
        at_ns: int,
        committed_step: int,
        *,
        attempt: int = 0,
        resume: Resume | None = None,
        ranks: int | None = None,
    ) -> None:
        """A new attempt starts. `committed_step`: the newest durable one (0: none).

        It starts from `resume`, or from that very step; with so many ranks, or as many as before.
        """
        self.ranks = ranks or self.ranks
        resume = resume or Resume(None, committed_step, None)
        self.agreement = Agreement.start(
            self.ranks, committed_step, resumed_step=resume.step, hold_ns=self.hold_ns
        )
        self.tier.begin(at_ns, attempt, resume, self.ranks)
        self.joined, self.answered = set(), (0, 0)
        if self._request is not None and self._request[1]:  # what a person wants, they want still
            self._request = None
        self.failures.begin(at_ns)
        self._resumed_step = resume.step
        if not resume.step:  # what is there is of another lineage
            self.oldest_durable_step = 0
        self._note_durable(committed_step)
        if resume.step <= committed_step or not self._committed_ns:  # else a flush is due as before
            self._committed_ns = at_ns
        self._ordered_ns = at_ns
        self._known_ns = at_ns  # when the fastest rank was last seen to move
        self.pace.begin()

    def adopt(
        self, at_ns: int, order: int, verdict: int, memory: InMemory = NOTHING_IN_MEMORY
    ) -> tuple[news.Action, ...]:
        """The attempt has begun under another controller: go on with what that ordered last."""
        self.tier.adopt(memory, buffer_of(unpack(order).flags))
        return go_on_with(self.agreement, at_ns, order, verdict)

    # --- what others want to know -----------------------------------------------------------

    @property
    def committed_step(self) -> int:
        """The newest step known to be durable on all ranks."""
        return self.agreement.committed_step

    @property
    def fastest_step(self) -> int:
        """The largest boundary that any rank has published."""
        return self.agreement.ranks.extremes.greatest

    @property
    def slowest_step(self) -> int:
        """The largest boundary that all ranks have published."""
        return self.agreement.ranks.extremes.least

    @property
    def reason(self) -> str:
        """Why a save was due when that was last asked, or was not; empty: it never was."""
        if self._asked_last is None:
            return ""
        policy, view = self._asked_last
        return policy.decide(view)[1]

    @property
    def step_time_ns(self) -> int:
        """The mean time of a step; 0: not known yet."""
        return self.pace.step_time_ns

    @property
    def blocked_ns(self) -> int:
        """How long the last copy kept training from running; 0: there was none."""
        return self._blocked_ns[-1] if self._blocked_ns else 0

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
    def save_time(self) -> SaveTime:
        """What a durable save takes that is ordered now.

        At its launch an attempt has no buffers yet, and may get some: the longer way counts.
        """
        tier = self.tier
        flush_ns = tier.flushes.took_ns
        write_ns = tier.seal_ns + flush_ns if flush_ns else 0
        if tier.is_there:
            return SaveTime(self.step_time_ns, median(self._blocked_ns), write_ns, flush_ns)
        if not tier.is_ahead(self.committed_step):
            flush_ns = 0
        write_ns = max(write_ns, self._total_ns)
        return SaveTime(self.step_time_ns, self.blocked_ns, write_ns, flush_ns)

    # --- what happens -----------------------------------------------------------------------

    def hear(self, what: news.Event) -> tuple[news.Action, ...]:
        """Take one piece of news; what the edges must do now, in order."""
        phase = self.agreement.phase
        actions = self._step(what)
        kind = type(what)
        if kind is news.Progress:
            extremes, resumed, tier = self.agreement.ranks.extremes, self._resumed_step, self.tier
            least, is_flushing = extremes.least, tier.flushes.under_way is not None
            self.pace.note(what.at_ns, least, extremes.greatest, resumed, is_flushing=is_flushing)
            if least > resumed and tier.buffers.read is not None:
                tier.buffers = tier.buffers.restored()
        elif kind is news.Snapped or (kind is news.Durable and phase in NOT_COPIED):
            self._ordered_ns = what.at_ns
        elif isinstance(what, DURABLE):
            self._note_commit(what)
        if self._request is not None:
            actions += self._ask_as_asked(what.at_ns)
        if kind in MOVES and self.may_order:
            actions += self._ask_if_due(what.at_ns)
        return actions

    def look(self, at_ns: int) -> tuple[news.Action, ...]:
        """A buffer may have become free: what waited for one is ordered now."""
        return self._ask_if_due(at_ns) if self.tier.is_there and self.may_order else ()

    def buffers_came(self, at_ns: int) -> tuple[news.Action, ...]:
        """All ranks have buffers: what waited for them is ordered, if the pace is known."""
        has_stepped = self.slowest_step > self._resumed_step
        return self.look(at_ns) if has_stepped and self.step_time_ns else ()

    def hear_last_words(self, what: news.Event) -> tuple[news.Action, ...]:
        """The same of an attempt that is being killed: it counts, and nothing more is asked."""
        actions = self._step(what)
        if isinstance(what, DURABLE):
            self._note_commit(what)
        return actions

    def _step(self, what: news.Event) -> tuple[news.Action, ...]:
        agreement = self.agreement
        extremes, misses = agreement.ranks.extremes, agreement.misses
        fastest = extremes.greatest
        agreement.free_buffers = self.tier.free if self.tier.is_there else ()
        actions = tuple(map(self._split, step(agreement, what)))
        if extremes.greatest > fastest:
            self._known_ns = what.at_ns
        for action in actions:
            if isinstance(action, news.SealBuffer):
                of = action.epoch, action.step, action.buffer
                self.tier.copied(what.at_ns, *of, is_split=self._is_split)
                self._reaction_ns -= (self._reaction_ns - COPIED_REACTION_NS) // 8
            elif isinstance(action, news.PublishOrder):
                buffer = buffer_of(action.flags)
                if buffer is not None:
                    self.tier.ordered(buffer)
        if agreement.in_memory and agreement.misses > misses:
            self._reaction_ns = min(2 * self._reaction_ns, REACTION_NS)
        return actions

    def _split(self, action: news.Action) -> news.Action:
        """An order into a buffer: in parts, where the ranks are known to be equal."""
        if not isinstance(action, news.PublishOrder) or buffer_of(action.flags) is None:
            return action
        flags = action.flags | IN_PARTS
        self._is_split = self.tier.may_split and is_in_parts(flags)
        return replace(action, flags=flags) if self._is_split else action

    def _note_commit(self, what: news.Committed | news.DurableBeside) -> None:
        if what.step != self.committed_step:
            return
        self._note_durable(what.step)
        self._committed_ns = what.at_ns
        if isinstance(what, news.Committed) and self.agreement.buffer is None:
            self._total_ns = max(1, what.at_ns - self._ordered_ns)  # 0: not measured

    def _note_durable(self, step: int) -> None:
        if step:
            self.oldest_durable_step = min(self.oldest_durable_step or step, step)

    def ask(self, at_ns: int, why: str, *, in_step: bool = False) -> tuple[news.Action, ...]:
        """Somebody wants a save. It waits for one that is under way, and for a step to save.

        `in_step`: a script asks, and waits with that step, the one to save, for the order.
        """
        self._request = why, in_step
        return self._ask_as_asked(at_ns)

    def note(self, why: str) -> None:
        """Somebody wants a save, and nothing trains: it waits for the next attempt's first step."""
        self._request = why, False

    def _ask_as_asked(self, at_ns: int) -> tuple[news.Action, ...]:
        agreement = self.agreement
        if self._request is None or agreement.stop is not None:
            return ()
        why, in_step = self._request
        is_free = agreement.phase is AgreementPhase.IDLE or (
            agreement.phase is AgreementPhase.COLLECTING and agreement.in_memory
        )
        if not (is_free or (in_step and agreement.is_far)):
            return ()
        if not in_step and not self.tier.is_there and self._is_held(at_ns):
            return ()  # the save that was announced is this one too, unless it is called off
        if agreement.is_saved and not in_step:
            return ()
        self._request = None
        lead = 1 if in_step else self._request_lead()
        return self.hear(news.SaveDue(at_ns, why, lead, in_step=in_step))

    def stop(self, at_ns: int, why: str, leave_by_ns: int | None) -> tuple[news.Action, ...]:
        """Save at the next boundary that all ranks can answer, and leave."""
        limit_ns = max(news.DEFAULT_ANSWER_LIMIT_NS, 4 * self.blocked_ns)
        lead = self._request_lead()
        return self.hear(news.StopDue(at_ns, why, leave_by_ns, lead, limit_ns))

    def move_stop(self, at_ns: int, leave_by_ns: int | None) -> tuple[news.Action, ...]:
        """A stop that is under way has until then."""
        return self.hear(news.StopMoved(at_ns, leave_by_ns))

    def _request_lead(self) -> int:
        if not self.step_time_ns:
            return 1
        took_ns, since_ns = self.answered
        reaction_ns = max(self.request_reaction_ns, took_ns)
        if since_ns < took_ns + LONG_STEP * self.step_time_ns:  # else the step under way is long
            reaction_ns += since_ns
        return lead_steps(self.step_time_ns, reaction_ns)

    def note_cost(self, blocked_ns: int) -> None:
        """A rank was blocked this long by the last copy."""
        self._blocked_ns = latest(self._blocked_ns, blocked_ns)

    # --- what is due ------------------------------------------------------------------------

    def _ask_if_due(self, at_ns: int) -> tuple[news.Action, ...]:
        in_memory = self.tier.is_there
        if not in_memory and (self._is_held(at_ns) or self._awaits_buffers(at_ns)):
            return ()
        nearest, furthest = 1, self.pace.steps_in(REACTION_NS)
        if in_memory:  # the order must be there before the ranks are
            nearest = self.pace.steps_in(self._reaction_ns + at_ns - self._known_ns)
            furthest = max(nearest, furthest)
        self._asked_last = policy, view = self._question(at_ns, furthest)
        if not policy.is_due(view):
            return ()
        why = policy.why(view)
        # The nearest boundary at which it is due: being due never ends by waiting.
        while nearest < furthest:
            middle = (nearest + furthest) // 2
            if self._is_due(at_ns, middle):
                furthest = middle
            else:
                nearest = middle + 1
        return self.hear(news.SaveDue(at_ns, why, nearest, in_memory))

    def _is_due(self, at_ns: int, lead: int) -> bool:
        policy, view = self._question(at_ns, lead)
        return policy.is_due(view)

    def _question(self, at_ns: int, lead: int) -> tuple[SavePolicy, SaveView]:
        """What decides whether a save is due so many boundaries ahead."""
        if self.tier.is_there:
            return self._question_at(max(at_ns, self._known_ns + lead * self.step_time_ns), lead)
        return self._question_at(at_ns + (lead - 1) * self.step_time_ns, lead)

    def _question_at(self, at_ns: int, lead: int) -> tuple[SavePolicy, SaveView]:
        """The same, of a boundary that is reached then."""
        if not self.tier.is_there:
            return self.policy, self.view(at_ns, lead)
        nearest_ns = at_ns + self.step_time_ns // 2  # the nearest boundary, not the next one
        in_memory = self.memory_policy, self.memory_view(nearest_ns, lead)
        if in_memory[0].is_due(in_memory[1]):
            return in_memory
        # A durable save that no set in memory will do for: at a certain step, or none is ever made.
        tier = self.tier
        view = self.durable_view(at_ns, self.fastest_step + lead)._replace(
            last_committed_step=max(self.committed_step, tier.copied_step),
            last_committed_ns=max(self._committed_ns, tier.copied_ns),
        )
        return (self.policy, view) if self.policy.is_due(view) else in_memory

    @property
    def may_order(self) -> bool:
        """Whether a save that is due would be ordered now."""
        agreement, tier = self.agreement, self.tier
        if agreement.phase is not AgreementPhase.IDLE or agreement.stop is not None:
            return False
        if agreement.ranks.have_ended:
            return False
        return not tier.is_there or bool(agreement.ranks.unwritten(tier.free))

    def would_be_due(self, at_ns: int, step: int) -> bool:
        """Whether that step would be saved, should the ranks pass the one before it at `at_ns`."""
        if self.tier.is_there:
            at_ns += self.step_time_ns
        policy, view = self._question_at(at_ns, step - self.fastest_step)
        return policy.is_due(view)

    def _is_held(self, at_ns: int) -> bool:
        """Whether what becomes durable now would be in the way of a save that was announced."""
        return self.held_from_ns is not None and at_ns >= self.held_from_ns

    def _awaits_buffers(self, at_ns: int) -> bool:
        """Whether the ranks will tell of buffers soon, for they have resumed from such.

        A copy into none takes as much memory again, and the training waits for all of it.
        """
        tier, first_ns = self.tier, self.pace.first_ns
        is_early = first_ns is None or at_ns < first_ns + BUFFERS_WAIT_NS
        return is_early and tier.resume.buffer is not None and not tier.is_lost

    def flush_due(self, at_ns: int, step: int) -> tuple[bool, str]:
        """Whether that step, which is in memory, should become durable now; and why, if so."""
        if self._is_held(at_ns):
            return False, "a save that was announced is at hand"
        view = self.durable_view(at_ns, step)
        return self.policy.decide(view) if self.policy.is_due(view) else (False, "")

    def is_next_flush_due(self, at_ns: int, began_ns: int, step: int) -> bool:
        """Whether, but for that step's flush, which began then, another one should be under way."""
        view = self.durable_view(at_ns, self.fastest_step)
        done = max(step, view.last_committed_step)
        view = view._replace(last_committed_step=done, last_committed_ns=began_ns)
        return self.policy.is_due(view)

    def view(self, at_ns: int, lead: int = 1) -> SaveView:
        """What the durable tier's policy sees where there is no memory tier."""
        agreement = self.agreement
        return SaveView(  # in the order of its fields, for it is made for every question
            at_ns,
            agreement.ranks.extremes.greatest + lead,
            agreement.committed_step,
            self._committed_ns,
            self.pace.step_time_ns,
            self.blocked_ns,
            self._total_ns,
            self.failures.seen,
            self.failures.observed_at_ns(at_ns),
        )

    def memory_view(self, at_ns: int, lead: int = 1) -> SaveView:
        """What the memory tier's policy sees: sets in memory stand for durable ones."""
        tier = self.tier
        blocked_ns, seal_ns = median(self._blocked_ns), tier.seal_ns
        return SaveView(
            at_ns,
            self.agreement.ranks.extremes.greatest + lead,
            tier.copied_step,
            tier.copied_ns,
            self.pace.step_time_ns,
            blocked_ns,
            blocked_ns + seal_ns if seal_ns else 0,
            self.failures.seen,
            self.failures.observed_at_ns(at_ns),
            calm_ns=self.failures.calm_ns(at_ns),
            recent_ns=self.failures.recent_ns(at_ns),
            taken_ns=tier.taken_ns,
            tier=Tier.MEMORY,
        )

    def durable_view(self, at_ns: int, step: int) -> SaveView:
        """What the durable tier's policy sees behind a memory tier: flushes, and lost memory."""
        return SaveView(
            at_ns,
            step,
            self.agreement.committed_step,
            self._committed_ns,
            self.pace.step_time_ns,
            0,
            self.tier.flushes.took_ns,
            self.failures.losses,
            self.failures.observed_at_ns(at_ns),
            slowdown_ppm=self.pace.slowdown_ppm,
            tier=Tier.DURABLE,
        )


def _steps(count: int) -> str:
    return "the one step" if count == 1 else f"the {count} steps"
