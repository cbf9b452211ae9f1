"""What is said of a script's habits. Pure; `holdfast.doctor.script` finds them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from holdfast.doctor.facts import BadHabit, Facts
from holdfast.doctor.finding import Finding, Severity


class HabitAdvice(NamedTuple):
    """What follows from a habit."""

    severity: Severity
    what: str
    why: str
    fix: str


KEEP = "keep what signal.signal returns, and call it too; or set the handler before hf.start()"
RAISE = "catch Exception instead, or end the handler with a bare `raise`"
SAYS: dict[BadHabit, HabitAdvice] = {
    BadHabit.HANDLER_REPLACES: HabitAdvice(
        Severity.WARNING,
        "replaces the SIGTERM handler and forgets the one before it",
        "who listened before hears nothing: Holdfast in a bare `python` run, or a framework",
        KEEP,
    ),
    BadHabit.IGNORES_SIGTERM: HabitAdvice(
        Severity.ERROR,
        "has SIGTERM ignored",
        "this process cannot be stopped gently: it is killed, and nothing is saved",
        "remove it",
    ),
    BadHabit.DIES_OF_SIGTERM: HabitAdvice(
        Severity.WARNING,
        "has SIGTERM end the process at once",
        "a signal to the process itself costs all that was done since the last save",
        "remove it",
    ),
    BadHabit.HANDLER_EXITS: HabitAdvice(
        Severity.ERROR,
        "leaves by os._exit from a signal handler",
        "no save is made, and no `finally` runs",
        "set a flag in the handler, and leave the loop by it; or use run.stopping",
    ),
    BadHabit.HANDLER_RAISES: HabitAdvice(
        Severity.WARNING,
        "leaves by an exception from a signal handler",
        "it strikes in the middle of a step or of a save",
        "set a flag in the handler, and leave the loop by it; or use run.stopping",
    ),
    BadHabit.EXITS_HARD: HabitAdvice(
        Severity.NOTE,
        "leaves by os._exit",
        "what is written beside the training (saves, the journal's end) is cut off",
        "leave by sys.exit, or by the end of the script",
    ),
    BadHabit.SWALLOWS_STOP: HabitAdvice(
        Severity.ERROR,
        "catches hf.Stop around a boundary of the training",
        "hf.Stop is a SystemExit: the run is told to leave, and trains on until it is killed",
        RAISE,
    ),
    BadHabit.SWALLOWS_EXIT: HabitAdvice(
        Severity.NOTE,
        "catches SystemExit and continues",
        "where the loop runs below it, hf.Stop ends there, and the process does not leave",
        RAISE,
    ),
    BadHabit.JAX_REPLACES: HabitAdvice(
        Severity.WARNING,
        "has a SIGTERM handler, and calls jax.distributed.initialize without importing holdfast",
        "JAX's preemption service replaces the handler in silence",
        "import holdfast before it, or set JAX_ENABLE_PREEMPTION_SERVICE=false",
    ),
}


def script(facts: Facts) -> Iterator[Finding]:
    """Each habit of the script, where it is."""
    for found in facts.habits:
        said = SAYS[found.habit]
        what = f"{facts.script}:{found.line} {said.what}: {found.words}"
        yield Finding("script", said.severity, what, said.why, said.fix)
