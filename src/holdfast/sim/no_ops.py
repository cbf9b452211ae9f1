"""What a controller orders that changes nothing in a simulated run."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from holdfast.core import actions as act
from holdfast.core.hosts.evidence import RankEvidence
from holdfast.core.hosts.order import Host, Hurry


class NoOps(Host):
    """Of `controller.ports.Link` and `Store`: what takes no time, and is heard of no more."""

    def hurry(self, action: Hurry) -> None:
        """A flush takes as long as it takes."""

    def forget_seals(self, is_wanted: Callable[[Hashable], bool]) -> None:
        """They are told once."""

    def publish_committed(self, step: int) -> None:
        """No rank waits for it."""

    def relay(self) -> None:
        """Every rank has a session."""

    def stand_by(self, action: act.StandBy) -> None:
        """There are none."""

    def protect(self, of: tuple[int, int] | None) -> None:
        """No incomplete set is ever removed."""

    def make_room(self, attempt: int, step: int) -> None:
        """The disk is never full."""

    def end_attempt(self, action: act.EndAttempt, ended: Sequence[RankEvidence]) -> None:
        """The facts for the ledger say it."""
