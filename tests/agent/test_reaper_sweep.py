"""When the reaper says that something survives SIGKILL."""

from __future__ import annotations

import pytest

from holdfast.agent.reaper import loop, processes
from holdfast.agent.reaper.loop import Reaper
from holdfast.agent.reaper.processes import BUSY_LIMIT_S, STUCK_AFTER_S


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> Killed:
    return Killed(monkeypatch)


class Killed:
    """A reaper that has killed its tree, what is left of it, and what the reaper says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left: list[int] = []
        self.in_kernel: set[int] = set()
        self.now_s = 100.0
        self.said: list[tuple[str, list[int]]] = []
        monkeypatch.setattr(loop.time, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(loop, "descendants", lambda _: self.left)
        monkeypatch.setattr(loop, "signal_to", lambda *_: None)
        monkeypatch.setattr(loop, "has_children", lambda: True)
        say = lambda event, pids: self.said.append((event, pids))  # noqa: E731
        monkeypatch.setattr(processes, "report", say)
        monkeypatch.setattr(Reaper, "reap", lambda _: None)
        monkeypatch.setattr(processes, "_waits_in_kernel", lambda pid: pid in self.in_kernel)
        self.reaper = Reaper(guard=1)
        self.reaper.kill()

    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        assert not self.reaper.sweep()


def test_what_the_kernel_takes_apart_is_not_stuck(killed: Killed) -> None:
    """On a busy machine that takes long."""
    killed.wait(STUCK_AFTER_S + 1)
    assert not killed.said


def test_what_waits_in_the_kernel_is_stuck(killed: Killed) -> None:
    killed.left, killed.in_kernel = [17, 18], {18}
    killed.wait(0)
    assert not killed.said
    killed.wait(STUCK_AFTER_S + 1)
    killed.wait(STUCK_AFTER_S + 1)
    assert killed.said == [("stuck", [18])]


def test_what_gets_no_processor_is_waited_for_and_given_up_at_last(killed: Killed) -> None:
    killed.left = [17]
    while killed.now_s < 100.0 + BUSY_LIMIT_S:
        killed.wait(1.0)
    assert set(map(str, killed.said)) == {"('busy', [17])"}
    assert len(killed.said) == BUSY_LIMIT_S // (STUCK_AFTER_S + 1)
    killed.wait(STUCK_AFTER_S + 1)
    assert killed.said[-1] == ("stuck", [17])
