"""Rank 0 and the others as hosts: orders and reports over registers, in a small virtual store."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.events import Resume
from holdfast.core.exits import Exit, RankReport
from holdfast.core.hosts.order import Attention, HostOrder
from holdfast.core.hosts.placement import place
from holdfast.core.hosts.reader import ReportReader
from holdfast.core.hosts.report import HostReport, RankState
from holdfast.core.save import events as news
from holdfast.core.save.word import Agreed, Order, pack, unpack
from holdfast.journal.layout import RankPhase, Word
from holdfast.journal.writer import JournalWriter
from holdfast.session import hosts_link
from holdfast.session.channel import RankOfWorld
from holdfast.session.following import Following
from holdfast.session.hosts_link import UNSENT_NS, HostsLink
from holdfast.session.messages import LeaderSays
from holdfast.session.own_host import OwnHost
from holdfast.session.proposals import Proposals

MS = 1_000_000
SECOND_NS = 1000 * MS
BEGAN_NS = 17
FAILED = RankReport("ValueError", "no", "train.py:9", "Traceback …")

T = TypeVar("T")


class VirtualPost:
    """A `session.post.Post` without a thread: what is put there is read at once, or not at all."""

    def __init__(self, store: dict[str, bytes], key: str) -> None:
        self.store, self.hurried, self.sent, self.is_cut = store, False, 0, False
        self._listens_to = key
        self._put = 0
        self._seen: dict[str, bytes] = {}

    def put(self, key: str, value: bytes) -> int:
        self._put += 1
        if not self.is_cut:
            self.store[key] = value
            self.sent = self._put
        return self._put

    def listen(self, keys: list[str]) -> None:
        del keys

    def take(self) -> dict[str, bytes]:
        if self.is_cut:
            return {}
        fresh = {
            key: value
            for key, value in self.store.items()
            if key.startswith(self._listens_to) and self._seen.get(key) != value
        }
        self._seen |= fresh
        return fresh

    def check(self) -> None:
        pass

    def close(self, limit_s: float) -> bool:
        del limit_s
        return True


class Pair:
    """Ranks 0 and 1 in one process; the clock of rank 1 is ahead by `clock_ns`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, clock_ns: int = 0) -> None:
        self.now_ns = 100 * SECOND_NS
        self.clock_ns = clock_ns
        self.ended: list[int] = []
        self.overdue = 0
        self.created: list[Resume] = []
        self.refused: list[str] = []
        store: dict[str, bytes] = {}
        monkeypatch.setattr(hosts_link, "now_ns", lambda: self.now_ns)
        monkeypatch.setattr(Following, "_run", lambda _: None)  # its turns are ours
        self.pages = [JournalWriter.nowhere().page for _ in (0, 1)]
        own, other = (
            OwnHost(page, began_ns, lambda rank=rank: self.ended.append(rank))  # type: ignore[misc]
            for rank, page, began_ns in zip((0, 1), self.pages, (BEGAN_NS, None), strict=True)
        )
        says = LeaderSays("lead", 0, "r", 2, attempt=4, lease_epoch=2, holder={})
        self.link = HostsLink(own, RankOfWorld(0, 2, "a test"), says)
        self.link.proposals = self.proposals = Proposals(2, self.refused.append)
        self.following = Following(
            self.pages[1],
            RankOfWorld(1, 2, "a test"),
            other,
            me="f",
            run="r",
            upkeep=lambda: None,
            overdue=self._overdue,
        )
        self.posts = VirtualPost(store, "holdfast/rank"), VirtualPost(store, "holdfast/leader")
        welcome = VirtualPost(store, "holdfast/w")
        self.link._post: Any = self.posts[0]
        take = self.posts[1].take
        self.posts[1].take = lambda: take() | welcome.take()  # type: ignore[method-assign]
        self.following._post: Any = self.posts[1]
        self.order = HostOrder()
        self.reader = ReportReader(2, 0)
        self.told: list[ev.Event] = []

    def _overdue(self) -> None:
        self.overdue += 1

    def turn(self, times: int = 3, ns: int = 10 * MS) -> None:
        for _ in range(times):
            self.now_ns += ns
            self.link.turn(self.now_ns)
            self.following._turn(self.now_ns + self.clock_ns)
            self.hear(self.link.look(self.now_ns))

    def hear(self, reports: list[tuple[int, HostReport]]) -> None:
        """As the controller does."""
        for host, report in reports:
            self.told += self.reader.read(host, report, self.now_ns, 0)

    def give(self, *actions: act.Action, attention: Attention | None = None) -> None:
        for action in actions:
            self.order.want(action)
        self.order.number += 1
        self.order.attention = attention or self.order.attention
        self.reader.ordered(self.order, self.now_ns)
        self.link.obey(self.order)

    def begin(self) -> None:
        self.turn()
        self.give(act.Launch(4, Resume("0000-000000000004", 4, 0), place(2, [0, 1])))
        self.turn()

    def word(self, rank: int, word: Word) -> Agreed:
        return unpack(self.pages[rank].load(word))

    def told_of(self, kind: type[T]) -> list[T]:
        return [one for one in self.told if isinstance(one, kind)]

    def states(self) -> list[RankState]:
        """How the ranks stand."""
        return [report.ranks[0] for _, report in self.link.reports()]


def save(epoch: int, step: int, flags: int = 0, by_ns: int | None = None) -> act.CarryOut:
    return act.CarryOut(4, news.PublishOrder(epoch, step, flags, "a test"), by_ns)


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Pair:
    return Pair(monkeypatch)


def test_what_is_proposed_is_read_by_both_and_then_they_begin(pair: Pair) -> None:
    resume = Resume("0000-000000000004", 4, 0, 2)
    pair.proposals.propose(resume, lambda: pair.created.append(resume))
    pair.turn()
    says = pair.following.leader.says
    assert says is not None
    assert (says.choice, says.set_name, says.set_step) == (1, resume.set_name, 4)
    assert says.skip_batches == 2
    pair.proposals.answer(0, 1, None)
    pair.following.answer(1, None)
    pair.turn()
    assert pair.created == [resume]
    assert not pair.following.has_begun
    pair.begin()
    assert pair.following.has_begun
    assert [report.attempt for _, report in pair.link.reports()] == [4, 4]
    assert [one.has_session for one in pair.states()] == [True, True]
    (launched,) = pair.told_of(ev.Launched)
    assert launched.began_ns == BEGAN_NS


def test_a_set_that_rank_1_cannot_read_is_named(pair: Pair) -> None:
    pair.proposals.propose(Resume("x", 4, 0), lambda: None)
    pair.turn()
    pair.following.answer(1, "x: a flipped bit")
    pair.turn()
    assert pair.refused == ["rank 1: x: a flipped bit"]


def test_an_order_reaches_the_others_before_it_is_ours(pair: Pair) -> None:
    pair.begin()
    pair.posts[0].is_cut = True
    pair.give(save(1, 7))
    pair.turn(times=1)
    assert pair.word(0, Word.ORDER).step == 0
    pair.turn(times=1, ns=2 * UNSENT_NS)
    assert pair.word(0, Word.ORDER).step == 0  # however long that takes
    pair.posts[0].is_cut = False
    pair.give(save(1, 7))
    pair.turn()
    assert [pair.word(rank, Word.ORDER).step for rank in (0, 1)] == [7, 7]


def test_where_nothing_can_be_sent_a_verdict_is_ours_and_so_is_leaving(pair: Pair) -> None:
    pair.begin()
    pair.posts[0].is_cut = True
    verdict = news.PublishVerdict(1, 7, Order.COMMITTED, "a test")
    pair.give(act.CarryOut(4, verdict), save(2, 7, Order.LEAVE))
    pair.turn(times=1)
    assert pair.pages[0].load(Word.COMMITTED) == 4
    pair.turn(times=1, ns=2 * UNSENT_NS)
    assert pair.pages[0].load(Word.COMMITTED) == 7
    assert pair.word(0, Word.ORDER).flags & Order.LEAVE
    pair.give(act.Kill("a test"))
    pair.turn(times=1, ns=2 * UNSENT_NS)
    pair.turn(times=1, ns=2 * UNSENT_NS)
    assert pair.ended == [0]


def test_the_answer_of_rank_1_is_news_at_once_and_its_progress_four_times_a_second(
    pair: Pair,
) -> None:
    pair.begin()
    pair.turn(times=40)
    pair.pages[1].store(Word.STEP, 9)
    pair.turn(times=1)
    assert pair.states()[1].answers.step == 4
    pair.pages[1].store(Word.COPIED, pack(1, 9))
    pair.turn(times=2)
    assert pair.states()[1].answers.copied == Agreed(1, 0, 9)
    pair.turn(times=30)
    assert pair.states()[1].answers.step == 9


def test_a_sigterm_counts_from_when_it_came_on_whichever_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair = Pair(monkeypatch, clock_ns=5000 * SECOND_NS)
    pair.begin()
    by_ns = pair.now_ns + 30 * SECOND_NS
    theirs = by_ns + pair.clock_ns
    pair.following.stop_asked(ev.StopAsked(1, "SIGTERM to rank 1", theirs, notice=True))
    pair.turn()
    (asked,) = pair.told_of(ev.StopAsked)
    assert asked.deadline_ns == by_ns + 10 * MS  # the message's way
    pair.give(save(1, 7, Order.STOP, by_ns), attention=Attention(True, True, by_ns))
    pair.turn()
    assert pair.pages[0].load(Word.DEADLINE_AT) == by_ns
    assert pair.pages[1].load(Word.DEADLINE_AT) == theirs
    assert pair.overdue == 0
    pair.turn(times=2, ns=31 * SECOND_NS)
    assert pair.overdue > 0


def test_a_rank_that_leaves_says_how(pair: Pair) -> None:
    pair.begin()
    left = ev.RankExited(1, -1, 1, pair.now_ns, Exit(code=75))
    pair.following.goodbye(left, 1)
    pair.turn(times=1)
    (told,) = pair.told_of(ev.RankExited)
    assert (told.attempt, told.rank, told.exit) == (4, 1, Exit(code=75))
    assert pair.link.are_gone
    assert not pair.told_of(ev.TreeGone)  # rank 0 is there


@pytest.mark.parametrize("has_begun", [True, False])
def test_a_rank_that_leaves_as_it_begins_is_one_that_began(pair: Pair, has_begun: bool) -> None:
    """Whether rank 0 heard that it had: it may end before it has seen the order."""
    pair.turn()
    pair.following.goodbye(ev.RankExited(1, -1, 1, pair.now_ns, Exit(code=1)), 1)
    pair.give(act.Launch(4, Resume(None, 0, None), place(2, [0, 1])))
    if has_begun:
        pair.link.turn(pair.now_ns)
    pair.turn(times=1)
    kinds = [type(one) for one in pair.told]
    assert kinds.index(ev.Launched) < kinds.index(ev.RankExited)


@pytest.mark.parametrize("how", [Exit(code=1, report=FAILED), None])
def test_when_rank_0_ends_nothing_more_is_heard_of_the_others(pair: Pair, how: Exit | None) -> None:
    pair.begin()
    pair.hear(pair.link.last_reports(pair.now_ns, how))
    assert [one.exit for one in pair.told_of(ev.RankExited)] == ([] if how is None else [how])
    assert isinstance(pair.told[-1], ev.TreeGone)
    assert [(one.rank, one.traceback) for one in pair.reader.ended] == [
        (0, None if how is None else FAILED.traceback),
        (1, None),
    ]


def test_a_rank_that_is_silent_is_waited_for_until_others_wait(pair: Pair) -> None:
    pair.begin()
    pair.posts[1].is_cut = True
    pair.turn(times=2, ns=100 * SECOND_NS)
    assert not pair.told_of(ev.RankExited)
    pair.pages[0].store(Word.PHASE, RankPhase.LOOP_ENDED)
    pair.turn(times=1)
    pair.turn(times=3, ns=20 * SECOND_NS)
    (told,) = pair.told_of(ev.RankExited)
    assert (told.rank, told.exit) == (1, Exit())


def test_to_end_the_run_ends_every_process(pair: Pair) -> None:
    pair.begin()
    pair.give(act.Kill("the deadline came"))
    pair.turn()
    assert sorted(pair.ended) == [0, 1]


def test_a_leader_that_ends_is_not_waited_for(pair: Pair) -> None:
    pair.begin()
    assert pair.pages[1].load(Word.SUPERVISOR_ALIVE_AT) > SECOND_NS
    pair.link.close(1)
    pair.turn(times=1)
    assert pair.pages[1].load(Word.SUPERVISOR_ALIVE_AT) == 1
