"""Hosts that are announced to go, and leave their part to a spare while the run goes on. Pure.

    evacuation = Evacuation(policy)
    if not evacuation.takes(index, agent, notice, trains=True, spares=1):
        ...  # it is the whole run's affair: all ranks save and leave
    evacuation.reasons  # by index: who is to have no part, and why

A notice is about one host. Where a spare can take its part, the run goes on without that host
before it goes, or is repaired; a host that has no part just gets none. What ends the whole job is
the run's affair.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.core import events as ev
from holdfast.core.notices.board import Notice, NoticeAction, NoticeState, Scope
from holdfast.core.notices.plan import NoticePolicy

MOST = 4  # hosts that are named


@dataclass(slots=True)
class _Leaving:
    """One host. `agent`: whose machine it is; another one of that index is another machine."""

    agent: str
    why: dict[tuple[str, str, str], str] = field(default_factory=dict)  # by event


class Evacuation:
    """For the controller of several hosts."""

    def __init__(self, policy: NoticePolicy) -> None:
        self._policy = policy
        self._leaving: dict[int, _Leaving] = {}

    @property
    def reasons(self) -> dict[int, str]:
        """Why a host is to have no part, by its index."""
        return {index: next(iter(one.why.values())) for index, one in self._leaving.items()}

    def takes(self, index: int, agent: str, notice: Notice, *, trains: bool, spares: int) -> bool:
        """Whether that notice is that host's affair alone.

        `trains`: it has a part. `spares`: how many hosts could take one, those included that are to
        take the part of a host that is leaving already.
        """
        known = self._leaving.get(index)
        if notice.state is NoticeState.WITHDRAWN:
            if known is None or notice.key not in known.why:
                return False
            del known.why[notice.key]
            if not known.why:
                del self._leaving[index]
            return True
        if not self._policy.leaves or not self._moves(notice):
            return False
        if known is None:
            if trains and spares <= 0:
                return False
            known = self._leaving[index] = _Leaving(agent)
        known.why.setdefault(notice.key, f"{notice.action} announced by {notice.source}")
        return True

    def _moves(self, notice: Notice) -> bool:
        """Whether a host is to be left for that: it ends, and not the job; or it is drained.

        What runs on a drained host may stay there, so without a spare it does. A slice is left as a
        whole, and only for what ends it.
        """
        if notice.action is NoticeAction.DRAIN:
            return notice.scope is not Scope.SLICE
        return self._policy.ends(notice.action) and notice.action is not NoticeAction.TIME_LIMIT

    def move(self, at_ns: int, giving_up: Mapping[int, str]) -> ev.RestartAsked:
        """The attempt is to end, for these hosts give up their part. `giving_up`: why, by index."""
        is_notice = any(index in self._leaving for index in giving_up)
        each = [f"host {index} gives up its part ({why})" for index, why in giving_up.items()]
        more = f", and {len(each) - MOST} more" if len(each) > MOST else ""
        return ev.RestartAsked(at_ns, ", ".join(each[:MOST]) + more, is_notice)

    def heard(self, index: int, agent: str) -> bool:
        """An agent of that index lives; whether it is another one than the one that was to go."""
        known = self._leaving.get(index)
        if known is None or known.agent == agent:
            return False
        del self._leaving[index]
        return True
