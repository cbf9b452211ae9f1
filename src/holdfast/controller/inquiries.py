"""Questions to the hosts how they stand: an agent answers each message at once.

inquiries.ask(at_ns, {"incarnation": 7}, do)  # it is sent its seventh message with that
inquiries.answered(at_ns, says, report, clock)
inquiries.look(at_ns)  # who is silent is not waited for any longer
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from holdfast.core import events as ev
from holdfast.core.hosts.clocks import ClockBound
from holdfast.core.hosts.report import HostReport
from holdfast.core.hosts.says import HostSays

ANSWER_LIMIT_NS = 500_000_000


@dataclass(slots=True)
class Inquiry:
    """The hosts are asked how they stand. `of`: by agent, the message that it is to have heard.

    `furthest`: of the ranks that were heard since, the greatest step, negative, and when the first
    was done with it; None: nobody has said so.
    """

    of: dict[str, int]
    asked_ns: int
    do: Callable[[ev.HostsAnswered], None]
    furthest: tuple[int, int] | None = None

    def heard(self, report: HostReport, offset_ns: int) -> None:
        """`offset_ns`: what brings the report's times to this clock."""
        for rank in report.ranks:
            of_rank = -rank.answers.step, rank.pace.at_ns + offset_ns
            if rank.pace.at_ns and (self.furthest is None or of_rank < self.furthest):
                self.furthest = of_rank

    def over(self, now_ns: int) -> ev.HostsAnswered:
        """What came of it."""
        since_ns = 0 if self.furthest is None else max(0, now_ns - self.furthest[1])
        return ev.HostsAnswered(now_ns, now_ns - self.asked_ns, since_ns)


class Inquiries:
    """Those that are under way, in the order in which they were asked."""

    def __init__(self) -> None:
        self._asked: list[Inquiry] = []

    def __bool__(self) -> bool:
        return bool(self._asked)

    @property
    def due_ns(self) -> int | None:
        """When the first is over, whoever has answered; None: there is none."""
        return self._asked[0].asked_ns + ANSWER_LIMIT_NS if self._asked else None

    def ask(
        self, at_ns: int, of: Mapping[str, int], do: Callable[[ev.HostsAnswered], None]
    ) -> None:
        """These are sent that now. `do`: once it is over."""
        self._asked.append(Inquiry(dict(of), at_ns, do))

    def answered(
        self, at_ns: int, says: HostSays, report: HostReport, clock: ClockBound | None
    ) -> None:
        """An agent has spoken. `clock`: what brings its times to this one's; None: not known."""
        for one in self._asked:
            if clock is not None:
                one.heard(report, clock.offset_ns)
            if one.of.get(says.incarnation, says.heard + 1) <= says.heard:
                del one.of[says.incarnation]
        self.look(at_ns)

    def look(self, at_ns: int) -> None:
        """Whether the first are over."""
        while self._asked:
            first = self._asked[0]
            if first.of and at_ns < first.asked_ns + ANSWER_LIMIT_NS:
                return
            self._asked.pop(0)
            first.do(first.over(at_ns))
