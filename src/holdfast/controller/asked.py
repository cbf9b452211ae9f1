"""What people ask of a run through its store, as events of the run's machine."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core import events as ev
from holdfast.core.durations import SECOND_NS
from holdfast.journal.control import Request
from holdfast.journal.rollbacks import wish_of


def event_of(asked: Request) -> Callable[[int], ev.Event]:
    """The event of a request; it gets the time at which it is fed."""
    who = who_asks(asked)
    if asked.verb == "save":
        return lambda at_ns: ev.SaveAsked(at_ns, who)
    if asked.verb == "profile":
        name, rank, steps = asked.args["name"], asked.args["rank"], asked.args["steps"]
        limit_ns = int(asked.args["limit_s"] * SECOND_NS)
        return lambda at_ns: ev.ProfileAsked(at_ns, who, name, rank, steps, limit_ns)
    if asked.verb == "rollback":
        wish = wish_of(asked)
        return lambda at_ns: ev.RollbackAsked(at_ns, wish)
    if asked.args["now"]:
        return lambda at_ns: ev.StopNowAsked(at_ns, who)
    grace_s = asked.args["grace_s"]
    grace_ns = None if grace_s is None else int(grace_s * SECOND_NS)
    return lambda at_ns: ev.StopAsked(
        at_ns, who, None if grace_ns is None else at_ns + grace_ns, notice=False
    )


def who_asks(asked: Request) -> str:
    """`holdfast stop by ann@host`."""
    return f"holdfast {asked.verb} by {asked.sender}"
