"""Detect, delete, recreate: what to do about a run's machines. Pure.

    STANDING n ──(preempted, failed, sick for too long)──▶ DELETING n ──(gone)──▶ CREATING n+1
        ▲  ╲──────────────(gone)────────────────────────────────────────────────────▶ │
        ╰──────────────────────────────(seen, and up)─────────────────────────────────╯

The *record* says which of these is under way, and survives whoever carries it out. It is written
before the act that it announces, so a crash between the two leaves an intent that the next start
meets. Every generation has a name of its own, made from its number alone: an act that is done
twice, or too late, names the same resource again and never the one after it.

A record moves on by what is *seen*, not by what an answer said: DELETING ends when the service has
no such resource, CREATING when the resource is up. What nobody understands, an error included,
moves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from holdfast.core.durations import SECOND_NS
from holdfast.core.hosts.backoff import Backoff
from holdfast.core.hosts.fleet import (
    HOUR_NS,
    MINUTE_NS,
    ActOutcome,
    Condition,
    Resource,
    diagnose,
)


class GenerationPhase(StrEnum):
    """What is under way with the present generation."""

    STANDING = "standing"
    DELETING = "deleting"
    CREATING = "creating"


@dataclass(frozen=True, slots=True)
class RecoveryRecord:
    """What is written down between two looks. Times are unix nanoseconds.

    `condition` stands since `since_unix_ns`. `deleted_unix_ns`: when deletions were decided, as far
    as they count for the rate. `not_before_unix_ns`: nothing is created before. `wait_ns` is the
    last back-off, and `why` its reason.
    """

    phase: GenerationPhase = GenerationPhase.CREATING
    generation: int = 1
    condition: Condition = Condition.GONE
    since_unix_ns: int = 0
    deleted_unix_ns: tuple[int, ...] = ()
    not_before_unix_ns: int = 0
    wait_ns: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class RecoverPolicy:
    """What the user allows, and how long each trouble is waited for."""

    may_delete: bool = False
    may_create: bool = False
    most_deletions: int = 4  # within `per_ns`
    per_ns: int = HOUR_NS
    maintenance_limit_ns: int = HOUR_NS
    sick_limit_ns: int = 10 * MINUTE_NS
    creating_limit_ns: int = HOUR_NS

    def limit_ns(self, condition: Condition) -> int | None:
        """How long a condition may stand before the resource counts as stuck; None: for ever."""
        return {
            Condition.PREEMPTED: 0,
            Condition.SICK: self.sick_limit_ns,
            Condition.INCOMPLETE: self.sick_limit_ns,
            Condition.MAINTENANCE: self.maintenance_limit_ns,
            Condition.CREATING: self.creating_limit_ns,
        }.get(condition)


_BACKOFF = {
    ActOutcome.STOCKOUT: Backoff(30 * SECOND_NS, 10 * MINUTE_NS),
    ActOutcome.QUOTA: Backoff(5 * MINUTE_NS, HOUR_NS),
    ActOutcome.TROUBLE: Backoff(5 * SECOND_NS, 2 * MINUTE_NS),
    ActOutcome.REFUSED: Backoff(30 * SECOND_NS, HOUR_NS),
}


class Act(StrEnum):
    """What is to be done now."""

    REST = "rest"  # all is well
    WAIT = "wait"  # look again later
    DELETE = "delete"
    CREATE = "create"
    ASK = "ask"  # a person must see to it


@dataclass(frozen=True, slots=True)
class Action:
    """One act; `name`: of which resource. `healthy`: slices that are well and go with it.

    `is_forbidden`: it is what should be done, and the policy does not allow it.
    """

    act: Act
    name: str = ""
    healthy: tuple[str, ...] = ()
    is_forbidden: bool = False


class Decision(NamedTuple):
    """An action, the record to write BEFORE it is carried out, and the reason."""

    action: Action
    record: RecoveryRecord
    reason: str


@dataclass(frozen=True, slots=True)
class ResourcesSeen:
    """An answer of the service: all resources of the run's names or label. None there: empty."""

    resources: Sequence[Resource]


@dataclass(frozen=True, slots=True)
class Unseen:
    """No answer, or none that can be relied on."""

    words: str


def name_of(run: str, generation: int) -> str:
    """The name of a generation of a run's machines."""
    return f"{run}-g{generation}"


def generation_of(run: str, name: str) -> int | None:
    """The inverse; None for another's name."""
    stem, _, number = name.rpartition("-g")
    is_ours = stem == run and number.isascii() and number.isdecimal()
    return int(number) if is_ours and name == name_of(run, int(number)) else None


def decide(
    policy: RecoverPolicy,
    run: tuple[str, str],
    record: RecoveryRecord,
    look: ResourcesSeen | Unseen,
    now_unix_ns: int,
    jitter: float = 0.0,
) -> Decision:
    """What to do now, what to write down before it, and why.

    `run` is the prefix of its resources' names and the id in their labels. `jitter` is drawn from
    [0, 1).
    """
    if isinstance(look, Unseen):
        return Decision(Action(Act.WAIT), record, f"{look.words}; nothing is decided on that")
    prefix, owner = run
    name = name_of(prefix, record.generation)
    ours: Resource | None = None
    names = {one.name for one in look.resources}
    for one in look.resources:
        number = generation_of(prefix, one.name)
        if number is None:
            whole = one.name.rpartition("-")[0]
            is_left = generation_of(prefix, whole) is not None and whole not in names
            if is_left and one.owner == owner:
                return _stray(policy, record, one, f"of {whole}, which is gone", now_unix_ns)
            continue
        if one.owner != owner:
            reason = f"{one.name} does not carry this run's label: it is left alone"
            return Decision(Action(Act.ASK, one.name), record, reason)
        if number > record.generation:
            reason = f"{one.name} is there, and the run knows of no more than {name}"
            return Decision(Action(Act.ASK, one.name), record, reason)
        if number == record.generation:
            ours = one
        else:
            return _stray(policy, record, one, "of an earlier generation", now_unix_ns)
    condition, reason = diagnose(ours)
    if condition is not record.condition:
        if condition is Condition.GONE and record.phase is GenerationPhase.CREATING:
            # It was there: the next has a new name.
            record = replace(record, phase=GenerationPhase.STANDING)
        record = replace(record, condition=condition, since_unix_ns=now_unix_ns)
    return _move(policy, prefix, record, ours, reason, now_unix_ns, jitter)


def waiting_for(decision: Decision, is_queued: bool) -> str | None:
    """What a run without machines waits for, as a `WaitFact` names it; None: nobody can say.

    In a queue, and until a creation that has failed is tried again, it waits for resources; while
    they are made, for the provision. What deleting takes has no name of its own.
    """
    record = decision.record
    is_put_off = record.condition is Condition.GONE and record.wait_ns > 0
    if record.phase is not GenerationPhase.CREATING and not is_put_off:
        return None
    if record.condition is Condition.GONE:  # ordered, and not to be seen yet; or to be tried again
        return "queue" if is_queued or record.wait_ns else "provision"
    return {Condition.WAITING: "queue", Condition.CREATING: "provision"}.get(record.condition)


def answered(
    record: RecoveryRecord,
    act: Act,
    outcome: ActOutcome,
    words: str,
    now_unix_ns: int,
    jitter: float,
) -> RecoveryRecord:
    """The record after an act was answered: what failed is not tried again at once.

    `words`: of the answer. `jitter` is drawn from [0, 1).
    """
    if outcome in _BACKOFF and act is Act.CREATE:
        return _put_off(record, outcome, words, now_unix_ns, jitter)
    return record


def _put_off(
    record: RecoveryRecord, outcome: ActOutcome, words: str, now_unix_ns: int, jitter: float
) -> RecoveryRecord:
    """A creation has failed of that: the next one waits, longer than the last time."""
    wait_ns = _BACKOFF[outcome].next_ns(record.wait_ns, jitter)
    why = f"{outcome}: {words}"
    return replace(record, wait_ns=wait_ns, not_before_unix_ns=now_unix_ns + wait_ns, why=why)


def _move(
    policy: RecoverPolicy,
    prefix: str,
    record: RecoveryRecord,
    ours: Resource | None,
    reason: str,
    now_unix_ns: int,
    jitter: float,
) -> Decision:
    """Decide by the condition of the present generation's resource, and its reason."""
    name = name_of(prefix, record.generation)
    if ours is None:
        return _create(policy, prefix, record, now_unix_ns)
    if record.condition is Condition.HEALTHY:
        standing = replace(
            record, phase=GenerationPhase.STANDING, wait_ns=0, not_before_unix_ns=0, why=""
        )
        return Decision(Action(Act.REST, name), standing, reason)
    if record.condition is Condition.STOPPED:
        return Decision(Action(Act.ASK, name), record, f"{reason}: start it, or delete it")
    limit_ns = policy.limit_ns(record.condition)
    if limit_ns is None:
        return Decision(Action(Act.WAIT, name), record, reason)
    if limit_ns:
        stands_ns = now_unix_ns - record.since_unix_ns
        if not 0 <= stands_ns < 1 << 62:  # the clock was set back: count from here
            record, stands_ns = replace(record, since_unix_ns=now_unix_ns), 0
        if stands_ns < limit_ns:
            left = f"{reason}, for {_words(stands_ns)} of at most {_words(limit_ns)}"
            return Decision(Action(Act.WAIT, name), record, left)
        reason = f"stuck: {reason}, for {_words(stands_ns)}"
    return _delete(policy, record, ours, reason, now_unix_ns, jitter)


def _create(
    policy: RecoverPolicy, prefix: str, record: RecoveryRecord, now_unix_ns: int
) -> Decision:
    """There is none: make the next one, or the one that was intended."""
    number = record.generation + (record.phase is not GenerationPhase.CREATING)
    name = name_of(prefix, number)
    if not policy.may_create:
        return Decision(Action(Act.CREATE, name, is_forbidden=True), record, "there is none")
    if now_unix_ns < record.not_before_unix_ns <= now_unix_ns + record.wait_ns:
        left = _words(record.not_before_unix_ns - now_unix_ns)
        because = f" ({record.why})" if record.why else ""
        return Decision(Action(Act.WAIT, name), record, f"{name} is tried again in {left}{because}")
    intent = replace(
        record, phase=GenerationPhase.CREATING, generation=number, not_before_unix_ns=now_unix_ns
    )
    return Decision(Action(Act.CREATE, name), intent, "there is none")


def _delete(
    policy: RecoverPolicy,
    record: RecoveryRecord,
    ours: Resource,
    reason: str,
    now_unix_ns: int,
    jitter: float,
) -> Decision:
    """It does not come back by itself. What was decided before a crash counts once in the rate.

    A request that its service gave up is a creation that has failed. While it has no machine its
    deletion does not count: how often that happens the growing wait limits.
    """
    action = Action(Act.DELETE, ours.name, ours.healthy)
    if not policy.may_delete:
        return Decision(replace(action, is_forbidden=True), record, reason)
    if record.phase is GenerationPhase.DELETING:
        return Decision(action, record, reason)
    recent = _recent(policy, record, now_unix_ns)
    if ours.failure is None or ours.slices:
        if len(recent) >= policy.most_deletions:
            return Decision(Action(Act.WAIT, ours.name), record, _too_often(policy, reason))
        recent = (*recent, now_unix_ns)
    intent = replace(record, phase=GenerationPhase.DELETING, deleted_unix_ns=recent)
    if ours.failure is not None:
        return Decision(
            action, _put_off(intent, ours.failure, ours.words, now_unix_ns, jitter), reason
        )
    return Decision(action, replace(intent, wait_ns=0, why=""), reason)


def _stray(
    policy: RecoverPolicy, record: RecoveryRecord, stray: Resource, of: str, now_unix_ns: int
) -> Decision:
    """One that somebody who was slow has made, or its queue has left: it would be paid for twice.

    `of`: what it belongs to.
    """
    condition, words = diagnose(stray)
    reason = f"{stray.name} is {of} ({words})"
    if condition in (Condition.UNKNOWN, Condition.LEAVING):
        return Decision(Action(Act.WAIT, stray.name), record, reason)
    if condition is Condition.STOPPED:
        return Decision(Action(Act.ASK, stray.name), record, f"{reason}: delete it")
    action = Action(Act.DELETE, stray.name, stray.healthy)
    if not policy.may_delete:
        return Decision(replace(action, is_forbidden=True), record, reason)
    recent = _recent(policy, record, now_unix_ns)
    if len(recent) >= policy.most_deletions:
        return Decision(Action(Act.WAIT, stray.name), record, _too_often(policy, reason))
    return Decision(action, replace(record, deleted_unix_ns=(*recent, now_unix_ns)), reason)


def _recent(policy: RecoverPolicy, record: RecoveryRecord, now_unix_ns: int) -> tuple[int, ...]:
    """Deletions that count for the rate; those after now too: a clock that was set back."""
    return tuple(at for at in record.deleted_unix_ns if now_unix_ns - at < policy.per_ns)


def _too_often(policy: RecoverPolicy, reason: str) -> str:
    count, per = policy.most_deletions, _words(policy.per_ns)
    return f"{reason}; {count} were deleted within {per}, so this one waits"


def _words(duration_ns: int) -> str:
    """A duration, for people."""
    seconds = duration_ns // SECOND_NS
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds // size} {unit}"
    return f"{seconds} s" if seconds < 600 else f"{seconds // 60} min"
