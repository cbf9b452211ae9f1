"""The order in which a controller reads, writes down, decides and acts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from holdfast.controller.controller import DO, Controller
from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.exits import Exit
from holdfast.core.hosts.evidence import RankEvidence
from holdfast.core.hosts.messages import decode_order, encode_order
from holdfast.core.hosts.order import DO as WANTED
from holdfast.core.hosts.order import Attention, HostOrder, Hurry
from holdfast.core.hosts.report import HostReport, RankState
from holdfast.core.run.machine import RunPolicy, State
from holdfast.core.save import events as news
from holdfast.core.save.policy import EverySteps
from holdfast.core.save.ranks import RankAnswers

RESUME = ev.Resume(None, 0, None)


@dataclass
class Ports:
    """All four, which note what they are asked; `answers`: what a call feeds at once."""

    calls: list[tuple[Any, ...]] = field(default_factory=list)
    answers: dict[str, Callable[[], ev.Event]] = field(default_factory=dict)
    state: HostReport = field(default_factory=HostReport)
    controller: Controller | None = None
    is_far: bool = False
    asked: list[Callable[[], None]] = field(default_factory=list)

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("_"):
            raise AttributeError(name)

        def call(*args: Any) -> None:
            self.calls.append((name, *args))
            if name in self.answers and self.controller is not None:
                self.controller.feed(self.answers.pop(name)())
                self.calls.append((f"{name} is over",))

        return call

    def now_ns(self) -> int:
        return 0

    def obey(self, order: HostOrder) -> None:
        self.calls.append(("order", decode_order(encode_order(order))))

    def when_complete(self, do) -> None:
        do()

    def ask(self, do) -> bool:
        self.asked.append(do)
        return self.is_far

    def reports(self) -> list[tuple[int, HostReport]]:
        self.calls.append(("report",))
        self.state.number += 1
        return [(0, self.state)]

    def rank_is_at(self, step: int) -> HostReport:
        """Rank 0's page says so."""
        self.state.ranks = (RankState(True, RankAnswers(step=step)),)
        self.state.number += 1
        return self.state

    def orders(self) -> list[HostOrder]:
        """What the host was given, one state after the other."""
        return [args[0] for name, *args in self.calls if name == "order"]

    def names(self) -> list[str]:
        """What was called, with the kinds of events and actions."""
        return [
            f"{name} {type(args[0]).__name__}" if name == "event" else name
            for name, *args in self.calls
        ]


def controller_of(ports: Ports, ranks: int = 1) -> Controller:
    made = Controller(
        RunPolicy(ranks=ranks), link=ports, store=ports, clock=ports, journal=ports, say=ports.say
    )
    ports.controller = made
    return made


def running(ports: Ports) -> Controller:
    """One rank that has done step 5."""
    made = controller_of(ports)
    made.feed(ev.Opened(0, 0))
    made.feed(ev.Chosen(0, RESUME, "nothing there"))
    created(ports)
    ports.state.begin(0, 0, 1)
    ports.state.note(ev.Launched(0, 0))
    made.hear(ports.rank_is_at(5))
    assert made.machine.saving.fastest_step == 5
    ports.calls.clear()
    return made


def created(ports: Ports) -> act.Launch:
    """The attempt is on record."""
    _, action, then = next(one for one in ports.calls if one[0] == "create_attempt")
    then()
    assert isinstance(action, act.Launch)
    return action


def test_every_action_of_the_machine_has_somebody_who_carries_it_out() -> None:
    assert set(DO) | set(WANTED) == {*act.Action.__args__, Hurry}
    assert set(DO) & set(WANTED) == {act.Launch, act.CarryOut, act.Flush}  # and the store first


def test_what_is_fed_while_an_answer_is_carried_out_waits_for_its_end() -> None:
    ports = Ports(answers={"look": lambda: ev.Chosen(0, RESUME, "nothing there")})
    made = controller_of(ports)
    made.feed(ev.Opened(0, 0))
    names = ports.names()
    assert names.index("look is over") < names.index("event Chosen")
    assert made.machine.state is State.LAUNCHING
    assert not made.is_acting


def test_an_input_is_written_down_before_it_is_decided_and_acted_on() -> None:
    ports = Ports()
    controller_of(ports).feed(ev.Opened(0, 0))
    assert ports.names()[:3] == ["event Opened", "answered", "sealed"]


def test_how_ranks_ended_is_on_record_as_it_was_reported_with_their_end() -> None:
    ports = Ports()
    made = running(ports)
    ports.state.ended = (RankEvidence(0, -9, ("step 5",)),)
    ports.state.note(ev.RankExited(7, 0, 0, 7, Exit(signal=9)))
    ports.state.note(ev.TreeGone(8, 0))
    made.hear(ports.rank_is_at(5))
    (ended,) = [args for name, *args in ports.calls if name == "end_attempt"]
    assert ended[1] == (RankEvidence(0, -9, ("step 5",)),)


def test_of_an_attempt_before_nothing_is_told_any_more() -> None:
    ports = Ports()
    made = running(ports)
    late = HostReport(99, attempt=-1, ended=(RankEvidence(0, 1),))
    made.hear(late)
    made.feed(ev.RankExited(7, 0, 0, 7, Exit(signal=9)))
    made.feed(ev.TreeGone(8, 0))
    (ended,) = [args for name, *args in ports.calls if name == "end_attempt"]
    assert ended[1] == ()


def test_hosts_that_are_far_are_asked_before_an_order_and_it_waits_for_them() -> None:
    ports = Ports()
    made = running(ports)
    ports.is_far = True
    made.feed(ev.SaveAsked(4, "somebody"))
    assert ports.names() == []
    made.hear(ports.rank_is_at(7))
    (answered,) = ports.asked
    answered(ev.HostsAnswered(5, 30, 0))
    assert [name for name in ports.names() if name.startswith("event")] == [
        "event Heard",
        "event HostsAnswered",
        "event SaveAsked",
    ]
    assert len(ports.asked) == 1


def test_the_ranks_progress_is_read_right_before_an_order() -> None:
    ports = Ports()
    made = running(ports)
    ports.rank_is_at(7)
    made.feed(ev.SaveAsked(4, "somebody"))
    assert ports.names()[0] == "report"
    assert [name for name in ports.names() if name.startswith("event")] == [
        "event Heard",
        "event SaveAsked",
    ]
    (order,) = ports.orders()
    (wanted,) = (one for one in order.wants.after(0) if isinstance(one, act.CarryOut))
    assert isinstance(wanted.what, news.PublishOrder)
    assert wanted.what.step == 8


def test_the_host_is_told_how_closely_to_look_when_that_changes() -> None:
    ports = Ports()
    made = running(ports)
    made.feed(ev.StopAsked(4, "Ctrl-C", None, notice=False))
    made.feed(ev.StopAsked(5, "SIGTERM", 10**12, notice=True))
    told = [order.attention for order in ports.orders()]
    assert told[0] == Attention(is_saving=True, is_stopping=True, source="Ctrl-C")
    assert told[-1] == told[0]._replace(deadline_ns=10**12)
    assert len(set(told)) == 2


def test_an_attempt_is_launched_once_it_is_on_record() -> None:
    ports = Ports()
    made = controller_of(ports)
    made.feed(ev.Opened(0, 0))
    made.feed(ev.Chosen(0, RESUME, "nothing there"))
    assert ports.orders() == []
    action = created(ports)
    (order,) = ports.orders()
    assert order.wants.after(0) == [action]


def test_a_set_on_its_way_from_memory_is_protected_until_that_has_failed() -> None:
    ports = Ports()
    made = running(ports)
    DO[act.Flush](made, act.Flush(0, 1, 5, 0, "due"))
    assert ("protect", (0, 5)) in ports.calls
    made.feed(ev.FlushFailed(6, 0, 1, 5, "no space left"))
    assert ("protect", None) in ports.calls


class TellsMore(Ports):
    """A host that has more to tell as soon as it is given an order."""

    def obey(self, order: HostOrder) -> None:
        super().obey(order)
        more, self.more = self.more, None
        if more is not None and self.controller is not None:
            self.state.note(more)
            self.state.number += 1
            self.controller.hear(self.state)

    more: ev.Event | None = None


def test_all_of_a_report_is_decided_on_before_the_next_one() -> None:
    """The first of it leads to an order, on which the host tells more."""
    ports = TellsMore()
    made = running(ports)
    ports.more = ev.TreeGone(0, 0)
    made.machine.saving.policy = EverySteps(1)
    ports.state.note(ev.RankExited(0, 0, 0, 0, Exit(signal=9)))
    made.hear(ports.rank_is_at(6))
    told = [args[0] for name, *args in ports.calls if name == "event"]
    assert [type(one) for one in told] == [ev.Heard, ev.RankExited, ev.TreeGone]
