"""Carries out what `core.hosts.recover` decides: look, write the intent down, act, look again.

The order is the point. Before an act: the run's lease, the record read again under it, and the
intent on disk. So an act is never decided by one and carried out by another, and what a crash
leaves is an intent that the next look meets. The lease is given back as soon as the creation is
taken: the job on the new machines wants it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from holdfast.core.durations import SECOND_NS
from holdfast.core.exits import ExitCause
from holdfast.core.hosts.fleet import LOSS_CAUSE, ActOutcome, Resource
from holdfast.core.hosts.recover import (
    Act,
    Action,
    Decision,
    GenerationPhase,
    RecoverPolicy,
    RecoveryRecord,
    ResourcesSeen,
    Unseen,
    answered,
    decide,
    name_of,
    waiting_for,
)
from holdfast.core.hosts.wanted import Machines
from holdfast.errors import RunHeld, StoreUnavailable
from holdfast.provision.protocol import OrderAnswer, Provider, ProviderError, ProviderRefusedError

RENEW_S = 5.0
PIECE_NS = 60 * SECOND_NS


class Book(Protocol):
    """Where the record lies, and the right to change it: the run's lease."""

    @property
    def is_held(self) -> bool:
        """Whether this process holds the lease."""

    def load(self) -> RecoveryRecord:
        """The record as it was last written."""

    def hold(self) -> None:
        """Take the lease; raises RunHeld when the run shows life."""

    def renew(self) -> None:
        """Show life, if it is held; raises RunHeld when somebody took it over."""

    def save(self, record: RecoveryRecord) -> None:
        """Write an intent, durably. Raises RunHeld when the lease is somebody else's by now."""

    def note(self, record: RecoveryRecord) -> None:
        """Write down what was seen, and since when; nothing rests on it but time limits."""

    def lost(self, words: str, cause: str, at_unix_ns: int) -> None:
        """Put on record what the run's attempt was lost to, if one was left open."""

    def maintained(self, at_unix_ns: int) -> None:
        """Put on record that the machines were maintained then, if an attempt was lost to that."""

    def waited(self, kind: str, start_unix_ns: int, end_unix_ns: int) -> None:
        """Put on record what the run, without machines, has waited for."""

    def release(self) -> None:
        """Give the lease back."""


@dataclass(slots=True)
class RecoveryWaits:
    """What a run waits for, in pieces: who dies in a long wait leaves all but the last of them."""

    kind: str | None = None
    since_unix_ns: int = 0

    def look(self, kind: str | None, now_unix_ns: int) -> tuple[str, int, int] | None:
        """It waits for that now (None: for nothing that has a name); the piece that is over."""
        before, since_unix_ns = self.kind, self.since_unix_ns
        if kind == before and (kind is None or now_unix_ns - since_unix_ns < PIECE_NS):
            return None
        self.kind, self.since_unix_ns = kind, now_unix_ns
        if before is None or now_unix_ns <= since_unix_ns:
            return None
        return before, since_unix_ns, now_unix_ns


@dataclass(slots=True)
class RunRecovery:
    """One run's machines, looked after by this process.

    `clock` gives unix nanoseconds, `jitter` numbers from [0, 1); `say` takes a level and a
    sentence. `is_done`: whether the run is, and needs no machines any more. `let_go`: asked
    before the lease is taken for a deletion, to end what may still run on what is deleted. `seen`:
    what the last look that was answered has brought.
    """

    machines: Machines
    provider: Provider
    policy: RecoverPolicy
    book: Book
    clock: Callable[[], int]
    sleep: Callable[[float], None]
    jitter: Callable[[], float]
    say: Callable[[str, str], None]
    is_done: Callable[[], bool] = lambda: False
    let_go: Callable[[Decision], None] = lambda _decision: None
    seen: tuple[Resource, ...] = ()
    _waits: RecoveryWaits = field(default_factory=RecoveryWaits, repr=False)
    _operation: str = field(default="", repr=False)
    _said: str = field(default="", repr=False)
    _last: Decision | None = field(default=None, repr=False)
    _has_seen: bool = field(default=False, repr=False)

    def look(self) -> Decision:
        """What is to be done now; nothing is done, and nothing written."""
        record = self.book.load()
        return decide(
            self.policy,
            (self.machines.prefix, self.machines.owner),
            record,
            self._seen(record),
            self.clock(),
            self.jitter(),
        )

    def step(self) -> Decision:
        """Look, and do what is to be done now. Raises RunHeld when the lease was taken over.

        A store that is away after the first look is waited for: StoreUnavailable is for that one.
        So is a provider that refuses to answer, once it has answered: ProviderRefusedError.
        """
        try:
            self._last = decision = self._step()
        except RunHeld:
            raise
        except StoreUnavailable as error:
            if self._last is None:
                raise
            return self._waiting(self._last, f"{error}; nothing is decided on that")
        if self.policy.may_create:
            self._waiting_now(waiting_for(decision, self.machines.is_queued))
        return decision

    def close(self) -> None:
        """Put on record what has been waited for so far."""
        self._waiting_now(None)

    def _step(self) -> Decision:
        refused = self._follow_up()
        if refused is not None:
            return refused
        decision = self.look()
        action = decision.action
        if self.policy.may_create or self.policy.may_delete:
            for at_unix_ns in self._maintained():
                self.book.maintained(at_unix_ns)
        if action.act is Act.CREATE and self._operation:
            return self._waiting(decision, f"{action.name} is being made")
        if action.act not in (Act.DELETE, Act.CREATE) or action.is_forbidden:
            if self.policy.may_create or self.policy.may_delete:
                self.book.note(decision.record)
            if decision.record.phase is not GenerationPhase.DELETING:
                self.book.release()  # what is being made wants it
            return decision
        if self.is_done():
            reason = f"the run is done: nothing is made or deleted ({decision.reason})"
            return Decision(Action(Act.REST, action.name), decision.record, reason)
        if not self.book.is_held:
            if action.act is Act.DELETE:
                self.let_go(decision)
            try:
                self.book.hold()
            except RunHeld as error:
                return self._waiting(decision, f"{decision.reason}, but {error}")
            decision = self.look()  # somebody may have acted before the lease was ours
            if decision.action != action:
                return self._waiting(decision, decision.reason)
        self.book.save(decision.record)
        self._say("warning", _words(decision))
        return self._carried_out(decision)

    def run(self, every_s: float, limit_s: float | None = None) -> Decision:
        """Step until all is well, a person must see to it, or `limit_s` has passed.

        What looks take counts; so does each pause, whatever becomes of the calendar.
        """
        waited_s = 0.0
        while True:
            began_ns = self.clock()
            decision = self.step()
            act = decision.action.act
            if act in (Act.REST, Act.ASK) or decision.action.is_forbidden:
                return decision
            if act is Act.WAIT:
                self._say("info", decision.reason)
            if limit_s is not None and waited_s >= limit_s:
                return decision
            self.pause(every_s)
            waited_s += max(every_s, (self.clock() - began_ns) / SECOND_NS)

    def pause(self, duration_s: float) -> None:
        """Wait, and show life meanwhile if the lease is held."""
        while duration_s > 0:
            self._renew()
            self.sleep(min(duration_s, RENEW_S))
            duration_s -= RENEW_S
        self._renew()

    def _renew(self) -> None:
        try:
            self.book.renew()
        except RunHeld:
            raise
        except StoreUnavailable as error:  # nothing is done without it: the next look asks again
            self._say("warning", str(error))

    def _maintained(self) -> list[int]:
        stamps = (part.maintained_unix_ns for one in self.seen for part in one.slices)
        return sorted({at_unix_ns for at_unix_ns in stamps if at_unix_ns is not None})

    def _seen(self, record: RecoveryRecord) -> ResourcesSeen | Unseen:
        name = name_of(self.machines.prefix, record.generation)
        try:
            self.seen = self.provider.describe(self.machines, name)
        except ProviderRefusedError as error:
            if not self._has_seen:
                raise
            return Unseen(str(error))  # somebody may be changing the account's roles
        except ProviderError as error:
            return Unseen(str(error))
        self._has_seen = True
        return ResourcesSeen(self.seen)

    def _carried_out(self, decision: Decision) -> Decision:
        """The act itself, after its intent is on disk."""
        action, record, reason = decision
        if action.name == name_of(self.machines.prefix, record.generation):  # not of a stray
            cause = LOSS_CAUSE.get(record.condition, ExitCause.HOST_LOST.value)
            self.book.lost(f"its machines were lost: {reason}", cause, self.clock())
        if action.act is Act.DELETE:
            answer = self.provider.delete(self.machines, action.name)
        else:
            answer = self.provider.create(self.machines, action.name)
            self._operation = answer.operation
        return self._after(decision, record, answer)

    def _after(self, decision: Decision, record: RecoveryRecord, answer: OrderAnswer) -> Decision:
        act, outcome = decision.action.act, answer.outcome
        after = answered(record, act, outcome, answer.words, self.clock(), self.jitter())
        if after != record:
            self.book.save(after)
        if outcome is ActOutcome.ACCEPTED:
            if act is Act.CREATE:
                self.book.release()
            return decision
        reason = f"{decision.action.name} could not be {act}d ({outcome}: {answer.words})"
        self._say("warning", reason)
        if outcome is ActOutcome.REFUSED:
            self.book.release()
            return Decision(replace(decision.action, act=Act.ASK), after, reason)
        return self._waiting(decision._replace(record=after), reason)

    def _follow_up(self) -> Decision | None:
        """A creation that was accepted may fail later: then the next one waits.

        None: there is nothing to say of it, and the next look decides.
        """
        if not self._operation:
            return None
        answer = self.provider.progress(self._operation)
        if answer is None:
            return None
        self._operation = ""
        if answer.outcome is ActOutcome.ACCEPTED:
            return None
        try:
            self.book.hold()
        except RunHeld:
            return None  # whoever holds the run looks after its machines, or trains on them
        record = self.book.load()
        name = name_of(self.machines.prefix, record.generation)
        decision = self._after(Decision(Action(Act.CREATE, name), record, ""), record, answer)
        return decision if decision.action.act is Act.ASK else None

    def _waiting_now(self, kind: str | None) -> None:
        piece = self._waits.look(kind, self.clock())
        if piece is not None:
            self.book.waited(*piece)

    def _waiting(self, decision: Decision, reason: str) -> Decision:
        return Decision(replace(decision.action, act=Act.WAIT), decision.record, reason)

    def _say(self, level: str, words: str) -> None:
        """Each sentence once, until there is another; a wait whose time goes on is the same."""
        same = re.sub(r"\d+", "0", words) if level == "info" else words
        if same != self._said:
            self._said = same
            self.say(level, words)


def _words(decision: Decision) -> str:
    """What is done, and why; those that are well and go too are named before they do."""
    action = decision.action
    doing = {Act.DELETE: "deleting", Act.CREATE: "creating"}[action.act]
    words = f"{doing} {action.name}: {decision.reason}"
    if action.healthy:
        words += f"; the healthy {', '.join(action.healthy)} with it"
    return words
