"""What stands behind a controller: the run's hosts, its store, a clock, and a journal.

`holdfast run` has real ones; the simulator and the scenario tests have virtual ones. Nothing here
answers by a value where it takes time: what comes of a call is fed to the controller as an event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.hosts.adoption import LastOrdered
from holdfast.core.hosts.evidence import RankEvidence
from holdfast.core.hosts.order import HostOrder
from holdfast.core.hosts.report import HostReport
from holdfast.core.run.rollback import Wish
from holdfast.core.save.choose import SealedSet


class Link(Protocol):
    """The hosts of a run. Their reports are handed to `Controller.hear`."""

    def obey(self, order: HostOrder) -> None:
        """Have the host carry out what is new in it; returns at once."""

    def reports(self) -> Iterable[tuple[int, HostReport]]:
        """How the hosts stand now, each by its number, the ranks' plain progress included.

        Over a network: nothing, for what is known was handed over, and `ask` has them say more.
        """

    def ask(self, do: Callable[[ev.HostsAnswered], None]) -> bool:
        """Have the hosts say how they stand now, and then do that; False: `reports` says it."""

    def when_complete(self, do: Callable[[], None]) -> None:
        """Call that once every host is there that an attempt needs; at once if they are now."""

    def sealed(self) -> tuple[SealedSet, ...] | None:
        """Which sets are in the hosts' memory; None: the store is asked, which is on this host."""

    def distrust(self, host: int, words: str) -> None:
        """That host is to have no part any more, if there is another one for it."""

    def gather(self, action: act.Adopt, judged: Callable[[LastOrdered | str], None]) -> None:
        """Ask the hosts of an attempt that runs; `judged` is told what they are at, or why not.

        Their reports are handed over from `go_on` on.
        """

    def go_on(self) -> None:
        """What was gathered goes on, which is on record."""


class OwnHosts:
    """Of a link to hosts that are always there, and run nothing from before."""

    def ask(self, _: Callable[[ev.HostsAnswered], None]) -> bool:
        """They answer a call."""
        return False

    def when_complete(self, do: Callable[[], None]) -> None:
        """At once."""
        do()

    def sealed(self) -> tuple[SealedSet, ...] | None:
        """The store looks: it is on the same machine."""
        return None

    def distrust(self, _: int, words: str) -> None:
        """There is no other one."""

    def gather(self, _: act.Adopt, judged: Callable[[LastOrdered | str], None]) -> None:
        """They end with their controller."""
        judged("its hosts are gone")

    def go_on(self) -> None:
        """Never."""


class Store(Protocol):
    """The run's store, behind a thread of its own. Each method returns at once."""

    def look(self, wish: Wish | None, sealed: tuple[SealedSet, ...] | None = None) -> None:
        """Complete whole sets, then see which there are: SetsSeen or ChoiceFailed follows.

        `sealed`: those in memory; None: they are looked for on this host.
        """

    def create_attempt(self, action: act.Launch, created: Callable[[], None]) -> None:
        """Put the attempt on record; then `created` in the loop, or LaunchFailed follows."""

    def adopt(self, action: act.Adopt, adopted: Callable[[int], None]) -> None:
        """Put that on record and complete whole sets, as soon as the store can be written.

        Then `adopted(step)` in the loop: the newest that is durable; or LaunchFailed follows.
        """

    def commit(self, attempt: int, epoch: int, step: int, ranks: int, /) -> None:
        """Write a manifest, of as many shards: Committed or CommitFailed follows, as news."""

    def commit_flushed(self, action: act.CommitFlushed) -> None:
        """The same for a set from memory: FlushCommitted or FlushCommitFailed follows."""

    def protect(self, of: tuple[int, int] | None) -> None:
        """Leave that (attempt, step) alone: it is on its way from memory. None: none is."""

    def keep_compared(self, step: int | None) -> None:
        """The newest set at or before that step stays: in a newer one replicas may differ."""

    def make_room(self, attempt: int, step: int) -> None:
        """Delete what is of no use: the store did not take that step."""

    def keep_wish(self, wish: Wish) -> None:
        """Leave that wish to go back where the next controller finds it."""

    def end_training(self, action: act.EndTraining) -> None:
        """Put on record that the script ended its training before its last step."""

    def end_attempt(self, action: act.EndAttempt, ended: Sequence[RankEvidence]) -> None:
        """Put on record how an attempt ended."""


class ControllerClock(Protocol):
    """One clock, and timers on it that are fed as TimerFired by whoever has them."""

    def now_ns(self) -> int:
        """Integer nanoseconds."""

    def set(self, name: str, at_ns: int) -> None:
        """Set a timer, or set it anew."""

    def cancel(self, name: str) -> None:
        """Forget a timer, if it is there."""


class Notebook(Protocol):
    """What is written down of each input before it is acted on, and of what was decided."""

    def event(self, event: ev.Event) -> None:
        """An input of the run's machine."""

    def answered(self, actions: tuple[act.Action, ...], at_ns: int) -> None:
        """What the machine decided on it."""

    def fact(self, fact: Mapping[str, Any]) -> None:
        """A fact for the ledger."""
