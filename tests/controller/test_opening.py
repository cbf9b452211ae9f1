"""What a start learns from the store: how the run has failed before, under whatever supervisor."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from holdfast.controller import opening
from holdfast.core.events import OwnFailure
from holdfast.core.exits import Exit, ExitCause, signature
from holdfast.journal.attempts import AttemptEnd, create_attempt, end_attempt
from holdfast.journal.store import RunFolder, RunStore

S = 1_000_000_000
HOUR_NS = 3600 * S
UNIX_NS, HERE_NS = 1_700_000_000 * S, 10**15  # now, by either clock
SIGNATURE = signature(ExitCause.USER_ERROR, Exit(code=1))


@pytest.fixture(autouse=True)
def _clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "time", SimpleNamespace(time_ns=lambda: UNIX_NS))
    monkeypatch.setattr(opening, "now_ns", lambda: HERE_NS)


def ended(folder: RunFolder, number: int, cause: str, own: str = "", ago_s: float = 0.0) -> None:
    create_attempt(folder, number, parent=None, resume_step=0, restore_set=None)
    at_ns = UNIX_NS - round(ago_s * S)
    end_attempt(folder, number, AttemptEnd(cause, cause, (1,), at_ns, own_signature=own))


def test_what_the_script_did_of_late_counts_on(tmp_path: Path) -> None:
    folder = RunStore(tmp_path).create("r")
    ended(folder, 0, "failed", SIGNATURE, ago_s=7200)  # long ago
    ended(folder, 1, "failed", SIGNATURE, ago_s=60)
    ended(folder, 2, "killed", ago_s=50)  # nothing of its own
    ended(folder, 3, "host_lost", ago_s=45)
    ended(folder, 4, "preempted", ago_s=40)  # and no failure at all
    ended(folder, 5, "failed", SIGNATURE, ago_s=30)
    event = opening.opened(folder, HOUR_NS)
    assert (event.next_attempt, event.failures_seen, event.memory_lost) == (6, 5, 1)
    assert event.own_failures == (
        OwnFailure(1, HERE_NS - 60 * S, SIGNATURE),
        OwnFailure(5, HERE_NS - 30 * S, SIGNATURE),
    )


def test_a_run_that_is_new_has_no_past(tmp_path: Path) -> None:
    event = opening.opened(RunStore(tmp_path).create("r"), HOUR_NS)
    assert (event.next_attempt, event.high_water, event.failures_seen) == (0, 0, 0)
    assert (event.own_failures, event.wishes) == ((), ())
