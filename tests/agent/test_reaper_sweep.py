"""When the reaper says that something survives SIGKILL."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.agent.reaper import loop
from holdfast.agent.reaper.loop import Reaper
from holdfast.agent.reaper.processes import STUCK_AFTER_S


@pytest.mark.parametrize(("left", "is_said"), [([], False), ([17], True)])
def test_only_what_still_lives_is_stuck(
    monkeypatch: pytest.MonkeyPatch, left: list[int], is_said: bool
) -> None:
    """A process that the kernel takes apart, on a busy machine for long, is not."""
    said: list[tuple[str, dict[str, Any]]] = []
    now_s = 100.0
    monkeypatch.setattr(loop.time, "monotonic", lambda: now_s)
    monkeypatch.setattr(loop, "descendants", lambda _: left)
    monkeypatch.setattr(loop, "signal_to", lambda *_: None)
    monkeypatch.setattr(loop, "has_children", lambda: True)
    monkeypatch.setattr(loop, "report", lambda event, **fields: said.append((event, fields)))
    monkeypatch.setattr(Reaper, "reap", lambda _: None)
    reaper = Reaper(guard=1)
    reaper.kill()
    assert not reaper.sweep()
    assert not said
    now_s += STUCK_AFTER_S + 1
    assert not reaper.sweep()
    assert said == ([("stuck", {"pids": left})] if is_said else [])
