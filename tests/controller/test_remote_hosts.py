"""The controller's end of the link to several hosts, and an agent's end of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.controller.inquiries import ANSWER_LIMIT_NS
from holdfast.controller.remote_hosts import RemoteHosts
from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.exits import Exit
from holdfast.core.hosts.clocks import ClockDifference
from holdfast.core.hosts.copies import CopyServer, HeldPart
from holdfast.core.hosts.membership import HostLimits, Membership
from holdfast.core.hosts.order import CALM, HostOrder
from holdfast.core.hosts.placement import Meeting, place
from holdfast.core.hosts.report import HostReport, Pace, RankState
from holdfast.core.hosts.says import (
    Asking,
    ControllerSays,
    Over,
    decode_controller,
    decode_host,
    encode_controller,
    order_json,
)
from holdfast.core.hosts.seat import Seat
from holdfast.core.notices.board import Notice, NoticeAction
from holdfast.core.save.choose import SealedSet
from holdfast.core.save.ranks import RankAnswers

S = 1_000_000_000
AHEAD = 500 * S  # of the controller's clock, each host's
LAUNCH = act.Launch(0, ev.SCRATCH, place(2, [0, 1]))


class Board:
    """A controller, as far as its hosts see it: it writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def hear(self, report: HostReport, host: int) -> None:
        self.told.append((host, report))

    def feed(self, event: ev.Event) -> None:
        self.told.append(event)

    def lose(self, host: int) -> None:
        self.told.append(f"lost {host}")

    def replace(self, host: int) -> bool:
        self.told.append(f"replaced {host}")
        return True


class Obeys:
    """A host that notes what it is to do: as much of `core.hosts.order.Host` as a seat uses."""

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.begins_at = -1
        self.order_word = self.verdict_word = 0
        self.attention = CALM
        self.orders: list[HostOrder] = []

    def join(self, begins_at: int) -> None:
        self.begins_at = begins_at

    def meet_controller(self) -> None:
        self.orders.clear()

    def obey(self, order: HostOrder) -> None:
        self.orders.append(order)


class Lab:
    """One controller's end, and seats that talk to it. Each message takes `takes_ns`."""

    def __init__(
        self,
        slots: int = 2,
        spares: int = 0,
        takes_ns: int = 0,
        runs: tuple[tuple[str, str], ...] = (),
        chips: int = 0,
    ) -> None:
        self.now_ns = 0
        self.takes_ns = takes_ns
        self.board = Board()
        self.said: list[str] = []
        self.sent: dict[str, bytes] = {}
        self.linked: dict[str, int] = {}  # how long they were silent
        self.unread = 0  # for how long what came lies unread
        self.hosts = RemoteHosts(
            self,
            Membership(slots, spares, HostLimits()),
            lambda: self.now_ns,
            lambda _, words: self.said.append(words),
            runs,
            chips=chips,
        )
        self.hosts.attach(self.board)

    def written(self, order: HostOrder) -> bytes:
        return order_json(order)

    def put(self, incarnation: str, says: ControllerSays, order: bytes | None) -> None:
        self.sent[incarnation] = encode_controller(says, order)

    def silent_ns(self, incarnation: str) -> int | None:
        return self.linked.get(incarnation)

    def unread_ns(self) -> int:
        return self.unread

    def seat(self, index: int, incarnation: str = "", chips: int = 0) -> Seat:
        """One that has joined."""
        seat = Seat(index, incarnation or f"host {index}", Obeys)  # type: ignore[arg-type]
        seat.address, seat.ports = f"10.0.0.{index}", (1000 + index, 2000 + index)
        seat.chips = chips
        self.up(seat)
        return seat

    def up(self, seat: Seat, report: HostReport | None = None) -> None:
        message = json.dumps(seat.says(self.now_ns + AHEAD, report))
        self.now_ns += self.takes_ns
        self.hosts.take(seat.incarnation, json.loads(message))

    def down(self, seat: Seat) -> None:
        message = json.loads(self.sent[seat.incarnation])
        self.now_ns += self.takes_ns
        seat.take(self.now_ns + AHEAD, message)

    def says(self, seat: Seat) -> Any:
        return decode_controller(json.loads(self.sent[seat.incarnation]))[0]


def test_an_order_is_sent_once_it_is_known_where_the_ranks_meet() -> None:
    lab = Lab()
    order = HostOrder()
    order.number = 1
    order.want(LAUNCH)
    one = lab.seat(1)
    lab.hosts.obey(order)
    lab.down(one)
    assert isinstance(one.host, Obeys)
    assert (one.host.slot, one.host.begins_at, one.host.orders) == (1, 0, [])
    zero = lab.seat(0)
    for seat in (zero, one):
        lab.down(seat)
        assert isinstance(seat.host, Obeys)
        (got,) = seat.host.orders
        (launch,) = got.wants.after(0)
        assert isinstance(launch, act.Launch)
        assert launch.meeting == Meeting("10.0.0.0", 1000, 2000)
    zero.ports = (9, 9)  # others are free by now: the attempt keeps its own
    lab.up(zero)
    order.number, order.attention = 2, order.attention._replace(is_saving=True)
    lab.hosts.obey(order)
    lab.down(one)
    (launch,) = one.host.orders[-1].wants.after(0)
    assert launch.meeting == Meeting("10.0.0.0", 1000, 2000)


def test_a_report_counts_for_the_slot_that_its_host_has() -> None:
    lab = Lab()
    zero, one = lab.seat(0), lab.seat(1)
    lab.up(one, HostReport(7))  # it has not heard of its slot: nothing can be said of that
    assert [one for one in lab.board.told if isinstance(one, tuple)] == []
    lab.down(one)
    lab.up(one, HostReport(8))
    host, report = lab.board.told[-1]
    assert (host, report.number) == (1, 8)
    lab.hosts.gone("host 1", "it was powered off")
    assert lab.board.told[-1] == "lost 1"
    lab.up(one, HostReport(9))
    assert lab.board.told[-1] == "lost 1"
    lab.down(one)
    assert one.must_leave
    assert lab.said == ["Host 1 is lost: it was powered off"]
    assert not zero.must_leave


def test_who_has_lost_its_slot_is_another_host_afterwards() -> None:
    lab = Lab()
    one = lab.seat(1)
    lab.down(one)
    lab.hosts.gone("host 1", "it hangs")
    lab.down(one)
    assert one.must_leave
    one.go_on()
    assert isinstance(one.host, Obeys)  # what it runs is to end first
    one.has_left("host 1 again")
    assert one.host is None
    lab.up(one)
    lab.down(one)
    assert isinstance(one.host, Obeys)
    assert lab.board.told[-1] == "replaced 1"


ADOPT = act.Adopt(4, 5, ev.SCRATCH, place(2, [0, 1]))


def trains(attempt: int = 4) -> HostReport:
    """What a host reports that has started the ranks of that attempt."""
    made = HostReport(1, attempt)
    made.note(ev.Launched(AHEAD, attempt))
    return made


def succeeded(
    spares: int = 0, silent: dict[int, int] | None = None
) -> tuple[Lab, list[Seat], list[Any]]:
    """Two hosts that train, another controller that they have met, and what it has judged."""
    before, lab, judged = Lab(), Lab(spares=spares), []
    seats = [before.seat(0), before.seat(1)]
    for seat in seats:
        before.down(seat)
        seat.meet_controller()
    lab.hosts.silent_ns = silent or {}
    lab.hosts.gather(ADOPT, judged.append)
    return lab, seats, judged


def test_what_hosts_run_goes_on_under_another_controller() -> None:
    lab, seats, judged = succeeded()
    hosts = [seat.host for seat in seats]
    for seat in seats:
        lab.up(seat, trains())
    assert len(judged) == 1
    for seat in seats:  # it is not on record yet
        lab.down(seat)
        assert not seat.must_leave
        lab.up(seat, trains())
    assert lab.board.told == []
    lab.hosts.go_on()
    for seat in seats:
        lab.down(seat)
        assert not seat.must_leave
        lab.up(seat, trains())
    assert [seat.host for seat in seats] == hosts
    assert [host for host, _ in lab.board.told] == [0, 1]
    order = HostOrder()
    order.number = 1
    lab.hosts.obey(order)
    for seat in seats:
        lab.down(seat)
        assert isinstance(seat.host, Obeys)
        assert [one.number for one in seat.host.orders] == [1]


def test_only_what_the_hosts_can_have_is_restored_from_their_memory() -> None:
    """Host 0 was started again, and its memory holds its part; a spare has its place by now."""
    lab = Lab(spares=1)
    zero, one, spare = (lab.seat(index) for index in range(3))
    lab.hosts.awaited.placement = LAUNCH.placement
    one.copies, one.copy_port = (HeldPart(0, 40, (1,), 2, buffer=1),), 0
    lab.up(one)
    lab.hosts.gone(zero.incarnation, "its process has ended")
    again = lab.seat(0, "host 0 again")
    again.copies = (HeldPart(0, 40, (0,), 2, buffer=1),)
    lab.up(again)
    assert lab.hosts.membership.host_of(0).index == 2
    assert lab.hosts.sealed() == ()  # nobody gets it from there yet
    again.copy_port = 7000
    lab.up(again)
    assert lab.hosts.sealed() == (SealedSet(0, 40, 1),)
    order = HostOrder()
    order.number = 1
    order.want(act.Launch(1, ev.Resume("0000-000000000040", 40, 0, buffer=1), LAUNCH.placement))
    lab.hosts.obey(order)
    places = {seat.index: lab.says(seat).places.own for seat in (spare, one)}
    assert places == {2: CopyServer("10.0.0.0", 7000), 1: None}  # that one has its own


def test_what_cannot_go_on_is_ended_on_each_host_before_it_joins() -> None:
    lab, (zero, one), judged = succeeded()
    lab.up(zero, trains())
    assert judged == []
    assert lab.hosts.waits_for == "nothing was heard yet of the host that runs its part 1"
    lab.now_ns += HostLimits().lost_ns
    lab.hosts.look()
    assert judged == ["nothing was heard of the host that runs its part 1"]
    lab.down(zero)
    assert zero.must_leave
    lab.up(one, trains())  # too late
    lab.down(one)
    assert one.must_leave
    for seat in (zero, one):
        seat.has_left(f"host {seat.index} again")
        lab.up(seat)
        lab.down(seat)
        assert seat.host is not None
    assert lab.board.told == ["replaced 0", "replaced 1"]
    assert lab.said == []


def test_a_spare_takes_the_part_of_the_host_that_is_silent_since_its_controller_is() -> None:
    lab, (_, one), judged = succeeded(spares=1, silent={0: 100 * S})
    spare = lab.seat(2)
    lab.up(one, trains())
    assert lab.hosts.next_look_ns == HostLimits().suspect_ns
    lab.now_ns += HostLimits().suspect_ns
    lab.hosts.look()
    assert judged == ["nothing was heard of the host that runs its part 0"]
    lab.down(one)
    one.has_left("host 1 again")
    for seat in (spare, one):
        lab.up(seat)
    lab.hosts.look()
    assert [lab.hosts.membership.host_of(slot).index for slot in (0, 1)] == [2, 1]


def test_a_host_that_was_silent_before_is_waited_for_as_long_as_is_left() -> None:
    lab, (_, one), judged = succeeded(spares=1, silent={0: 7 * S})
    lab.seat(2)
    lab.up(one, trains())
    assert lab.hosts.next_look_ns == 3 * S
    lab.now_ns += 3 * S
    lab.hosts.look()
    assert judged == ["nothing was heard of the host that runs its part 0"]


def test_hosts_keep_their_slots_where_another_controller_ends_what_they_run() -> None:
    """Host 2 had taken the place of host 1, which is back, and is heard before it."""
    before, lab, judged = Lab(spares=1), Lab(spares=1), []
    zero, one, two = (before.seat(index) for index in range(3))
    before.now_ns += HostLimits().lost_ns
    before.up(two)
    before.hosts.gone(one.incarnation, "it is lost")
    for seat in (zero, two):
        before.down(seat)
        seat.meet_controller()
    lab.hosts.gather(ADOPT, judged.append)
    ended = trains()
    ended.note(ev.RankExited(AHEAD, 4, 1, AHEAD, Exit(code=1)))
    lab.seat(1, "new")
    lab.up(zero, ended)
    assert judged == []  # what host 2 has in memory is not known yet
    lab.up(two, trains())
    assert judged == ["a rank on host 0 has ended"]
    for seat in (zero, two):
        lab.down(seat)
        seat.has_left(f"host {seat.index} again")
    lab.up(zero)
    assert lab.hosts.membership.host_of(1) is None
    lab.up(two)
    assert [lab.hosts.membership.host_of(slot).index for slot in (0, 1)] == [0, 2]


def test_hosts_are_asked_how_they_stand_and_who_is_silent_is_not_waited_for_long() -> None:
    lab, asked = Lab(spares=1), []
    assert not lab.hosts.ask(lambda _: asked.append("nobody"))
    zero, one, spare = lab.seat(0), lab.seat(1), lab.seat(2)
    for seat in (zero, one, spare):
        lab.down(seat)
        lab.up(seat)
    assert lab.hosts.ask(lambda _: asked.append("first"))
    assert lab.hosts.ask(lambda _: asked.append("second"))
    lab.up(zero)  # before it has heard of it
    lab.down(zero)
    lab.up(zero)
    lab.up(one)
    assert asked == []
    lab.down(one)
    lab.up(one)
    assert asked == ["first", "second"]
    assert lab.hosts.ask(lambda _: asked.append("third"))
    lab.down(zero)
    lab.up(zero)
    until_ns = lab.now_ns + ANSWER_LIMIT_NS
    assert lab.hosts.next_look_ns == until_ns
    lab.hosts.look()
    assert asked == ["first", "second"]
    lab.now_ns = until_ns
    lab.hosts.look()
    assert asked == ["first", "second", "third"]


def test_with_the_answers_comes_how_far_the_hosts_and_the_next_boundary_are() -> None:
    """Three hosts have a rank each, and clocks of their own. A message takes 10 ms."""
    lab, asked = Lab(slots=3), []
    seats = [lab.seat(index) for index in range(3)]
    for seat in seats:
        lab.down(seat)
        lab.up(seat)
    lab.takes_ns = 10_000_000

    def answers(seat: Seat, step: int, done_ns: int) -> None:
        rank = RankState(True, RankAnswers(step=step), pace=Pace(done_ns + AHEAD if done_ns else 0))
        lab.down(seat)
        lab.up(seat, HostReport(lab.now_ns, 0, (rank,)))

    asked_ns = lab.now_ns
    lab.hosts.ask(asked.append)
    answers(seats[0], 7, asked_ns - 4)
    answers(seats[1], 8, asked_ns + 5)
    answers(seats[2], 8, asked_ns + 3)
    now_ns = lab.now_ns
    assert asked == [ev.HostsAnswered(now_ns, now_ns - asked_ns, now_ns - asked_ns - 3)]
    asked_ns = lab.now_ns
    lab.hosts.ask(asked.append)
    for seat in seats:
        answers(seat, 0, 0)  # no step was done yet
    assert asked[1:] == [ev.HostsAnswered(lab.now_ns, lab.now_ns - asked_ns, 0)]


def test_agents_that_answer_each_message_are_not_sent_one_for_each_answer() -> None:
    """A host that is refused, given up, or asked what it runs: it is told once."""
    refused = Lab(runs=(("Python", "3.12"),))
    seat = Seat(0, "host 0", Obeys)  # type: ignore[arg-type]
    seat.runs = (("Python", "3.11"),)
    given_up = Lab()
    lost = given_up.seat(0)
    given_up.down(lost)
    given_up.hosts.gone("host 0", "it was silent")
    gathering, (held, _), _ = succeeded()
    for lab, one in ((refused, seat), (given_up, lost), (gathering, held)):
        lab.up(one)
        lab.down(one)
        before = dict(lab.sent)
        for _ in range(3):
            lab.up(one)
        assert lab.sent == before


def test_a_host_knows_that_it_is_a_spare_once_it_was_told() -> None:
    lab = Lab(spares=1)
    zero, spare = lab.seat(0), lab.seat(2)
    assert not spare.is_spare
    for seat in (zero, spare):
        lab.down(seat)
    assert (zero.is_spare, spare.is_spare) == (False, True)
    lab.seat(1)
    lab.hosts.gone("host 1", "its machine is gone")
    lab.down(spare)
    assert not spare.is_spare
    assert spare.host is not None


def test_a_spare_keeps_the_slot_that_it_has_taken() -> None:
    lab, (zero, _), judged = succeeded(spares=1)
    before = Lab(spares=1)
    spare = before.seat(2)
    before.now_ns += HostLimits().gather_ns
    before.up(spare)
    before.seat(0)
    before.hosts.look()
    before.down(spare)
    spare.meet_controller()
    lab.up(spare, trains())
    lab.up(zero, trains())
    assert len(judged) == 1
    lab.hosts.go_on()
    host = lab.hosts.membership.host_of(1)
    assert host is not None
    assert host.index == 2
    lab.seat(1)  # the one whose place it has taken has come back
    assert lab.hosts.membership.members["host 1"].slot is None


def test_what_is_asked_on_a_host_is_passed_on_once() -> None:
    lab = Lab(takes_ns=2_000_000)
    zero = lab.seat(0)
    lab.down(zero)
    zero.ask(Asking.STOP, "SIGTERM", lab.now_ns + AHEAD + 30 * S)
    asked_ns = lab.now_ns
    for _ in range(2):
        lab.up(zero)
    asked = [one for one in lab.board.told if isinstance(one, ev.StopAsked)]
    assert [one.source for one in asked] == ["SIGTERM on host 0"]
    assert asked[0].deadline_ns is not None
    assert 0 <= asked_ns + 30 * S - asked[0].deadline_ns <= 2 * lab.takes_ns  # never too late
    zero.ask(Asking.INTERRUPT, "Ctrl-C")
    zero.ask(Asking.STOP_NOW, "SIGQUIT")
    lab.up(zero)
    interrupted, now = lab.board.told[-2:]
    assert isinstance(interrupted, ev.Interrupted)
    assert isinstance(now, ev.StopNowAsked)


def test_what_is_announced_on_a_host_is_passed_on_when_it_is_news() -> None:
    lab = Lab()
    spare = Seat(0, "host 0", Obeys)  # type: ignore[arg-type]
    notice = Notice("gce", NoticeAction.TERMINATE, AHEAD, event_id="e", deadline_ns=AHEAD + 60 * S)
    spare.announce(notice)
    for _ in range(2):
        lab.up(spare)
    (noticed,) = [one for one in lab.board.told if isinstance(one, ev.Noticed)]
    assert (noticed.notice.host, noticed.notice.deadline_ns) == ("host 0", 60 * S)


def test_the_choice_waits_for_all_hosts_and_is_made_once() -> None:
    lab = Lab()
    made: list[str] = []
    lab.hosts.when_complete(lambda: made.append("first"))
    lab.hosts.when_complete(lambda: made.append("second"))  # of two the later one counts
    zero = lab.seat(0)
    assert made == []
    lab.seat(1)
    assert made == ["second"]
    lab.up(zero)
    assert made == ["second"]
    lab.hosts.when_complete(lambda: made.append("third"))
    assert made == ["second", "third"]


def test_all_are_told_of_the_end_and_a_stranger_why_it_is_none_of_them() -> None:
    lab = Lab(spares=1)
    zero, spare = lab.seat(0), lab.seat(2)
    stranger = lab.seat(3)
    lab.down(stranger)
    assert stranger.refused == "there is no host 3: the run has hosts 0 to 2"
    lab.hosts.end(Over(75, "stopped; step 8 is saved"))
    for seat in (zero, spare):
        lab.down(seat)
        assert seat.over == Over(75, "stopped; step 8 is saved")
    assert spare.host is None


def test_a_message_that_was_overtaken_changes_nothing() -> None:
    lab = Lab()
    zero = lab.seat(0)
    early = lab.sent["host 0"]
    lab.hosts.end(Over(0, "done"))
    lab.down(zero)
    zero.take(lab.now_ns, json.loads(early))
    assert zero.over == Over(0, "done")
    old = zero.says(lab.now_ns, None)
    lab.up(zero)
    zero.ask(Asking.STOP, "SIGTERM")
    before = len(lab.board.told)
    lab.hosts.take("host 0", old)
    assert len(lab.board.told) == before


@pytest.mark.parametrize(
    "message", [None, {}, {"protocol": 0}, {"protocol": 1}, {"protocol": 1, "says": {"part": "x"}}]
)
def test_what_cannot_be_read_is_said_and_passed_over(message: Any) -> None:
    lab = Lab()
    for _ in range(3):
        lab.hosts.take("host 0", message)
    assert lab.board.told == []
    assert len(lab.said) == 1
    with pytest.raises(ValueError, match=r"."):
        decode_controller(message)
    with pytest.raises(ValueError, match=r"."):
        decode_host(message)


@given(
    st.integers(-(10**12), 10**12),
    st.lists(st.tuples(st.booleans(), st.integers(0, 10**9)), min_size=1, max_size=20),
)
def test_times_are_never_taken_for_later_than_they_are(
    ahead_ns: int, messages: list[tuple[bool, int]]
) -> None:
    """Two ends with clocks apart; what each adds to the other's times, against the truth."""
    here, there = ClockDifference(), ClockDifference()
    now_ns, fastest = 0, {True: 10**18, False: 10**18}
    for goes_there, takes_ns in messages:
        sent_ns, now_ns = now_ns, now_ns + takes_ns
        fastest[goes_there] = min(fastest[goes_there], takes_ns)
        if goes_there:
            truth_ns = ahead_ns
            add_ns = there.heard(now_ns + ahead_ns, sent_ns, here.measured_ns)
        else:
            truth_ns = -ahead_ns
            add_ns = here.heard(now_ns, sent_ns + ahead_ns, there.measured_ns)
        is_both = max(fastest.values()) < 10**18
        assert add_ns <= truth_ns + fastest[goes_there]
        if is_both and (here if goes_there else there).measured_ns is not None:
            assert add_ns <= truth_ns
            assert truth_ns - add_ns <= fastest[not goes_there]


def test_a_clock_that_drifts_is_measured_anew() -> None:
    clock = ClockDifference()
    for second in range(0, 600, 2):  # its sender's clock falls behind by 1 ms each second
        at_ns = second * S
        clock.heard(at_ns, at_ns - second * S // 1000, None)
    assert clock.measured_ns is not None
    assert 598 * S // 1000 - clock.measured_ns <= 2 * 62 * S // 1000


def test_who_has_nothing_new_to_say_is_not_lost_while_its_connection_lives() -> None:
    lab = Lab()
    lab.seat(0)
    lab.seat(1)
    lab.linked["host 0"] = S // 2
    for _ in range(30):
        lab.now_ns += S
        lab.hosts.look()
    assert lab.board.told[-1] == "lost 1"
    assert lab.said[-1] == "Host 1 is lost: nothing was heard of it for 10 s"


def test_a_controller_that_is_late_to_read_calls_nobody_silent() -> None:
    lab = Lab(slots=3)
    for index in range(3):
        lab.seat(index)
    lab.now_ns, lab.unread = 60 * S, 59 * S
    lab.linked = {"host 0": 59 * S, "host 1": 60 * S}  # and the third may dial
    lab.hosts.look()
    assert lab.said == []
    lab.unread, lab.linked["host 0"] = 0, 0
    lab.hosts.look()
    assert lab.said == [
        "2 hosts are lost, 1, 2: nothing was heard of them for 60 s or longer",
    ]
    assert lab.board.told[-2:] == ["lost 1", "lost 2"]


def test_a_frozen_host_is_not_said_to_be_heard_again_before_it_is_lost() -> None:
    lab = Lab()
    lab.seat(0)
    lab.seat(1)
    for _ in range(10):
        lab.now_ns += S
        lab.linked = {"host 0": 0, "host 1": lab.now_ns}
        lab.hosts.look()
    assert lab.said == [
        "Nothing was heard of host 1 for 2 s",
        "Host 1 is lost: nothing was heard of it for 10 s",
    ]


def test_hosts_that_speak_in_one_turn_are_told_in_one_sentence() -> None:
    lab = Lab()
    seats = [lab.seat(0), lab.seat(1)]
    lab.now_ns += 3 * S
    lab.hosts.look()
    lab.hosts.have_spoken(["host 0", "host 1", "nobody's"])
    for seat in seats:
        lab.up(seat)
    assert lab.said == [
        "Nothing was heard of 2 hosts for 3 s or longer: 0, 1",
        "2 hosts are heard again: 0, 1",
    ]


def test_a_late_message_of_a_host_that_was_given_up_is_no_new_host() -> None:
    lab = Lab()
    one = lab.seat(1)
    late = one.says(lab.now_ns + AHEAD, None)
    lab.hosts.gone("host 1", "it hangs")
    lab.seat(1, "host 1 again")
    before = list(lab.said)
    lab.hosts.take("host 1", late)
    assert lab.said == before
    host = lab.hosts.membership.host_of(1)
    assert host is not None
    assert host.incarnation == "host 1 again"


def test_hosts_that_come_and_go_for_ever_are_not_remembered_for_ever() -> None:
    lab = Lab()
    for life in range(200):
        lab.seat(1, f"life {life}")
        lab.hosts.gone(f"life {life}", "it hangs")
    assert len(lab.hosts.membership.members) < 20
    assert len(lab.hosts.heard) < 100


def test_a_launch_says_how_long_its_hosts_were_waited_for() -> None:
    lab = Lab()
    lab.hosts.when_complete(lambda: None)
    zero = lab.seat(0)
    lab.now_ns = 5 * S
    lab.seat(1)
    lab.down(zero)
    report = HostReport(1, 0)
    report.note(ev.Launched(6 * S + AHEAD, 0))
    lab.now_ns = 7 * S
    lab.up(zero, report)
    _, heard = lab.board.told[-1]
    (launched,) = heard.facts.after(0)
    assert launched.waited == ev.Waited("hosts", 5 * S, 0)


def test_ctrl_c_on_a_host_that_is_given_up_and_comes_back_was_pressed_once() -> None:
    lab = Lab()
    one = lab.seat(1)
    lab.down(one)
    one.ask(Asking.INTERRUPT, "Ctrl-C")
    lab.up(one)
    lab.hosts.gone("host 1", "it hangs")
    lab.down(one)
    one.has_left("host 1 again")
    lab.up(one)
    assert sum(isinstance(told, ev.Interrupted) for told in lab.board.told) == 1


def test_a_spare_that_was_silent_for_too_long_is_told_when_it_is_heard_again() -> None:
    lab = Lab(slots=1, spares=1)
    lab.seat(0)
    spare = lab.seat(1)
    lab.down(spare)
    lab.linked["host 0"] = 0
    for _ in range(12):
        lab.now_ns += S
        lab.hosts.look()
    assert lab.said == ["Host 1, a spare, is lost: nothing was heard of it for 10 s"]
    lab.up(spare)
    lab.down(spare)
    assert spare.must_leave
    spare.has_left("host 1 again")
    lab.up(spare)
    assert lab.hosts.membership.members["host 1 again"].is_there


def test_a_host_that_would_run_something_else_is_refused_and_told_how_it_differs() -> None:
    lab = Lab(runs=(("Holdfast", "2"), ("--ranks", "8")))
    other = Seat(1, "other", Obeys)  # type: ignore[arg-type]
    other.runs = (("Holdfast", "1"), ("--ranks", "8"))
    lab.up(other)
    lab.up(other)
    lab.down(other)
    assert other.refused == "it has Holdfast '1', not '2': start the same on all hosts"
    assert len(lab.said) == 1  # once
    assert "other" not in lab.hosts.membership.members
    assert decode_host(other.says(0, None))[0].runs == ()  # it was heard, and need not say it again
    lab.up(other)
    assert "other" not in lab.hosts.membership.members
    same = Seat(1, "same", Obeys)  # type: ignore[arg-type]
    same.runs = (("Holdfast", "2"), ("--ranks", "8"))
    lab.up(same)
    lab.down(same)
    assert same.refused is None
    assert same.host is not None


def launched_by(lab: Lab, seat: Seat) -> ev.Launched:
    """What the controller hears when that host's ranks have begun."""
    report = HostReport(1, 0)
    report.note(ev.Launched(lab.now_ns + AHEAD, 0))
    lab.up(seat, report)
    _, heard = lab.board.told[-1]
    (launched,) = heard.facts.after(0)
    assert isinstance(launched, ev.Launched)
    return launched


def test_a_launch_says_how_many_chips_its_hosts_have() -> None:
    lab = Lab(spares=1, chips=6)
    seats = [lab.seat(index, chips=chips) for index, chips in enumerate((8, 0, 16))]
    for seat in seats[:2]:
        lab.down(seat)
    assert launched_by(lab, seats[0]).chips == ev.CountedChips(11, 11)  # one has its share
    assert lab.hosts.awaited.chips.of([1]).here == 3
    lab.hosts.gone(seats[0].incarnation, "it is gone")
    lab.down(seats[2])
    assert launched_by(lab, seats[2]).chips == ev.CountedChips(19, 19)


def test_nothing_is_said_of_chips_where_no_host_does() -> None:
    lab = Lab(chips=6)
    zero, _ = lab.seat(0), lab.seat(1)
    lab.down(zero)
    assert launched_by(lab, zero).chips is None


def test_what_a_host_runs_is_told_until_the_controller_is_heard_and_again_to_the_next_one() -> None:
    lab = Lab(runs=(("Holdfast", "2"),))
    seat = Seat(0, "host 0", Obeys)  # type: ignore[arg-type]
    seat.runs = (("Holdfast", "2"),)
    told = lambda: decode_host(seat.says(0, None))[0].runs  # noqa: E731
    lab.up(seat)
    assert told() == seat.runs
    lab.down(seat)
    assert told() == ()
    lab.up(seat)
    assert lab.hosts.heard["host 0"].refused is None
    seat.meet_controller()
    assert told() == seat.runs


def test_facts_that_were_read_are_not_read_again() -> None:
    lab = Lab()
    zero = lab.seat(0)
    lab.down(zero)
    report = HostReport(1, 0)
    report.note(ev.Launched(lab.now_ns + AHEAD, 0))
    lab.up(zero, report)
    report.number = 2
    report.note(ev.TreeGone(lab.now_ns + AHEAD, 0))
    lab.up(zero, report)
    read = [heard.facts.after(0) for _, heard in lab.board.told[-2:]]
    assert [[type(one) for one in facts] for facts in read] == [[ev.Launched], [ev.TreeGone]]
    assert lab.board.told[-1][1].facts.newest == 2
    lab.hosts.gone("host 0", "it is gone")  # another one in its place is read from the beginning
    again = lab.seat(0, "host 0 again")
    lab.down(again)
    lab.up(again, report)
    assert len(lab.board.told[-1][1].facts.after(0)) == 2


def test_a_report_that_was_overtaken_hides_no_fact() -> None:
    lab = Lab()
    zero = lab.seat(0)
    lab.down(zero)
    newer, older = HostReport(5, 0), HostReport(4, 0)
    older.note(ev.Launched(lab.now_ns + AHEAD, 0))
    lab.up(zero, newer)
    lab.up(zero, older)  # its facts count for nothing
    newer.number = 6
    newer.note(ev.Launched(lab.now_ns + AHEAD, 0))
    lab.up(zero, newer)
    assert len(lab.board.told[-1][1].facts.after(0)) == 1


OURS, THEIRS = (("Holdfast", "2"),), (("Holdfast", "1"),)


def with_other_runs(runs: dict[int, tuple[tuple[str, str], ...]]) -> tuple[Lab, list[Seat], Any]:
    """By host, what it would run. Hosts 0 and 1 have trained under another controller."""
    before, lab, judged = Lab(), Lab(spares=1, runs=OURS), []
    seats = [before.seat(0), before.seat(1)]
    for seat in seats:
        before.down(seat)
        seat.meet_controller()
    seats += [Seat(index, f"host {index}", Obeys) for index in runs if index > 1]  # type: ignore[arg-type]
    for seat in seats:
        seat.runs = runs[seat.index]
    lab.hosts.outvoted = judged.append
    lab.hosts.gather(ADOPT, judged.append)
    return lab, seats, judged


@pytest.mark.parametrize("spare", [OURS, THEIRS])
def test_a_controller_that_would_run_something_else_leaves_the_run_to_those_that_train(
    spare: Any,
) -> None:
    lab, seats, judged = with_other_runs({0: THEIRS, 1: THEIRS, 2: spare})
    for seat in seats:
        lab.up(seat, trains() if seat.index < 2 else None)
        lab.down(seat)
        assert (seat.refused, seat.must_leave) == (None, False)  # what it runs goes on
    lab.now_ns += HostLimits().lost_ns
    lab.hosts.look()
    which = "0, 1" if spare == OURS else "0, 1, 2"
    assert judged == [
        f"the run goes on without this host: the others ({which}) train, and they have Holdfast "
        "'1', not '2'; start the same on all hosts"
    ]
    for seat in seats:
        lab.up(seat)
        lab.down(seat)
        assert (seat.refused, seat.must_leave) == (None, False)


def test_what_a_host_runs_is_asked_of_one_that_spoke_to_the_controller_before() -> None:
    """Its first message is from before it has met this one, and tells nothing of that."""
    before, lab, judged = Lab(runs=OURS), Lab(runs=OURS), []
    seats = [before.seat(0), before.seat(1)]
    for seat in seats:
        seat.runs = OURS
        before.up(seat)
        before.down(seat)
        before.up(seat)
    lab.hosts.gather(ADOPT, judged.append)
    for seat in seats:
        lab.up(seat, trains())
    assert judged == []
    for seat in seats:
        seat.meet_controller()
        lab.down(seat)
        lab.up(seat, trains())
    assert len(judged) == 1
    lab.hosts.go_on()
    lab.down(seats[0])
    assert decode_host(seats[0].says(0, None))[0].runs == ()


def test_the_few_that_would_run_something_else_are_refused_by_the_next_controller() -> None:
    lab, (zero, one, spare), judged = with_other_runs({0: OURS, 1: OURS, 2: THEIRS})
    for seat in (spare, zero, one):
        assert spare.refused is None
        lab.up(seat, trains() if seat is not spare else None)
    assert len(judged) == 1
    lab.hosts.go_on()
    for seat in (zero, one, spare):
        lab.up(seat)
        lab.down(seat)
    assert spare.refused == "it has Holdfast '1', not '2': start the same on all hosts"
    assert [seat.refused for seat in (zero, one)] == [None, None]
