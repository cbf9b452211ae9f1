"""The link between the controller of a run that nobody supervises and its only host: a call."""

from __future__ import annotations

from holdfast.core import events as ev
from holdfast.core.hosts.evidence import RankEvidence
from holdfast.core.hosts.order import HostOrder
from holdfast.core.hosts.report import HostReport
from holdfast.session.own_host import OwnHost
from holdfast.session.proposals import Proposals


class OwnLink:
    """A `controller.ports.Link`. All methods are for the controller's thread."""

    def __init__(self, host: OwnHost, ranks: int = 1) -> None:
        self.host = host
        self.ranks = ranks
        self.proposals: Proposals | None = None
        self._ends: dict[int, ev.RankExited] = {}

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

    def look(self, at_ns: int) -> HostReport | None:
        """How the hosts stand, if that is news."""
        return self._numbered() if self.host.look(at_ns) else None

    def told(self, event: ev.Event) -> HostReport:
        """The same, now that this has happened here."""
        if isinstance(event, ev.RankExited):
            self._ends[event.rank] = event
        if isinstance(event, ev.TreeGone):
            self._own.ended = tuple(map(self._evidence, range(self.ranks)))
        self._own.note(event)
        return self._numbered()

    def await_the_others(self, limit_s: float) -> None:
        """Rank 0 leaves last."""

    def close(self, limit_s: float) -> None:
        """The last word."""

    # --- inside -----------------------------------------------------------------------------

    def _evidence(self, rank: int) -> RankEvidence:
        """The traceback of a rank that failed. Nobody has seen how the processes ended."""
        end = self._ends.get(rank)
        told = None if end is None else end.exit.report
        return RankEvidence(rank, traceback=None if told is None else told.traceback)

    @property
    def _own(self) -> HostReport:
        return self.host.facts_and_pages

    def _numbered(self) -> HostReport:
        self._own.number += 1
        return self._own
