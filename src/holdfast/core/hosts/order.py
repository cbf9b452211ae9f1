"""What is wanted of a host: the controller's side of the link, as a register."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.hosts.copies import NOWHERE
from holdfast.core.hosts.register import Register
from holdfast.core.save import events as news
from holdfast.core.save.word import pack
from holdfast.core.value import value

# These are about one attempt: the launch of the next takes their place.
OF_AN_ATTEMPT = (
    act.Launch, act.CarryOut, act.PublishCommitted, act.Relay, act.Kill, act.Examine,
    act.CollectStacks, act.Profile,
)  # fmt: skip
SEAL = "seal"


@value
class Hurry:
    """The flush of that set is urgent by now. It must not begin anew where it has just ended."""

    attempt: int
    epoch: int
    step: int


Want = act.Action | Hurry


class Attention(NamedTuple):
    """How closely the ranks are to be looked at.

    `is_saving`: somebody waits for an answer to an order. `is_stopping`: the run is to stop, by
    `deadline_ns` on the controller's clock, if there is one. `source`: who wants that; `is_notice`:
    as a notice, not as a person. By these the next controller goes on with the stop.
    """

    is_saving: bool = False
    is_stopping: bool = False
    deadline_ns: int | None = None
    source: str = ""
    is_notice: bool = False


CALM, SAVING = Attention(), Attention(is_saving=True)


@dataclass(slots=True)
class HostOrder:
    """All that is wanted of one host now. `wants`: actions, the oldest first.

    `number`: of this state of it; a host passes over one that it has seen, or that was overtaken.
    """

    number: int = 0
    attention: Attention = CALM
    wants: Register[Want] = field(default_factory=Register)
    _flush: act.Flush | None = None  # that is under way, by all that was heard

    def want(self, action: act.Action) -> None:
        """Have this done, too, or in place of what it supersedes."""
        if isinstance(action, act.Launch):
            self.wants.drop_kinds(OF_AN_ATTEMPT)
        if isinstance(action, act.Flush):
            of, known = (action.attempt, action.epoch, action.step), self._flush
            if known is not None and of == (known.attempt, known.epoch, known.step):
                hurry = Hurry(*of)
                self.wants.put(subject_of_want(hurry), hurry)
                return
            self._flush = action
        self.wants.put(subject_of_want(action), action)

    def begins_at(self, *, launches: bool) -> int:
        """Up to which want this is nothing to a new and empty host.

        `launches`: it is to start the newest attempt, and to do what followed.
        """
        for number, want in self.wants.numbered() if launches else ():
            if isinstance(want, act.Launch):
                return number - 1
        return self.wants.newest

    def seal_is_over(self, outcome: ev.Sealed | ev.SealFailed) -> None:
        """What the host has answered is not wanted any more."""
        self.wants.drop(seal_subject(outcome))

    def flush_is_over(self) -> None:
        """It failed, or every rank's shard is durable."""
        self._flush = None
        self.wants.drop(act.Flush.__name__)
        self.wants.drop(Hurry.__name__)


def subject_of_want(action: Want) -> Hashable:
    """What a newer want takes the place of an older one by."""
    if isinstance(action, act.CarryOut):
        return type(action.what).__name__
    if isinstance(action, act.Seal):
        return SEAL, action.attempt, action.epoch, action.step, action.buffer
    kind = type(action)
    if kind is act.AbandonFlush:  # there is one flush at a time
        kind = act.Flush
    return kind.__name__


def seal_subject(answer: ev.Sealed | ev.SealFailed) -> Hashable:
    """Which seal an answer is about."""
    return SEAL, answer.of_attempt, answer.epoch, answer.step, answer.buffer


class Host(ABC):
    """Who obeys: the agent of a host, or a virtual one. Each method returns at once."""

    def __init__(self) -> None:
        self.attention = CALM
        self.places = NOWHERE  # of parts of sets in other hosts' memory
        self.order_word = self.verdict_word = 0  # in the ranks' pages; 0: none
        self._seen = self._carried_out = 0
        self._to_do: deque[Want] = deque()
        self._is_obeying = False

    def meet_controller(self) -> None:
        """Another one has taken over: its orders are numbered from the beginning."""
        self._seen = self._carried_out = 0

    def join(self, begins_at: int) -> None:
        """Begin as a new and empty host: wants up to that number are not of it."""
        self._carried_out = begins_at

    def obey(self, order: HostOrder) -> None:
        """Carry out what is new in the order; one that was seen before changes nothing.

        What is carried out may lead to another order before all of it is: that one comes after it.
        """
        if order.number <= self._seen:
            return
        self._seen = order.number
        self._to_do += order.wants.after(self._carried_out)
        self._carried_out = order.wants.newest
        self.forget_seals(order.wants.__contains__)
        if not self._is_obeying:
            self._carry_out_all()
        if order.number == self._seen and order.attention != self.attention:
            self.attention = order.attention
            self.attend()

    def _carry_out_all(self) -> None:
        self._is_obeying = True
        try:
            while self._to_do:
                action = self._to_do.popleft()
                DO[type(action)](self, action)
        finally:
            self._to_do.clear()
            self._is_obeying = False

    @abstractmethod
    def forget_seals(self, is_wanted: Callable[[Hashable], bool]) -> None:
        """The controller has heard of the seals that are not wanted any more."""

    def attend(self) -> None:  # noqa: B027 - most look at `attention` when they need it
        """`attention` has changed."""

    @abstractmethod
    def launch(self, action: act.Launch) -> None:
        """Start the ranks of an attempt that is on record: Launched or LaunchFailed follows."""

    @abstractmethod
    def publish_order(self, order: news.PublishOrder, deadline_ns: int | None) -> None:
        """Put an order into the ranks' pages, and until when they have time."""

    @abstractmethod
    def publish_verdict(self, verdict: news.PublishVerdict) -> None:
        """Put a verdict into the ranks' pages."""

    @abstractmethod
    def publish_committed(self, step: int) -> None:
        """Put into the ranks' pages what is durable."""

    @abstractmethod
    def relay(self) -> None:
        """Send SIGTERM to the ranks."""

    @abstractmethod
    def kill(self) -> None:
        """End every process of the attempt: TreeGone or HostLost follows."""

    @abstractmethod
    def stand_by(self, action: act.StandBy) -> None:
        """Have the processes that wait for the next attempt do what is wanted now."""

    @abstractmethod
    def examine(self, action: act.Examine) -> None:
        """Look at every rank's words and process: Examined follows, unless that look came late."""

    @abstractmethod
    def collect_stacks(self, action: act.CollectStacks) -> None:
        """Ask every rank where it stands: StacksCollected follows."""

    def profile(self, action: act.Profile) -> None:  # noqa: B027 - virtual ranks have no profiler
        """Have a rank profile itself, if it runs here: it answers in the store."""

    @abstractmethod
    def seal(self, action: act.Seal) -> None:
        """Give a buffer its checksums and manifest: Sealed or SealFailed follows."""

    @abstractmethod
    def flush(self, action: act.Flush) -> None:
        """Write a sealed set to the store: Flushing now and then, Flushed or FlushFailed."""

    @abstractmethod
    def replicate(self, action: act.Replicate) -> None:
        """Copy the neighbour's part of a sealed set: Replicated or NotReplicated follows."""

    @abstractmethod
    def hurry(self, action: Hurry) -> None:
        """Have that flush go on at full speed, if it is under way still."""

    @abstractmethod
    def abandon_flush(self, action: act.AbandonFlush) -> None:
        """End that, if it is under way still: FlushFailed follows."""


def _publish(host: Host, action: act.CarryOut) -> None:
    if isinstance(action.what, news.PublishOrder):
        order = action.what
        host.order_word = pack(order.epoch, order.step, order.flags)
        host.publish_order(order, action.deadline_ns)
    elif isinstance(action.what, news.PublishVerdict):
        verdict = action.what
        host.verdict_word = pack(verdict.epoch, verdict.step, verdict.flags)
        host.publish_verdict(action.what)


def _launch(host: Host, action: act.Launch) -> None:
    host.order_word = host.verdict_word = 0
    host.launch(action)


DO: dict[type[Want], Callable[[Host, Any], None]] = {
    act.Launch: _launch,
    act.CarryOut: _publish,
    act.PublishCommitted: lambda host, action: host.publish_committed(action.step),
    act.Relay: lambda host, _: host.relay(),
    act.Kill: lambda host, _: host.kill(),
    act.StandBy: lambda host, action: host.stand_by(action),
    act.Examine: lambda host, action: host.examine(action),
    act.CollectStacks: lambda host, action: host.collect_stacks(action),
    act.Profile: lambda host, action: host.profile(action),
    act.Seal: lambda host, action: host.seal(action),
    act.Flush: lambda host, action: host.flush(action),
    act.Replicate: lambda host, action: host.replicate(action),
    Hurry: lambda host, action: host.hurry(action),
    act.AbandonFlush: lambda host, action: host.abandon_flush(action),
}
