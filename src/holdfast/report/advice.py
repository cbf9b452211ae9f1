"""One recommended command, and why: what somebody who was woken at night should type first.

A pure function of what is known; the first rule that fits gives the answer.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from holdfast.core.ledger.kinds import BACKOFF
from holdfast.core.run.holding import STATE_WORDS
from holdfast.report.kinds import words_of
from holdfast.report.words import duration

LONG = 3  # times what it usually takes
SLOW = 1.5  # times the usual step
STUCK_NS = 60_000_000_000  # without a step for so long, and LONG times the usual
SAFETY = 1.5  # times the measured save, before a deadline
MANY = 3  # attempts that failed alike


class Broke(Protocol):
    """What is asked of an incident."""

    @property
    def attempt(self) -> int:
        """The attempt that ended."""

    @property
    def rank(self) -> int | None:
        """The rank that broke first."""

    @property
    def down_ns(self) -> int | None:
        """None: it is not over."""


class AtRisk(Protocol):
    """What is asked of a tier."""

    @property
    def at_risk_ns(self) -> int:
        """What would be lost now."""


@dataclass(frozen=True, slots=True)
class RunCondition:
    """How a run is: what the rules look at. Durations in ns; None: not known, or not in question.

    `same_again`: so many of the last attempts ended alike without a step.
    """

    name: str
    state: str
    store: str | None = None
    why: str = ""
    command: Sequence[str] = ()
    attempt: int | None = None
    broke: Broke | None = None
    same_again: int = 0
    phase_kind: str | None = None
    phase_ns: int = 0
    phase_usual_ns: int | None = None
    step_age_ns: int | None = None
    usual_ns: int = 0
    recent_ns: int = 0
    deadline_in_ns: int | None = None
    save_ns: int | None = None
    straggler: int | None = None
    tiers: Sequence[AtRisk] = ()


@dataclass(frozen=True, slots=True)
class Advice:
    """`command` None: there is nothing to do. `urgent`: somebody has to act."""

    command: str | None
    reason: str
    urgent: bool = False


def advice(run: RunCondition) -> Advice:
    """What to do first."""
    if run.state in ("recorded", "done", "ended"):
        why = "Nothing is under way." if run.state == "recorded" else "The run is over."
        return Advice(None, why)
    if run.state == "new":
        return Advice(_start(run), "It was never launched.")
    if run.state == "failed":
        why = f"It gave up: {run.why or 'see its last lines'}. Fix that, then start it again."
        return Advice(_logs(run), why, urgent=True)
    if run.state in ("stopped", "interrupted"):
        why = "It was asked to stop, and waits to be started again."
        if run.state == "interrupted":
            why = "Its supervisor has ended. Start it again: it resumes from its newest checkpoint."
        return Advice(_start(run), why, urgent=run.state == "interrupted")
    if run.state == "silent":
        why = "Its supervisor on another host shows no sign of life: look at that host."
        return Advice(_command("logs", run, "--tail 50"), why, urgent=True)
    return _of_running(run)


def _of_running(run: RunCondition) -> Advice:
    if run.why == STATE_WORDS:
        why = "All steps are done, and the last one is not yet durable: make room in the run store."
        return Advice(None, why, urgent=True)
    if run.deadline_in_ns is not None:
        return _before_a_deadline(run, run.deadline_in_ns)
    if run.same_again >= MANY:
        why = f"{run.same_again} attempts in a row ended in the same way, without a step."
        return Advice(_logs(run), why, urgent=True)
    if run.phase_kind is not None:
        return _in_a_phase(run, run.phase_kind)
    age_ns = run.step_age_ns
    if age_ns is not None and run.usual_ns and age_ns > max(STUCK_NS, 10 * run.usual_ns):
        why = f"No step for {duration(age_ns)}; one usually takes {duration(run.usual_ns)}."
        return Advice(_command("logs", run, "--tail 50"), why, urgent=True)
    if run.usual_ns and run.recent_ns > SLOW * run.usual_ns:
        times = run.recent_ns / run.usual_ns
        why = f"Steps take {times:.1f} times as long as usual."
        of = "--tail 50"
        if run.straggler is not None:
            why = f"{why} The others wait for rank {run.straggler}."
            of = f"--rank {run.straggler} --tail 50"
        return Advice(_command("logs", run, of), why)
    return Advice(None, "It is training. Nothing needs to be done.")


def _before_a_deadline(run: RunCondition, left_ns: int) -> Advice:
    if left_ns <= 0:
        return Advice(None, "The announced time has come; the run saves and leaves by itself.")
    if run.save_ns is None:
        why = f"{duration(left_ns)} are left, and no save was measured yet: save now."
        return Advice(_command("save", run), why, urgent=True)
    if left_ns < SAFETY * run.save_ns:
        why = f"{duration(left_ns)} are left, and a save takes {duration(run.save_ns)}."
        return Advice(_command("save", run), why, urgent=True)
    why = (
        f"{duration(left_ns)} are left, and a save takes {duration(run.save_ns)}: the run saves in "
        "time by itself."
    )
    return Advice(None, why)


def _in_a_phase(run: RunCondition, kind: str) -> Advice:
    usual_ns = run.phase_usual_ns
    if kind == BACKOFF and run.why:  # it takes what was decided, whatever it took before
        return Advice(_logs(run), f"It failed, and waits on purpose: {run.why}.")
    phase = f"{kind} ({words_of(kind)})"
    if usual_ns is None:
        why = f"It is in {phase} for {duration(run.phase_ns)}; nothing to compare that with yet."
        return Advice(None, why)
    if run.phase_ns > LONG * usual_ns:
        why = (
            f"It is in {phase} for {duration(run.phase_ns)}; that usually takes "
            f"{duration(usual_ns)}."
        )
        return Advice(_logs(run), why, urgent=True)
    why = f"It is in {phase}, which usually takes {duration(usual_ns)}: wait."
    return Advice(None, why)


def _start(run: RunCondition) -> str | None:
    if not run.command:
        return None
    name = shlex.quote(run.name)
    return f"holdfast run --name {name}{_store(run)} -- {shlex.join(run.command)}"


def _logs(run: RunCondition) -> str:
    """The output of what broke, or of all."""
    more = ""
    if run.broke is not None:
        more = f"--attempt {run.broke.attempt}"
        if run.broke.rank is not None:
            more += f" --rank {run.broke.rank}"
    return _command("logs", run, f"{more} --tail 50".strip())


def _command(name: str, run: RunCondition, more: str = "") -> str:
    return f"holdfast {name} {shlex.quote(run.name)}{_store(run)} {more}".strip()


def _store(run: RunCondition) -> str:
    """Where the run lives, if it has to be said."""
    return "" if run.store is None else f" --store {shlex.quote(run.store)}"
