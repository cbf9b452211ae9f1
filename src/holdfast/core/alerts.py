"""What somebody should be told of now, of one run: a hang, a crash loop, a notice, old saves. Pure.

Only of runs that are under way, or ended badly a moment ago: a list of a thousand finished runs is
not a thousand alerts. Times are nanoseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from holdfast.core.durations import SECOND_NS

LIVE_STATES = ("running", "silent")
BAD_ENDS = ("failed", "interrupted")


class AlertKind(StrEnum):
    """What it is about, the most urgent first."""

    NOTICE = "notice"
    HANG = "hang"
    CRASH_LOOP = "crash loop"
    SILENT = "silent"
    OLD_CHECKPOINT = "old checkpoint"
    ENDED = "ended badly"


URGENCY = tuple(AlertKind)


@dataclass(frozen=True, slots=True)
class AlertPolicy:
    """When to say something. `checkpoint_ns` None: however old the newest checkpoint is."""

    checkpoint_ns: int | None = 3600 * SECOND_NS
    loop: int = 3  # attempts in a row that ended with no step
    alike_ns: int = 3600 * SECOND_NS  # so long the last failure of a crash loop is news
    ended_ns: int = 3600 * SECOND_NS  # so long a bad end is news


@dataclass(frozen=True, slots=True)
class Vital:
    """What is known of a run now. None: not known, or there is none.

    `since_step_ns`: since all its ranks last came to a step; `is_suspected`: its steps stay away
    longer than its own pace explains. `loops`: attempts in a row, up to now, that ended with no
    step completed. `alike`: failures in the same way that the run's restart policy called a crash
    loop; `alike_age_ns`: since the last of them. `save_age_ns`: of the newest checkpoint of any
    tier, or of the first step where there is none yet; `announced`: words and the time left of what
    was announced.
    """

    name: str
    state: str
    why: str = ""
    since_step_ns: int | None = None
    is_suspected: bool = False
    loops: int = 0
    last_cause: str = ""
    alike: int = 0
    alike_words: str = ""
    alike_age_ns: int = 0
    save_age_ns: int | None = None
    has_saved: bool = True
    announced: tuple[tuple[str, int | None], ...] = ()
    seen_age_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Alert:
    """One thing to be told. `ns` is its time: how long it lasts, how old it is, or what is left.

    `words` say what, without the time; of a notice `ns` None means that nobody says when.
    """

    run: str
    kind: AlertKind
    words: str
    ns: int | None


def alerts(vital: Vital, policy: AlertPolicy) -> tuple[tuple[Alert, ...], str]:
    """What to tell of a run, the most urgent first, and why that much."""
    if vital.state in LIVE_STATES:
        found = sorted(_of_live(vital, policy), key=_urgency)
        return tuple(found), "it is under way" if found else "it is under way, and well"
    if vital.state in BAD_ENDS and vital.seen_age_ns is not None:
        if vital.seen_age_ns <= policy.ended_ns:
            words = vital.why or vital.state
            return (Alert(vital.name, AlertKind.ENDED, words, vital.seen_age_ns),), "it just ended"
        return (), "it ended badly, long ago"
    return (), "nobody waits for it"


def _of_live(vital: Vital, policy: AlertPolicy) -> Iterator[Alert]:
    name = vital.name
    for words, left_ns in vital.announced:
        yield Alert(name, AlertKind.NOTICE, words, left_ns)
    if vital.state == "silent":
        yield Alert(name, AlertKind.SILENT, vital.why or "no sign of life", vital.seen_age_ns)
    if vital.is_suspected:
        yield Alert(name, AlertKind.HANG, "seems to hang: no step", vital.since_step_ns)
    if vital.alike and vital.alike_age_ns <= policy.alike_ns:
        words = f"{vital.alike} failures in the same way: {vital.alike_words}"
        yield Alert(name, AlertKind.CRASH_LOOP, words, None)
    elif vital.loops >= policy.loop:
        cause = f", the last: {vital.last_cause}" if vital.last_cause else ""
        words = f"{vital.loops} attempts in a row ended without a step{cause}"
        yield Alert(name, AlertKind.CRASH_LOOP, words, None)
    limit_ns, age_ns = policy.checkpoint_ns, vital.save_age_ns
    if limit_ns is not None and age_ns is not None and age_ns > limit_ns:
        words = "its newest checkpoint is old" if vital.has_saved else "nothing was saved yet"
        yield Alert(name, AlertKind.OLD_CHECKPOINT, words, age_ns)


def _urgency(alert: Alert) -> tuple[int, int]:
    return URGENCY.index(alert.kind), alert.ns or 0
