"""What a controller says that changes nothing in a simulated run, and takes no time."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from holdfast.controller.ports import OwnHosts
from holdfast.core import actions as act
from holdfast.core.hosts.evidence import RankEvidence
from holdfast.core.hosts.order import Host, Hurry
from holdfast.core.run.rollback import Wish


class NoOps(Host, OwnHosts):
    """Of the ports of a controller: what a simulated run has nothing to do for."""

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

    def create_attempt(self, _: act.Launch, created: Callable[[], None]) -> None:
        """It is on record at once."""
        created()

    def adopt(self, _: act.Adopt, adopted: Callable[[int], None]) -> None:
        """Never: one controller lives as long as its run."""
        adopted(0)

    def protect(self, of: tuple[int, int] | None) -> None:
        """No incomplete set is ever removed."""

    def keep_compared(self, step: int | None) -> None:
        """Nothing is ever deleted."""

    def make_room(self, attempt: int, step: int) -> None:
        """The disk is never full."""

    def keep_wish(self, wish: Wish) -> None:
        """There is one controller."""

    def end_training(self, action: act.EndTraining) -> None:
        """Ranks here train to the end."""

    def end_attempt(self, action: act.EndAttempt, ended: Sequence[RankEvidence]) -> None:
        """The facts for the ledger say it."""

    def answered(self, actions: tuple[act.Action, ...], at_ns: int) -> None:
        """Nothing is written down: the same seed decides the same again."""
