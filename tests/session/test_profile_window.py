"""A window of a rank's own: what is done in which thread, and what a failure costs."""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.journal.clocks import boot_id, now_ns
from holdfast.journal.layout import Identity
from holdfast.journal.profile_door import ProfileWish, close_door, knock, make_door, wait_at
from holdfast.journal.store import RunStore
from holdfast.journal.writer import JournalWriter
from holdfast.profiles.capture import Capture, capture_path, read_capture
from holdfast.session import profile_window
from holdfast.session.boundary import Boundary
from holdfast.session.profile_window import ProfiledRank, answer

pytestmark = pytest.mark.real

LIMIT_S = 60.0


class Saves:
    """Nothing is saved."""

    def prepare(self, state: Any, *, is_external: bool) -> None: ...


@dataclass
class MadeProfiler:
    """Notes by whom it is called; fails where it is told to."""

    is_of_thread: bool
    fails: dict[str, Exception] = field(default_factory=dict)
    framework: str = "torch"
    version: str = "0"
    called: list[tuple[str, int]] = field(default_factory=list)
    size: int = 100
    settled_ns: list[int] = field(default_factory=list)

    def _call(self, name: str) -> None:
        self.called.append((name, threading.get_ident()))
        if name in self.fails:
            raise self.fails[name]

    def start(self) -> None:
        self._call("start")

    def settle(self) -> None:
        self._call("settle")
        self.settled_ns.append(now_ns())

    def stop(self) -> None:
        self._call("stop")

    def write(self, path: Path) -> None:
        self._call("write")
        path.write_bytes(b"x" * self.size)


class Trained:
    """A rank that trains in the test's thread while it is profiled in another."""

    def __init__(self, folder: Path) -> None:
        self.folder = RunStore.at(folder / "store").create("r")
        self.folder.attempt_dir(0).mkdir()
        identity = Identity("r", 0, "i", 0, "host", 0, boot_id())
        self.writer = JournalWriter.create(folder / "rank-00000.hfj", identity)
        self.boundary = Boundary(self.writer, Saves())  # type: ignore[arg-type]
        self.closing = threading.Event()
        self.step = 0
        attachment = SimpleNamespace(folder=self.folder, attempt=0, rank=0, writer=self.writer)
        self.rank = ProfiledRank(attachment, self.boundary, None, self.closing)  # type: ignore[arg-type]
        self.boundary.begin(1, 10**6, 1)
        self.done()

    def done(self) -> None:
        self.step += 1
        self.boundary.done(self.step)

    def profiled(self, steps: int = 3, *, until: Callable[[], bool] = lambda: False,
                 limit_s: float = 60.0) -> Capture:  # fmt: skip
        """Steps until the answer is there, or until nothing more is done."""
        wish = ProfileWish("p1", steps, limit_s)
        thread = threading.Thread(target=answer, args=(self.rank, wish), kwargs={"is_first": True})
        thread.start()
        while thread.is_alive():
            if until():
                thread.join(0.01)
            else:
                self.done()
                thread.join(0.001)
        found = read_capture(capture_path(self.folder, 0, "p1", 0))
        assert found is not None
        return found


@pytest.fixture
def trained(tmp_path: Path) -> Iterator[Trained]:
    made = Trained(tmp_path)
    yield made
    made.writer.close()


@pytest.fixture
def profiler(monkeypatch: pytest.MonkeyPatch) -> MadeProfiler:
    made = MadeProfiler(is_of_thread=True)
    monkeypatch.setattr(profile_window, "find_profiler", lambda _: made)
    return made


def test_a_profiler_of_the_trainings_thread_is_called_by_it_alone(
    trained: Trained, profiler: MadeProfiler
) -> None:
    found = trained.profiled(3)
    assert found.refused == found.note == ""
    steps = [step for step, _ in found.edges]
    assert steps == list(range(steps[0], steps[0] + 4))
    mine = threading.get_ident()
    assert [(name, who == mine) for name, who in profiler.called] == [
        ("start", True), ("settle", True), ("settle", True), ("stop", True), ("write", False),
    ]  # fmt: skip


def test_a_loop_that_a_framework_drives_has_boundaries_too(
    trained: Trained, profiler: MadeProfiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def record(step: int) -> None:
        trained.boundary.record(step, 0)

    monkeypatch.setattr(trained.boundary, "done", record)
    assert trained.profiled(2).refused == ""
    called = [name for name, _ in profiler.called]
    assert called == ["start", "settle", "settle", "stop", "write"]


def test_another_is_called_by_the_ranks_own(trained: Trained, profiler: MadeProfiler) -> None:
    profiler.is_of_thread = False
    assert trained.profiled(3).refused == ""
    mine = threading.get_ident()
    assert [(name, who == mine) for name, who in profiler.called] == [
        ("start", False), ("settle", True), ("settle", True), ("stop", False), ("write", False),
    ]  # fmt: skip


def test_the_edges_come_once_the_device_has_caught_up(
    trained: Trained, profiler: MadeProfiler
) -> None:
    edges = trained.profiled(3).edges
    assert len(edges) == 4
    opened_ns, closed_ns = profiler.settled_ns
    assert opened_ns <= edges[0][1] < edges[1][1] < edges[2][1] < closed_ns <= edges[3][1]


@pytest.mark.parametrize("is_of_thread", [True, False])
@pytest.mark.parametrize(
    ("where", "error", "words"),
    [
        ("start", RuntimeError("already on"), "does not start"),
        ("stop", ValueError("odd"), "does not stop"),
        ("write", OSError(errno.ENOSPC, "No space left on device"), "No space left"),
        ("write", TypeError("odd"), "failed"),
    ],
)
def test_what_fails_costs_the_profile_and_no_step(
    trained: Trained,
    profiler: MadeProfiler,
    where: str,
    error: Exception,
    words: str,
    is_of_thread: bool,
) -> None:
    profiler.is_of_thread, profiler.fails[where] = is_of_thread, error
    assert words in trained.profiled(2).refused
    trained.done()
    profiler.fails.clear()
    assert trained.profiled(2).refused == ""


def test_a_trace_that_is_too_large_is_not_kept(
    trained: Trained, profiler: MadeProfiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile_window, "MAX_TRACE_BYTES", 99)
    assert "profile fewer steps" in trained.profiled(2).refused
    assert not list(trained.folder.path.rglob("*.gz"))


def test_a_loop_that_ends_stops_the_profiler_and_tells_what_there_is(
    trained: Trained, profiler: MadeProfiler
) -> None:
    def ends() -> bool:
        """Some steps after the profiler has started, the loop is over."""
        if profiler.called and not ended:
            for _ in range(5):
                trained.done()
            trained.boundary.close_steps()
            ended.append(True)
        return bool(ended)

    ended: list[bool] = []
    found = trained.profiled(100, until=ends)
    assert "the loop ended after" in found.note + found.refused
    called = [(name, who) for name, who in profiler.called if name != "settle"]
    assert [name for name, _ in called][:2] == ["start", "stop"]
    assert called[1][1] == threading.get_ident()


def test_no_step_in_time(trained: Trained, profiler: MadeProfiler) -> None:
    found = trained.profiled(3, until=lambda: True, limit_s=0.1)
    assert "no step ended in time" in found.refused
    assert profiler.called == []
    trained.done()
    assert profiler.called == []  # what was given up is not done later


def test_a_door_is_open_as_long_as_somebody_waits(tmp_path: Path) -> None:
    journal = tmp_path / "rank-00000.hfj"
    wish = ProfileWish("p1", 5, 60.0)
    assert not knock(journal, wish)
    door = make_door(journal)
    assert door is not None
    assert not knock(journal, wish)  # nobody waits
    heard: list[ProfileWish] = []
    thread = threading.Thread(target=lambda: heard.extend(wait_at(door)))
    thread.start()
    while not knock(journal, wish):
        thread.join(0.001)
    thread.join()
    assert heard == [wish]


def test_who_waits_at_a_door_that_closes_comes_back(tmp_path: Path) -> None:
    for _ in range(50):  # before, while and after it begins to wait
        door = make_door(tmp_path / "rank-00000.hfj")
        assert door is not None

        def wait(door: Path = door) -> None:
            with contextlib.suppress(FileNotFoundError):
                assert wait_at(door) == []

        thread = threading.Thread(target=wait)
        thread.start()
        close_door(door)
        thread.join(LIMIT_S)
        assert not thread.is_alive()
