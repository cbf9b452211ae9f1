"""How a run is doing, in one word, from its lease and its newest attempt."""

from __future__ import annotations

from holdfast.core.durations import in_words
from holdfast.core.run.holding import STATE_WORDS
from holdfast.errors import EXIT_DONE, EXIT_SAVED_START_ME_AGAIN
from holdfast.journal.attempts import AttemptEnd, AttemptRecord, Attempts
from holdfast.journal.lease import SILENT_AFTER_S, LastWords, LeaseState, LeaseView

RUNNING, SILENT, NEW, DONE = "running", "silent", "new", "done"
STOPPED, FAILED, INTERRUPTED = "stopped", "failed", "interrupted"
STATES = (RUNNING, SILENT, INTERRUPTED, FAILED, STOPPED, DONE, NEW)
ENDED = (DONE, STOPPED, FAILED)  # somebody has recorded the end
ENDED_WITH = {EXIT_DONE: DONE, EXIT_SAVED_START_ME_AGAIN: STOPPED}
SUPERVISOR_DIED = "its supervisor died without shutting down; start it again"
RESUMABLE_CAUSES = ("stopped", "preempted")


def state_of(
    lease: LeaseView, newest: AttemptRecord | None, now_unix_ns: int, *, is_held: bool = False
) -> tuple[str, str]:
    """The run's state in one word, and why.

    `is_held`: somebody has told that all steps are done, and the last is not durable yet.

    The only place where a time stamp is compared with this host's clock: a heartbeat from another
    host cannot be watched in passing, and nothing but a word on a screen depends on it.
    """
    live = STATE_WORDS if is_held else _restarting(newest, now_unix_ns)
    if lease.state is LeaseState.HELD:
        return RUNNING, live
    if lease.state is LeaseState.UNKNOWN and lease.seen_unix_ns is not None:
        silent_s = (now_unix_ns - lease.seen_unix_ns) / 1e9
        if silent_s < SILENT_AFTER_S:
            return RUNNING, live
        return SILENT, "no sign of life from its supervisor on another host"
    if newest is None:
        return NEW, "it was never launched"
    if newest.end is None:
        return _as_ended(lease.last_words)
    return _ended(newest.end, lease)


def _as_ended(last_words: LastWords | None) -> tuple[str, str]:
    """As its supervisor told when it gave the run back: a full store has not taken the end."""
    if last_words is None:
        return INTERRUPTED, SUPERVISOR_DIED
    words = "" if last_words.words == "done" else last_words.words
    return ENDED_WITH.get(last_words.exit_code, FAILED), words


def _ended(end: AttemptEnd, lease: LeaseView) -> tuple[str, str]:
    """As the newest attempt ended, unless its supervisor ended the run in another way."""
    if lease.state is LeaseState.DEAD and end.restart_after_ns is not None:
        return INTERRUPTED, SUPERVISOR_DIED
    state = STOPPED if end.cause in RESUMABLE_CAUSES else DONE if end.done else FAILED
    last_words = lease.last_words
    if last_words is not None:
        said = ENDED_WITH.get(last_words.exit_code, FAILED)
        if said != state or end.restart_after_ns is not None:  # it ended while no attempt ran
            return said, last_words.words
    return state, "" if end.done and end.words == "done" else end.words


def _restarting(newest: AttemptRecord | None, now_unix_ns: int) -> str:
    """`restarting in 120 s, 8 failures in the same way`; "": an attempt is under way."""
    end = newest.end if newest is not None else None
    if end is None or end.restart_after_ns is None:
        return ""
    left_ns = end.ended_unix_ns + end.restart_after_ns - now_unix_ns
    words = f"restarting in {in_words(left_ns)}" if left_ns > 0 else "restarting"
    return f"{words}, {end.alike} failures in the same way" if end.alike else words


def shown(state: str, why: str) -> str:
    """The state, for people: a run that is finished and not yet durable is running only in name."""
    return why if state == RUNNING and why == STATE_WORDS else state


def is_held(lease: LeaseView) -> bool:
    """Whether somebody supervises it, as far as one look can tell."""
    return lease.state in (LeaseState.HELD, LeaseState.UNKNOWN)


def last_sign_ns(known: Attempts, lease: LeaseView) -> int | None:
    """When the run last showed life, by time stamps: for people to read."""
    signs = [lease.seen_unix_ns]
    newest = known.newest
    if newest is not None:
        signs += [newest.created_unix_ns, newest.end.ended_unix_ns if newest.end else None]
    return max((sign for sign in signs if sign is not None), default=None)
