"""What is announced to a simulated run, as the notices that a cloud would give."""

from __future__ import annotations

from dataclasses import replace

from holdfast.core.notices.board import Notice, NoticeAction, NoticeState
from holdfast.sim.faults import AnnouncedLoss


class StandingNotices:
    """By host: what is announced, and neither has come nor was withdrawn."""

    def __init__(self) -> None:
        self._given = 0
        self.by_host: dict[int, list[Notice]] = {}

    def give(self, told: AnnouncedLoss) -> Notice:
        """That the host goes."""
        self._given += 1
        notice = Notice(
            "simulated",
            NoticeAction.TERMINATE,
            told.at_ns,
            event_id=str(self._given),
            host=str(told.host),
            deadline_ns=told.deadline_ns,
        )
        self.by_host.setdefault(told.host, []).append(notice)
        return notice

    def take_back(self, host: int, at_ns: int, only: Notice | None = None) -> list[Notice]:
        """What is not to be expected any more: the host is gone, or `only` that was a mistake."""
        told = self.by_host.pop(host, [])
        over = [one for one in told if only is None or one is only]
        left = [one for one in told if one not in over]
        if left:
            self.by_host[host] = left
        return [replace(one, state=NoticeState.WITHDRAWN, received_ns=at_ns) for one in over]
