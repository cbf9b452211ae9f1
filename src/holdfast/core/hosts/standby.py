"""What waits for the next attempt while one runs: interpreters, and how far they go ahead of it."""

from __future__ import annotations

from enum import StrEnum


class StandbyOrder(StrEnum):
    """What the controller wants of the processes that may become the next attempt's ranks."""

    NONE = "none"  # no attempt follows under this controller: none are kept
    AS_IS = "as is"  # between two attempts: what is there stays, nothing new is prepared
    READY = "ready"  # the attempt is well on its way: one interpreter a rank is prepared
    WOKEN = "woken"  # the attempt is being ended, and another follows at once: they may begin


def may_run_beside(device: str, restores_first: bool) -> tuple[bool, str]:
    """Whether the next attempt's ranks may run the script while this one's are there; else why not.

    `device`: what the ranks have open and cannot share; "" for nothing. `restores_first`: the
    script begins with `run.restore()`, so that it touches nothing before it is told what to read.
    """
    if device:
        return False, f"the ranks have {device} open, which cannot be shared"
    if not restores_first:
        return False, "the script does not begin with run.restore()"
    return True, ""
