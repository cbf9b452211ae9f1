"""Orders and reports over a link that loses, doubles and delays messages."""

from __future__ import annotations

import contextlib
import copy
import json
import random
from collections.abc import Hashable
from typing import Any

import pytest

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.exits import Exit, RankReport
from holdfast.core.hang.events import RankLook, RankStack
from holdfast.core.hosts.evidence import RankEvidence
from holdfast.core.hosts.messages import decode_order, decode_report, encode_order, encode_report
from holdfast.core.hosts.order import CALM, DO, SAVING, Attention, Host, HostOrder
from holdfast.core.hosts.placement import Placement, place
from holdfast.core.hosts.reader import ReportReader
from holdfast.core.hosts.register import Register
from holdfast.core.hosts.report import HostReport, RankState
from holdfast.core.hosts.standby import StandbyOrder
from holdfast.core.run.rollback import Rollback
from holdfast.core.save import events as news
from holdfast.core.save.ranks import RankAnswers
from holdfast.core.save.word import Agreed

RESUME = ev.Resume(None, 0, None)
HERE = Placement((0,))


def sent_order(order: HostOrder) -> HostOrder:
    """As it stood, and comes out of a wire."""
    return decode_order(json.loads(json.dumps(encode_order(order))))


def sent_report(report: HostReport) -> HostReport:
    """As it stood, and comes out of a wire."""
    return decode_report(json.loads(json.dumps(encode_report(report))))


SEEDS = range(200)


class Noting(Host):
    """A host that notes what it carries out."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[tuple[str, Any]] = []
        self.kept: list[Hashable] = []

    def forget_seals(self, is_wanted: Any) -> None:
        self.kept = [subject for subject in self.kept if is_wanted(subject)]


def _noting(name: str) -> Any:
    def method(self: Noting, *args: Any) -> None:
        self.done.append((name, args))

    return method


for _name in list(Host.__abstractmethods__ - {"forget_seals"}):
    setattr(Noting, _name, _noting(_name))
Noting.__abstractmethods__ = frozenset()


def order(epoch: int) -> act.CarryOut:
    return act.CarryOut(0, news.PublishOrder(epoch, epoch + 5, 0, "due"))


def verdict(epoch: int) -> act.CarryOut:
    return act.CarryOut(0, news.PublishVerdict(epoch, epoch + 5, 0, ""))


def wanted(rng: random.Random, number: int) -> act.Action:
    """Something that a controller may want next."""
    return rng.choice(
        (
            order(number),
            verdict(number),
            act.PublishCommitted(number),
            act.Seal(0, number, number, 0),
            act.Flush(0, number, number, 0, "due"),
            act.AbandonFlush(0, number, number, "late"),
            act.Examine(0),
            act.StandBy(1, rng.choice(list(StandbyOrder))),
            act.Relay("no session"),
        )
    )


class TestRegister:
    def test_a_newer_entry_takes_the_place_of_its_subject(self) -> None:
        register: Register[str] = Register()
        for subject, entry in (("a", "1"), ("b", "2"), ("a", "3")):
            register.put(subject, entry)
        assert register.after(0) == ["2", "3"]
        assert register.after(2) == ["3"]
        assert register.after(register.newest) == []

    def test_what_was_dropped_is_told_to_nobody_any_more(self) -> None:
        register: Register[str] = Register()
        register.put("a", "1")
        register.put("b", "2")
        register.drop("a")
        register.drop("never there")
        register.drop_where(lambda entry: entry == "3")
        assert "a" not in register
        assert register.after(0) == ["2"]


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_happens_to_messages_the_host_ends_up_with_all_that_holds(seed: int) -> None:
    """Each want in force is carried out once, in order, and nothing twice."""
    rng = random.Random(seed)
    given, host = HostOrder(), Noting()
    given.want(act.Launch(0, RESUME, HERE))
    sent: list[HostOrder] = []
    for number in range(1, 40):
        given.number = number
        given.want(wanted(rng, number))
        sent.append(sent_order(given))
        if rng.random() < 0.6:
            host.obey(rng.choice(sent[-4:]))  # late, overtaken, doubled, or the first to come
    host.obey(given)
    host.obey(sent[0])
    host.obey(given)
    told = [args for name, args in host.done if name == "seal"]
    assert len(told) == len(set(told))
    in_force = Noting()
    in_force.obey(given)
    last = dict(host.done)
    for name, args in in_force.done:
        assert (name, args) in host.done
        if name not in ("seal", "flush", "hurry", "abandon_flush"):
            assert last[name] == args


def test_a_launch_takes_the_place_of_all_that_was_about_the_attempt_before() -> None:
    given = HostOrder()
    seal, prepare = act.Seal(0, 1, 5, 0), act.StandBy(1, StandbyOrder.READY)
    launch, kill = act.Launch(0, RESUME, HERE), act.Kill("lost")
    for action in (launch, order(1), verdict(1), seal, kill, prepare):
        given.want(action)
    again = act.Launch(1, RESUME, HERE)
    given.want(again)
    assert given.wants.after(0) == [seal, prepare, again]


def test_a_seal_is_wanted_until_it_is_answered() -> None:
    given = HostOrder()
    given.want(act.Seal(0, 1, 5, 0))
    given.seal_is_over(ev.Sealed(0, 0, 1, 6, 0))
    assert given.wants.after(0)
    given.seal_is_over(ev.SealFailed(0, 0, 1, 5, 0, "no space left"))
    assert given.wants.after(0) == []


def test_an_abandoned_flush_is_not_begun_any_more() -> None:
    given, host = HostOrder(number=1), Noting()
    given.want(act.Flush(0, 1, 5, 0, "due"))
    given.want(act.AbandonFlush(0, 1, 5, "late"))
    host.obey(given)
    assert [name for name, _ in host.done] == ["abandon_flush"]


def test_a_flush_that_becomes_urgent_is_not_begun_again() -> None:
    """It may have ended by the time at which the host hears of that."""
    given, host = HostOrder(number=1), Noting()
    given.want(act.Flush(0, 1, 5, 0, "due"))
    host.obey(given)
    given.want(act.Flush(0, 1, 5, 0, "somebody waits", urgent=True))
    given.number += 1
    host.obey(given)
    assert [name for name, _ in host.done] == ["flush", "hurry"]


def test_a_flush_that_is_over_is_begun_again_if_it_is_wanted_again() -> None:
    given, host = HostOrder(number=1), Noting()
    given.want(act.Flush(0, 1, 5, 0, "due"))
    host.obey(given)
    given.flush_is_over()
    given.want(act.Flush(0, 1, 5, 0, "again"))
    given.number += 1
    host.obey(given)
    assert [name for name, _ in host.done] == ["flush", "flush"]


def test_an_order_that_comes_while_another_is_carried_out_comes_after_it() -> None:
    """What was committed leads the ranks to an answer, and that to the next order to save."""
    given, host = HostOrder(number=1, attention=SAVING), Noting()
    given.want(act.PublishCommitted(3))
    given.want(order(1))

    def leads_to_more(_: int) -> None:
        newer = copy.deepcopy(given)
        newer.number, newer.attention = 2, CALM
        newer.want(order(2))
        host.obey(newer)

    host.publish_committed = leads_to_more  # type: ignore[method-assign]
    host.obey(given)
    assert [args[0].epoch for name, args in host.done if name == "publish_order"] == [1, 2]
    assert host.attention == CALM


def test_another_controller_numbers_its_orders_anew() -> None:
    host = Noting()
    for _ in range(2):
        given = HostOrder(number=1)
        given.want(act.Relay("no session"))
        host.obey(given)
        host.meet_controller()
    assert [name for name, _ in host.done] == ["relay", "relay"]


def test_everything_that_can_be_wanted_has_a_method() -> None:
    assert {kind.__name__ for kind in DO} >= {"Launch", "Kill", "Seal", "Flush"}


# --- reports --------------------------------------------------------------------------------


def state(**words: Any) -> RankState:
    return RankState(True, RankAnswers(**words))


def happens(rng: random.Random, report: HostReport, step: int) -> None:
    """Something that a host may have to tell next."""
    rank = rng.randrange(len(report.ranks))
    match rng.choice(("step", "step", "step", "seal", "exit", "look", "asked")):
        case "step":
            before = report.ranks[rank]
            copied = Agreed(step, 0, step) if rng.random() < 0.3 else before.answers.copied
            answers = before.answers._replace(step=max(step, before.answers.step), copied=copied)
            now = before._replace(has_session=True, answers=answers)
            report.ranks = (*report.ranks[:rank], now, *report.ranks[rank + 1 :])
        case "asked":
            before = report.ranks[rank]
            now = before._replace(has_session=True, saves_asked=before.saves_asked + 1)
            report.ranks = (*report.ranks[:rank], now, *report.ranks[rank + 1 :])
        case "seal":
            report.note(ev.Sealed(step, 0, step, step, 0))
        case "exit":
            report.note(ev.RankExited(step, 0, rank, step, Exit(signal=9)))
        case "look":
            report.note(ev.Examined(step, 0, ()))


@pytest.mark.parametrize("seed", SEEDS)
def test_reports_that_went_astray_are_made_good_by_the_next(seed: int) -> None:
    """Facts are told once and in order; of the pages the newest counts."""
    rng = random.Random(seed)
    report, reader = HostReport(), ReportReader(1, grace_ns=0)
    report.begin(0, 3, 2)
    launched(reader, 0, 3, 2)
    report.note(ev.Launched(1, 0))
    told: list[ev.Event] = []
    sent: list[HostReport] = []
    for step in range(4, 40):
        happens(rng, report, step)
        report.number += 1
        sent.append(sent_report(report))
        if rng.random() < 0.5:
            told += reader.read(0, rng.choice(sent[-4:]), step, 0)
    told += reader.read(0, report, 40, 0)
    told += reader.read(0, sent[0], 41, 0)
    assert type(told[0]) is ev.Launched
    sealed = [one.step for one in told if isinstance(one, ev.Sealed)]
    assert sealed == sorted(
        {one.step for one in report.facts.after(0) if isinstance(one, ev.Sealed)}
    )
    for rank, now in enumerate(report.ranks):
        steps = [
            one.news.step
            for one in told
            if isinstance(one, ev.Heard)
            and isinstance(one.news, news.Progress)
            and one.news.rank == rank
        ]
        assert steps == sorted(set(steps))
        assert max(steps, default=3) == now.answers.step
    joined = [one.rank for one in told if isinstance(one, ev.Joined)]
    assert sorted(joined) == [rank for rank, now in enumerate(report.ranks) if now.has_session]


def read(report: HostReport, reader: ReportReader, at_ns: int = 0) -> list[ev.Event]:
    report.number += 1
    return reader.read(0, report, at_ns, 0)


def launched(reader: ReportReader, attempt: int, step: int, ranks: int) -> None:
    """The controller has ordered it."""
    order = HostOrder()
    order.wants.newest = attempt  # each launch is a newer want
    order.want(act.Launch(attempt, ev.Resume(None, step, None), place(ranks, (0,))))
    reader.ordered(order, 0)


def begun(grace_ns: int = 0) -> tuple[HostReport, ReportReader]:
    report, reader = HostReport(), ReportReader(1, grace_ns)
    report.begin(0, 0, 1)
    launched(reader, 0, 0, 1)
    return report, reader


def test_a_dead_ranks_last_words_are_told_before_its_end() -> None:
    report, reader = begun()
    report.note(ev.Launched(0, 0))
    read(report, reader)
    report.ranks = (state(step=7, durable=Agreed(1, 0, 7)),)
    report.note(ev.RankExited(0, 0, 0, 0, Exit(signal=9)))
    report.note(ev.TreeGone(0, 0))
    kinds = [type(one).__name__ for one in read(report, reader)]
    assert kinds == ["Joined", "Heard", "Heard", "RankExited", "TreeGone"]


def test_what_is_heard_late_is_decided_on_as_of_now() -> None:
    """A save that is due is ordered ahead of where the ranks are now."""
    report, reader = begun()
    report.note(ev.Launched(5, 0))
    report.note(ev.Sealed(6, 0, 1, 3, 0))
    looked = ev.Examined(7, 0, ())
    report.note(looked)
    assert read(report, reader, 100) == [
        ev.Launched(100, 0, began_ns=5),
        ev.Sealed(100, 0, 1, 3, 0),
        looked,  # which is judged by the time at which the ranks were looked at
    ]


def test_another_attempts_pages_say_nothing_of_this_one() -> None:
    report, reader = begun()
    report.ranks = (state(step=9),)
    launched(reader, 1, 2, 1)
    assert read(report, reader) == []
    report.begin(1, 2, 1)
    assert read(report, reader) == []


def test_a_rank_that_was_told_to_stop_tells_for_how_long_there_is_time() -> None:
    report, reader = begun(grace_ns=30)
    report.note(ev.Launched(0, 0))
    report.ranks = (RankState(True, sigterms=1),)
    assert read(report, reader, 5)[-1] == ev.StopAsked(5, "SIGTERM to rank 0", 35, notice=True)
    assert read(report, reader, 6) == []


def test_seals_that_were_heard_of_are_forgotten() -> None:
    report, reader = begun()
    report.note(ev.Sealed(0, 0, 1, 3, 0))
    read(report, reader)
    report.forget_seals(lambda _: False)
    assert report.facts.after(0) == []


def test_a_save_that_every_rank_asks_for_is_told_once() -> None:
    """However late the others are heard: also when they have gone on, and when it is over."""
    report, reader = HostReport(), ReportReader(1, grace_ns=0)
    report.begin(0, 0, 3)
    launched(reader, 0, 0, 3)
    report.note(ev.Launched(0, 0))
    report.ranks = (state(), state(step=1), state())

    def asked(*ranks: int, ordered_step: int) -> list[str]:
        report.ranks = tuple(
            one._replace(saves_asked=one.saves_asked + (rank in ranks))
            for rank, one in enumerate(report.ranks)
        )
        report.number += 1
        told = reader.read(0, report, 1, ordered_step)
        return [one.source for one in told if isinstance(one, ev.SaveAsked)]

    assert asked(ordered_step=0) == []
    assert asked(0, ordered_step=0) == ["rank 0's script"]
    assert asked(1, ordered_step=1) == []
    assert asked(2, ordered_step=1) == []
    assert asked(2, ordered_step=1) == ["rank 2's script"]  # another one
    assert asked(2, ordered_step=1) == ["rank 2's script"]  # and it alone asks again


# --- on a wire ------------------------------------------------------------------------------


def some_order() -> HostOrder:
    given = HostOrder(7, Attention(is_saving=True))
    rollback = Rollback(("r1",), 5, "holdfast rollback")
    for action in (
        act.Launch(0, ev.Resume("0000-0005", 5, 0, 1, 2, 4), HERE, rollback),
        act.CarryOut(0, news.PublishOrder(1, 9, 3, "due"), 10**12),
        verdict(1),
        act.PublishCommitted(9),
        act.Relay("no session"),
        act.Kill("a rank was lost"),
        act.StandBy(1, StandbyOrder.WOKEN),
        act.Examine(0),
        act.CollectStacks(0),
        act.Profile(0, "p1", 1, 5, 10**10),
        act.Seal(0, 1, 9, 2),
        act.Flush(0, 1, 9, 2, "due"),
        act.Flush(0, 1, 9, 2, "now", urgent=True),
    ):
        given.want(action)
    return given


def some_report() -> HostReport:
    report = HostReport(3)
    report.begin(0, 5, 2)
    report.ranks = (state(step=9, copied=Agreed(1, 0, 9), loop_ended=True), RankState())
    told = RankReport("ValueError", "no", "train.py:7", "Traceback")
    for fact in (
        ev.Launched(1, 0, ev.Waited("boot", 5), began_ns=1),
        ev.LaunchFailed(1, 0, 78, "no such file", True),
        ev.RankExited(2, 0, 1, 2, Exit(code=1, report=told)),
        ev.TreeGone(3, 0),
        ev.HostLost(4, 0, "stuck"),
        ev.Suspended(5, 10**9),
        ev.Examined(6, 0, (RankLook(0, "training", 9),)),
        ev.StacksCollected(7, 0, (RankStack(0, "train.py:7"),)),
        ev.Sealed(8, 0, 1, 9, 2),
        ev.SealFailed(8, 0, 1, 8, 1, "no space left"),
        ev.Flushing(9, 0, 1, 9, 1000),
        ev.Flushed(9, 0, 1, 1, 9, of_ranks=4),
        ev.FlushFailed(9, 0, 1, 9, "no space left"),
    ):
        report.note(fact)
    lines = ("step 9", "Traceback")
    report.ended = (RankEvidence(0, -9, lines), RankEvidence(1, 1, (), "ValueError", "all", "a:7"))
    return report


def test_what_comes_out_of_a_wire_is_what_went_in() -> None:
    order, report = some_order(), some_report()
    assert len(order.wants.numbered()) == 13
    assert len(report.facts.numbered()) == 13
    there, back = sent_order(order), sent_report(report)
    assert (there.number, there.attention) == (order.number, order.attention)
    assert there.wants.numbered() == order.wants.numbered()
    assert there.wants.newest == order.wants.newest
    assert (back.number, back.attempt, back.ranks) == (report.number, report.attempt, report.ranks)
    assert back.ended == report.ended
    assert back.facts.numbered() == report.facts.numbered()
    assert encode_order(there) == encode_order(order)
    assert encode_report(back) == encode_report(report)


def spoilt(rng: random.Random, data: Any) -> Any:
    """The same with one thing changed, somewhere in it."""
    if isinstance(data, dict) and data and rng.random() < 0.9:
        key = rng.choice(list(data))
        return {**data, key: spoilt(rng, data[key])}
    if isinstance(data, list) and data and rng.random() < 0.9:
        place = rng.randrange(len(data))
        return [*data[:place], spoilt(rng, data[place]), *data[place + 1 :]]
    return rng.choice((None, "", "Launch", -1, 2**70, 1.5, [], {}, True, [[]], {"part": "Launch"}))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_spoilt_message_is_refused_or_is_another_message(seed: int) -> None:
    rng = random.Random(seed)
    for encoded, decode in (
        (encode_order(some_order()), decode_order),
        (encode_report(some_report()), decode_report),
    ):
        for _ in range(5):
            with contextlib.suppress(ValueError):
                decode(spoilt(rng, encoded))


@pytest.mark.parametrize("data", [None, 7, "order", [], {}, {"number": 1}])
def test_what_is_no_message_is_refused(data: object) -> None:
    with pytest.raises(ValueError):
        decode_order(data)
    with pytest.raises(ValueError):
        decode_report(data)


def test_what_is_as_it_is_by_default_is_not_said() -> None:
    report = HostReport(1, 0, (RankState(answers=RankAnswers(step=7)),))
    assert encode_report(report)["ranks"] == [{"answers": {"step": 7}}]
