"""Listening without a network: files, FIFOs, signals, and sources that break."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.config.trusted import own_uids
from holdfast.core.notices.board import Board, Notice, NoticeAction, NoticeState
from holdfast.notices import fetch, listener, protocol, registry
from holdfast.notices.protocol import Clocks, News, SourceSurroundings, Tools, Trouble

S = 10**9
GRACE_NS = 30 * S


class Time:
    """Virtual: a sleep is over when everybody sleeps, and then so much later."""

    def __init__(self, *, limit: int = 200) -> None:
        self.now_ns = 100 * S
        self.sleeps: list[float] = []
        self._limit = limit
        self.hooks: dict[int, Callable[[], object]] = {}

    def clock(self) -> Clocks:
        return Clocks(self.now_ns, 1_800_000_000 * S + self.now_ns)

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now_ns += round(seconds * S)
        if hook := self.hooks.pop(len(self.sleeps), None):
            hook()
        if len(self.sleeps) >= self._limit:
            raise asyncio.CancelledError
        await asyncio.sleep(0)


class ListenerInTime:
    """What a source tells, in virtual time."""

    def __init__(self, time: Time) -> None:
        self.time, self.notices, self.said = time, [], []

    def listen(self, text: str, **lent: object) -> None:
        (one,) = registry.wanted(text, SourceSurroundings())
        watched = listener.Watched(
            one,
            SourceSurroundings(),
            clock=self.time.clock,
            heard=self.notices.append,
            say=lambda level, words: self.said.append((level, words)),
            grace_ns=GRACE_NS,
            sleep=self.time.sleep,
            **lent,
            jitter=lambda: 0.5,
        )
        self.standing = lambda: watched.standing
        asyncio.run(watched.run())


@pytest.fixture
def watching() -> ListenerInTime:
    return ListenerInTime(Time(limit=30))


def test_a_file_is_told_when_it_is_touched_and_withdrawn_when_it_is_gone(
    tmp_path: Path, watching: ListenerInTime
) -> None:
    path = tmp_path / "notice"
    watching.time.hooks = {5: path.touch, 15: path.unlink}
    watching.listen(f"file:{path}")
    told, over = watching.notices
    assert (told.action, told.lead_ns, told.words) == (NoticeAction.TERMINATE, GRACE_NS, str(path))
    assert (over.state, over.key) == (NoticeState.WITHDRAWN, told.key)
    assert watching.said == []


def test_a_file_that_is_written_again_tells_its_new_deadline(
    tmp_path: Path, watching: ListenerInTime
) -> None:
    path = tmp_path / "notice"
    path.write_text("120")
    unix_ns = watching.time.clock().unix_ns
    os.utime(path, ns=(unix_ns, unix_ns))
    watching.time.hooks = {10: lambda: path.write_text("2100-01-01T00:00:00+00:00")}
    watching.listen(f"file:{path}")
    first, second = watching.notices
    assert first.deadline_ns == (100 + 120) * S
    assert second.deadline_ns > first.deadline_ns


def test_a_file_left_from_an_earlier_run_says_nothing(
    tmp_path: Path, watching: ListenerInTime
) -> None:
    path = tmp_path / "notice"
    path.touch()
    watching.listen(f"file:{path}")
    assert watching.notices == []


@pytest.mark.parametrize("text", ["", '{"action": "terminate"}'])
def test_a_file_that_was_touched_since_somebody_listens_counts_from_then(
    tmp_path: Path, watching: ListenerInTime, text: str
) -> None:
    path = tmp_path / "notice"
    path.write_text(text)
    unix_ns = watching.time.clock().unix_ns - 12 * S
    os.utime(path, ns=(unix_ns, unix_ns))
    watching.listen(f"file:{path}", since_unix_ns=unix_ns)
    (told,) = watching.notices
    assert told.lead_ns == GRACE_NS
    assert 12 * S <= told.unseen_ns <= 13 * S
    assert Board().take(told)[0].announcements[0].deadline_ns == (100 - 12 + 30) * S


def test_a_file_touched_before_anybody_listened_says_nothing(
    tmp_path: Path, watching: ListenerInTime
) -> None:
    path = tmp_path / "notice"
    path.touch()
    unix_ns = watching.time.clock().unix_ns
    os.utime(path, ns=(unix_ns, unix_ns))
    watching.listen(f"file:{path}", since_unix_ns=unix_ns + 1)
    assert watching.notices == []


@pytest.mark.parametrize("text", ["60", '{"deadline": 60}', '{"action": "reboot"}'])
@pytest.mark.parametrize("began_s_ago", [None, 30])
def test_a_file_whose_time_was_over_before_anybody_listened_says_nothing(
    tmp_path: Path, watching: ListenerInTime, text: str, began_s_ago: int | None
) -> None:
    path = tmp_path / "notice"
    path.write_text(text)
    unix_ns = watching.time.clock().unix_ns
    os.utime(path, ns=(unix_ns - 100 * S, unix_ns - 100 * S))
    since_unix_ns = None if began_s_ago is None else unix_ns - began_s_ago * S
    watching.listen(f"file:{path}", since_unix_ns=since_unix_ns)
    assert watching.notices == []


def test_a_file_whose_time_came_since_somebody_listens_is_told(
    tmp_path: Path, watching: ListenerInTime
) -> None:
    path = tmp_path / "notice"
    path.write_text("60")
    unix_ns = watching.time.clock().unix_ns
    os.utime(path, ns=(unix_ns - 100 * S, unix_ns - 100 * S))
    watching.listen(f"file:{path}", since_unix_ns=unix_ns - 50 * S)
    (told,) = watching.notices
    assert told.deadline_ns is not None
    assert told.deadline_ns < told.received_ns


def write_notice(path: Path) -> None:
    path.write_text("120")
    path.chmod(0o644)


def make_fifo(path: Path) -> None:
    os.mkfifo(path)
    path.chmod(0o622)


@pytest.mark.parametrize(
    ("arrange", "words"),
    [
        (lambda path: (path.touch(), path.chmod(0o666)), "everybody may write"),
        (lambda path: (write_notice(path), path.rename(path.with_name("x")),
                       path.symlink_to("x")), "is a link"),
        (lambda path: (write_notice(path), path.parent.chmod(0o777)), "everybody may write"),
        (lambda path: path.parent.chmod(0o777), "everybody may write"),  # there is none yet
        (make_fifo, "everybody may write"),
    ],
)  # fmt: skip
def test_who_trusts_not_everybody_takes_no_notice_that_anybody_may_give(
    tmp_path: Path, watching: ListenerInTime, arrange: Callable[[Path], object], words: str
) -> None:
    path = tmp_path / "own" / "notice"
    path.parent.mkdir(mode=0o755)
    arrange(path)
    watching.listen(f"file:{path}", trusted_uids=own_uids(), since_unix_ns=0)
    assert watching.notices == []
    ((level, said),) = watching.said  # it goes on, and is said once
    assert (level, words in said) == ("warning", True)
    assert "no notice is taken from" in said
    assert watching.standing().failures > 3


@pytest.mark.parametrize("mode", [0o755, 0o1777])
def test_who_trusts_not_everybody_takes_its_own_notice(
    tmp_path: Path, watching: ListenerInTime, mode: int
) -> None:
    path = tmp_path / "own" / "notice"
    path.parent.mkdir()
    path.parent.chmod(mode)
    watching.time.hooks = {5: lambda: write_notice(path)}
    watching.listen(f"file:{path}", trusted_uids=own_uids())
    assert len(watching.notices) == 1
    assert watching.said == []


def test_a_file_that_is_being_written_is_read_when_it_is_whole(
    tmp_path: Path, watching: ListenerInTime
) -> None:
    path = tmp_path / "notice"
    watching.time.hooks = {5: path.touch, 6: lambda: path.write_text("60")}
    watching.listen(f"file:{path}")
    assert [one.deadline_ns is not None for one in watching.notices] == [True]


def test_nonsense_in_a_file_is_said_once(tmp_path: Path, watching: ListenerInTime) -> None:
    path = tmp_path / "notice"
    path.write_text("at noon")
    watching.listen(f"file:{path}")
    assert watching.notices == []
    ((level, words), *_) = watching.said
    assert level == "warning"
    assert "says 'at noon', which is no notice" in words


def test_a_fifo_takes_a_notice_a_line(tmp_path: Path, watching: ListenerInTime) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)

    def write() -> None:
        with path.open("w") as fifo:
            fifo.write('{"id": "a", "deadline": 50}\n{"id": "a", "state": "withdrawn"}\n')

    watching.time.hooks = {3: write}
    watching.listen(f"file:{path}")
    assert [one.state for one in watching.notices] == [NoticeState.SCHEDULED, NoticeState.WITHDRAWN]
    assert watching.notices[0].key == watching.notices[1].key


def test_no_line_of_a_fifo_is_lost_by_another_that_is_no_notice(
    tmp_path: Path, watching: ListenerInTime
) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    lines = ["50", "at noon", *(f'{{"id": "{n}", "deadline": 50}}' for n in range(500))]
    watching.time.hooks = {3: lambda: path.write_text("\n".join(lines))}
    watching.listen(f"file:{path}")
    assert [one.event_id for one in watching.notices] == ["", *map(str, range(500))]
    assert "says 'at noon'" in watching.said[0][1]
    assert watching.standing().failures == 1


def test_a_fifo_that_is_made_anew_is_heard(tmp_path: Path, watching: ListenerInTime) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)

    def make_anew() -> None:
        path.unlink()
        os.mkfifo(path)

    watching.time.hooks = {3: make_anew, 6: lambda: path.write_text("50")}
    watching.listen(f"file:{path}")
    assert len(watching.notices) == 1


def test_a_signal_says_how_much_time_there_is_and_says_it_once() -> None:
    time = Time()
    tools = Tools(time.clock, time.sleep)
    (one,) = registry.wanted("signal:usr2=120", SourceSurroundings())
    source = one.make(tools, SourceSurroundings())
    source.arrived(signal.SIGUSR2)

    async def hear() -> list[Notice]:
        told: list[Notice] = []
        async for news in source.watches[0]():
            if not news:
                continue
            told += news
            time.now_ns += 10 * S
            source.arrived(signal.SIGUSR2)  # Slurm sends two
            time.now_ns += 200 * S
            source.arrived(signal.SIGUSR2)
            if len(told) == 2:
                return told
        return told

    first, second = asyncio.run(asyncio.wait_for(hear(), 60))
    assert (first.deadline_ns, first.words) == (220 * S, "SIGUSR2")
    assert first.key != second.key
    assert second.deadline_ns == (100 + 210 + 120) * S


def test_a_server_that_never_waits_is_not_asked_without_end(
    watching: ListenerInTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of its answers comes at once, and has an etag of its own."""
    asked: list[str] = []

    async def answer(_: object, target: str, **__: object) -> fetch.HttpAnswer:
        asked.append(target)
        if len(asked) > 1000:
            raise asyncio.CancelledError
        headers = {"metadata-flavor": "Google", "etag": str(len(asked))}
        return fetch.HttpAnswer(200, headers, b"NONE")

    monkeypatch.setattr(fetch, "fetch", answer)
    watching.listen("gce:http://127.0.0.1:9")
    assert len(asked) < 300


class Broken:
    """Fails, tells, fails again: with a bug of ours the second time."""

    name = "broken"

    def __init__(self) -> None:
        self.watches, self.tries = (self._watch,), 0

    async def _watch(self) -> News:
        self.tries += 1
        if self.tries in (1, 2):
            raise Trouble("nobody is there")
        if self.tries == 5:
            raise asyncio.CancelledError
        yield (Notice("broken", NoticeAction.REBOOT, self.tries),)
        raise RuntimeError("a bug")


class Wanted(registry.WantedSource):
    """A source that is already there."""

    source: protocol.NoticeSource

    def make(self, tools: Tools, around: SourceSurroundings) -> protocol.NoticeSource:
        return self.source


def watched_until_cancelled(
    watching: ListenerInTime, source: protocol.NoticeSource
) -> listener.Watched:
    class This(Wanted):
        pass

    This.source = source
    watched = listener.Watched(
        This("gce", "", "as set"),
        SourceSurroundings(),
        clock=watching.time.clock,
        heard=watching.notices.append,
        say=lambda level, words: watching.said.append((level, words)),
        sleep=watching.time.sleep,
        jitter=lambda: 1.0 - 1e-9,
    )
    asyncio.run(watched.run())
    return watched


def test_whatever_a_source_does_is_survived_and_a_notice_is_told_once(
    watching: ListenerInTime,
) -> None:
    watched = watched_until_cancelled(watching, Broken())
    assert len(watching.notices) == 1
    assert [level for level, _ in watching.said] == [
        "warning",
        "info",
        "warning",
        "info",
        "warning",
    ]
    assert "nobody is there" in watching.said[0][1]
    assert "RuntimeError: a bug" in watching.said[2][1]
    assert watched.standing.failures == 4
    # Each wait is longer, and the first after an answer short again.
    assert watching.time.sleeps == pytest.approx([3, 5, 3, 3], rel=1e-6)


class HalfBroken:
    """Two of its keys never work, and say so with the same words; the third is in order."""

    name = "half-broken"

    def __init__(self, time: Time) -> None:
        self.time, self.asked = time, 0
        self.watches = (self._broken, self._fine, lambda: self._broken())

    async def _broken(self) -> News:
        raise Trouble("it answers with status 500")
        yield ()

    async def _fine(self) -> News:
        while True:
            self.asked += 1
            yield (Notice("gce", NoticeAction.REBOOT, self.time.now_ns, event_id=str(self.asked)),)
            await self.time.sleep(0.5)


def test_the_trouble_of_one_watch_stops_no_other_and_is_said_once(watching: ListenerInTime) -> None:
    source = HalfBroken(watching.time)
    watched = watched_until_cancelled(watching, source)
    assert source.asked >= 8  # of 30 sleeps in all
    assert len(watching.notices) == source.asked
    assert [level for level, _ in watching.said] == ["warning"]
    assert watched.standing.has_answered
    assert watched.standing.trouble == "it answers with status 500"


@pytest.mark.parametrize("name", ["aws", "azure", "gce"])
def test_a_metadata_server_in_trouble_is_asked_again_within_the_shortest_warning(
    watching: ListenerInTime, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_ns: list[int] = []

    async def no_answer(*_: object, **__: object) -> fetch.HttpAnswer:
        asked_ns.append(watching.time.now_ns)
        raise Trouble("nobody is there")

    monkeypatch.setattr(fetch, "fetch", no_answer)
    watching.listen(f"{name}:http://127.0.0.1:9")
    assert len(asked_ns) > 10
    assert max(watching.time.sleeps) <= 5
    assert min(watching.time.sleeps) >= 1
    assert len(set(watching.time.sleeps)) > 1
