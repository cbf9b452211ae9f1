"""The facts that the run's machine has journaled, with the keys that the ledger's reader knows.

All times are integer nanoseconds on the machine's clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.exits import HISTORY_CAUSE, ExitCause
from holdfast.core.ledger.kinds import BACKOFF, STOPPED
from holdfast.core.notices.board import MOST_ANNOUNCED, Announcement, Notice
from holdfast.core.run.restart import Restart


def attempt_start(attempt: int, at_ns: int, resume_step: int) -> act.Record:
    """All its processes were launched, and what was done up to that step counts."""
    return _fact("attempt_start", attempt=attempt, at_ns=at_ns, resume_step=resume_step)


def capacity(at_ns: int, chips: ev.CountedChips) -> act.Record:
    """The run has so many chips from now on, and trains on so many of them."""
    return _fact("capacity", at_ns=at_ns, chips=chips.here, of=chips.of)


def attempt_end(attempt: int, at_ns: int, cause: ExitCause) -> act.Record:
    """All its processes were gone."""
    return _fact("attempt_end", attempt=attempt, at_ns=at_ns, cause=HISTORY_CAUSE[cause])


def fault(event: ev.RankExited, cause: ExitCause) -> act.Record:
    """When the attempt really broke, and when we knew."""
    return _fact(
        "fault",
        attempt=event.attempt,
        at_ns=event.died_at_ns,
        detected_ns=event.at_ns,
        cause=HISTORY_CAUSE[cause],
    )


def hang(attempt: int, since_ns: int, detected_ns: int) -> act.Record:
    """The attempt made no progress any more, and when we were sure of it."""
    cause = HISTORY_CAUSE[ExitCause.HANG]
    return _fact("fault", attempt=attempt, at_ns=since_ns, detected_ns=detected_ns, cause=cause)


def notice(event: ev.StopAsked) -> act.Record:
    """Advance warning of a stop."""
    return _fact("notice", at_ns=event.at_ns, deadline_ns=event.deadline_ns, source=event.source)


def end_announced(at_ns: int, one: Announcement) -> act.Record:
    """The same, from a source of notices."""
    return _fact("notice", at_ns=at_ns, deadline_ns=one.deadline_ns, source=one.words)


def host_to_go(at_ns: int, index: int, one: Notice) -> act.Record:
    """The same, of one host of several, whose part another one takes."""
    source = f"{one.source}: {one.action} of host {index}"
    return _fact("notice", at_ns=at_ns, deadline_ns=one.deadline_ns, source=source)


def announced(at_ns: int, standing: Sequence[Announcement]) -> act.Record:
    """Everything that is announced from now on, the latest last."""
    events = [
        {"words": one.words, "since_ns": one.since_ns, "deadline_ns": one.deadline_ns}
        for one in standing[-MOST_ANNOUNCED:]
    ]
    return _fact("announced", at_ns=at_ns, events=events)


def saving(at_ns: int, words: str) -> act.Record:
    """How often is saved to which tier from now on, and why."""
    return _fact("saving", at_ns=at_ns, words=words)


def back_off(start_ns: int, end_ns: int) -> act.Record:
    """No attempt ran, and the hardware was there: the time was ours, not the queue's."""
    return _fact("wait", kind=BACKOFF, start_ns=start_ns, end_ns=end_ns)


def backing_off(start_ns: int, until_ns: int) -> act.Record:
    """The same from now on: until then, or for as long as we live after it."""
    return _fact("wait", kind=BACKOFF, start_ns=start_ns, end_ns=None, until_ns=until_ns)


def stopped(start_ns: int) -> act.Record:
    """A person keeps the run stopped from now on, until the next attempt begins."""
    return _fact("wait", kind=STOPPED, start_ns=start_ns, end_ns=None)


def wait(waited: ev.Waited, start_ns: int) -> act.Record:
    """No attempt ran, and not all of the hardware was there."""
    return _fact("wait", kind=waited.kind, start_ns=start_ns, end_ns=waited.until_ns)


def end_of_attempt(
    attempt: int,
    at_ns: int,
    cause: ExitCause,
    words: str,
    rank: int | None = None,
    again: Restart | None = None,
    own_signature: str = "",
) -> list[act.Action]:
    """The same, and beside the attempt's record; an incident unless the run is done."""
    is_incident = cause is not ExitCause.DONE
    ended = act.EndAttempt(
        attempt, HISTORY_CAUSE[cause], words, rank, is_incident, again, own_signature
    )
    return [attempt_end(attempt, at_ns, cause), ended]


def run_end(at_ns: int) -> act.Record:
    """The run is over, for whatever reason, until somebody starts it again."""
    return _fact("run_end", at_ns=at_ns)


def _fact(name: str, **fields: Any) -> act.Record:
    return act.Record({"fact": name, **fields})
