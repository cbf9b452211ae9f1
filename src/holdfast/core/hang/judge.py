"""Which ranks are hung, by what was found at one look; and which of them holds the others up.

A rank is judged by its own clock, which starts at its last sign of progress and stands still while
it, or a rank that it may be waiting for, is in a declared span. Whoever is no further than it is
may be what it waits for: the others in a collective hang for one rank's evaluation as long as that
takes, and a rank that has left it behind is no excuse.

A process that is stopped does not do what it declared: a save or an evaluation in which a signal
has stopped it comes to no end by itself. So a second clock runs for such a rank, in any span and
in any phase, from when it was first found so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from holdfast.core.durations import in_words
from holdfast.core.hang.deadline import (
    Experience,
    HangPolicy,
    Limit,
    start_limit,
    step_limit,
    wait_limit,
)
from holdfast.core.hang.events import FAILING, STARTING, TRAINING, RankLook, RankStack

WAITS = ("data", "save", "restore")  # declared spans that have a limit; any other has none
JUDGED = (STARTING, TRAINING, FAILING)
STOPPED, TRACED = "T", "t"
PROCESS_WORDS = {
    "R": "running",
    "S": "asleep",
    "D": "in the kernel, not to be interrupted",
    "T": "stopped by a signal",
    "Z": "dead",
}


class Countdown(NamedTuple):
    """A rank's: when it started, how long it may go, and what it is that takes so long."""

    since_ns: int
    limit: Limit
    what: str

    @property
    def due_ns(self) -> int:
        """When the limit is over."""
        return self.since_ns + self.limit.ns


class Hung(NamedTuple):
    """A rank whose clock has run out."""

    look: RankLook
    clock: Countdown


def judge(
    looks: Sequence[RankLook],
    policy: HangPolicy,
    known: Experience,
    *,
    at_ns: int,
    not_before_ns: int,
    stopped_ns: Mapping[int, int],
) -> tuple[tuple[Hung, ...], int | None]:
    """The ranks that are hung at `at_ns`, and when the next clock runs out (None: all stand still).

    `stopped_ns`: the ranks that are stopped by a signal, and since when they were found so.
    No clock starts before `not_before_ns`: the launch, or the end of the last suspension. Without
    any session nothing is judged, unless an earlier attempt had one and came to a step: a plain
    command has no steps.
    """
    if not known.start_ns and not any(look.doing for look in looks):
        return (), None
    hung: list[Hung] = []
    due_ns: list[int] = []
    held_by = _held_by(looks, not_before_ns)
    for look in looks:
        clock = _clock(look, held_by[_step(look)], policy, known, not_before_ns)
        if look.rank in stopped_ns:
            clock = _clock_of_stopped(look, clock, policy, known, stopped_ns[look.rank])
        if clock is None:
            continue
        due_ns.append(clock.due_ns)
        if clock.due_ns <= at_ns:
            hung.append(Hung(look, clock))
    return tuple(hung), min(due_ns, default=None)


class _Held(NamedTuple):
    """What some ranks are in that others may be waiting for."""

    for_ever: bool = False  # one is in a span without a limit, or under a debugger
    span_ended_ns: int = 0  # one has last closed a span
    waits: tuple[int, int] | None = None  # since when the last of them waits, and less its place
    span: str = ""  # and for what

    def beside(self, look: RankLook, place: int, not_before_ns: int) -> _Held:
        """The same with one more rank, the one at that place."""
        is_traced = look.process == TRACED
        for_ever = self.for_ever or is_traced or bool(look.span and look.span not in WAITS)
        waits, span = self.waits, self.span
        if look.span and look.doing in JUDGED:
            this = (max(not_before_ns, look.span_ns), -place)
            if waits is None or this > waits:
                waits, span = this, look.span
        return _Held(for_ever, max(self.span_ended_ns, look.span_ended_ns), waits, span)


def _held_by(looks: Sequence[RankLook], not_before_ns: int) -> dict[int, _Held]:
    """What holds up a rank at each step, which may wait for all that are no further."""
    held, by_step = _Held(), {}
    for place in sorted(range(len(looks)), key=lambda place: _step(looks[place])):
        held = held.beside(looks[place], place, not_before_ns)
        by_step[_step(looks[place])] = held
    return by_step


def _clock(
    look: RankLook,
    held: _Held,
    policy: HangPolicy,
    known: Experience,
    not_before_ns: int,
) -> Countdown | None:
    """The clock of one rank; None: it stands still, or nothing is expected of the rank."""
    if look.doing and look.doing not in JUDGED:
        return None
    if look.process == STOPPED:  # it waits for nobody, and whoever waits may do so for it
        held = _Held().beside(look, 0, not_before_ns)
    if held.for_ever:
        return None
    if held.waits is not None:
        return Countdown(held.waits[0], wait_limit(policy, known), held.span)
    since_ns = max(not_before_ns, look.step_ns, look.complete_ns, held.span_ended_ns)
    limit, what = _limit(look, policy, known)
    host = Countdown(since_ns, limit, what)
    if not look.awaited_ns:
        return host
    # The device works through `behind` steps before it can be done with the one that is awaited.
    queue_ns = policy.longest_factor * look.behind * look.median_ns
    from_ns = max(not_before_ns, look.awaited_ns, look.complete_ns)
    device = Countdown(
        from_ns, Limit(limit.ns + queue_ns, limit.why), "step complete on the device"
    )
    return min(host, device, key=lambda clock: clock.due_ns)


def _clock_of_stopped(
    look: RankLook, clock: Countdown | None, policy: HangPolicy, known: Experience, since_ns: int
) -> Countdown:
    """`clock`, unless that gives a rank which is stopped more time than it has for a step."""
    limit, _ = _limit(look, policy, known)
    stopped = Countdown(since_ns, limit, "sign of life")
    return min(clock or stopped, stopped, key=lambda clock: clock.due_ns)


def _step(look: RankLook) -> int:
    """How far it is; a rank that has not shown itself is behind all others."""
    return look.step if look.doing else -1


def _limit(look: RankLook, policy: HangPolicy, known: Experience) -> tuple[Limit, str]:
    if not look.step_ns:
        return start_limit(policy, known), "first step"
    if look.samples < policy.samples and policy.step_ns is None:
        slow = step_limit(policy, known, look.median_ns)
        start = start_limit(policy, known)
        return max(slow, start, key=lambda limit: limit.ns), "step"
    return step_limit(policy, known, look.median_ns), "step"


def suspect(hung: Sequence[Hung], stacks: Sequence[RankStack] = ()) -> Hung:
    """The rank that most likely holds up the others.

    One that is stopped explains everything; then whoever is furthest behind; of equals, one that
    is not inside a collective, where the others wait for it; of equals, the first.
    """
    waits = {stack.rank for stack in stacks if stack.waits_for_others}

    def order(one: Hung) -> tuple[bool, int, bool, int]:
        look = one.look
        return look.process != STOPPED, _step(look), look.rank in waits, look.rank

    return min(hung, key=order)


def describe(one: Hung, at_ns: int, stacks: Sequence[RankStack] = (), ranks: int = 1) -> str:
    """The story in a sentence: who, since when, by which limit, and where it stands."""
    look, clock = one.look, one.clock
    who = f"rank {look.rank} hung" if ranks > 1 else "hung"
    passed = in_words(at_ns - clock.since_ns)
    after = f" after step {look.step}" if look.step_ns else ""
    what = f"no {clock.what}" if clock.what not in WAITS else f"waiting ({clock.what})"
    words = (
        f"{who}: {what}{after} for {passed} (limit {in_words(clock.limit.ns)}: {clock.limit.why})"
    )
    stack = next((stack for stack in stacks if stack.rank == look.rank), None)
    if look.process == STOPPED:
        words += f"; its process is {PROCESS_WORDS[STOPPED]}"
    elif not (stack and stack.where) and look.process in PROCESS_WORDS:
        kernel = f", in {look.kernel}" if look.kernel else ""
        words += f"; its process is {PROCESS_WORDS[look.process]}{kernel}"
    return words + (f"; in {stack.where}" if stack and stack.where else "")
