"""The link between the controller of a run that nobody supervises and its only host: a call."""

from __future__ import annotations

from holdfast.controller.ports import OwnHosts
from holdfast.core import events as ev
from holdfast.core.exits import Exit
from holdfast.core.hosts.evidence import RankEvidence
from holdfast.core.hosts.order import HostOrder
from holdfast.core.hosts.report import HostReport
from holdfast.session.own_host import OwnHost
from holdfast.session.proposals import Proposals


class OwnLink(OwnHosts):
    """A `controller.ports.Link`. All methods are for the controller's thread."""

    def __init__(self, host: OwnHost) -> None:
        self.host = host
        self.proposals: Proposals | None = None

    # --- controller.ports.Link --------------------------------------------------------------

    def obey(self, order: HostOrder) -> None:
        """The host carries out what is new."""
        self.host.obey(order)

    def reports(self) -> list[tuple[int, HostReport]]:
        """How the rank stands, its plain progress included."""
        self.host.read(with_progress=True)
        return [(0, self._numbered())]

    # --- the loop's -------------------------------------------------------------------------

    def turn(self, at_ns: int) -> None:
        """Take in what the others said, and have them told what is new: there are none."""

    def look(self, at_ns: int) -> list[tuple[int, HostReport]]:
        """The hosts of which there is news, and how they stand."""
        return [(0, self._numbered())] if self.host.look(at_ns) else []

    def last_reports(self, at_ns: int, how: Exit | None) -> list[tuple[int, HostReport]]:
        """How all hosts stand, now that this process ends, and the controller with it.

        `how`: its script did so; None: it is killed, and nobody has seen how.
        """
        if self.host.attempt < 0:
            return []
        end(self.host.report, self.host.attempt, 0, at_ns, how)
        return [(0, self._numbered())]

    def await_the_others(self, limit_s: float) -> None:
        """Rank 0 leaves last."""

    def close(self, limit_s: float) -> None:
        """The last word."""

    def _numbered(self) -> HostReport:
        self.host.report.number += 1
        return self.host.report


def end(report: HostReport, attempt: int, rank: int, at_ns: int, how: Exit | None) -> None:
    """Nothing more comes of the host of that rank: have its report say so.

    Its traceback is kept. The process's exit code nobody has seen.
    """
    if how is not None:
        report.note(ev.RankExited(at_ns, attempt, rank, at_ns, how))
    last = None if how is None else how.report
    report.ended = (RankEvidence(rank, traceback=None if last is None else last.traceback),)
    report.note(ev.TreeGone(at_ns, attempt))
