"""The wall clock is set back and forward by hours all the time: nothing depends on it."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest
from examine import Promises, examine
from life import NAME, Life, Place, same, state_at
from recorder import Recorder

from holdfast.journal.clocks import now_ns
from holdfast.journal.control import ControlInbox, request
from holdfast.journal.lease import LeaseState, acquire, view
from holdfast.journal.recorded import load_run
from holdfast.journal.store import RunStore
from holdfast.snapshot.keep import Keep

HOUR_NS = 3_600_000_000_000
JUMPS_NS = [5 * HOUR_NS, -7 * HOUR_NS, 0, 720 * HOUR_NS, -2 * HOUR_NS]


@pytest.fixture
def wandering(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reading of the wall clock is hours away from the one before."""
    real, jumps = time.time_ns, itertools.cycle(JUMPS_NS)
    monkeypatch.setattr(time, "time_ns", lambda: real() + next(jumps))
    monkeypatch.setattr(time, "time", lambda: time.time_ns() / 1e9)


@pytest.mark.usefixtures("wandering")
def test_attempts_leases_and_checkpoints_keep_their_order(jail: Path) -> None:
    (jail / "store").mkdir()
    (jail / "scratch").mkdir()
    place, promises = Place(jail / "store", jail / "scratch"), Promises()
    for until in (2, 4, 6):
        with Recorder(jail / "unused"):  # for its fsyncs that do not wait
            state = Life(place, until, promises.told, save_every=1, keep=Keep(last=2)).live()
        assert same(state, state_at(until))
    examine(place, promises, 8)
    assert sorted(promises.attempts) == [0, 1, 2, 3]


@pytest.mark.usefixtures("wandering")
def test_the_ledger_knows_the_time_that_went_by(jail: Path) -> None:
    """Three attempts, days apart by the wall clock, and seconds apart in truth."""
    (jail / "store").mkdir()
    (jail / "scratch").mkdir()
    place = Place(jail / "store", jail / "scratch")
    began_ns = now_ns()
    for until in (2, 4, 6):
        Life(place, until, save_every=1).live()
    account = load_run(jail / "store" / NAME).account()
    assert 0 < account.elapsed_ns <= now_ns() - began_ns
    assert sum(account.kinds.values()) == account.elapsed_ns
    assert account.steps_kept == 6


def test_the_request_is_known_by_the_boots_clock(jail: Path, monkeypatch) -> None:
    began_ns = now_ns()
    identity = RunStore.at(jail).open(NAME).identity
    monkeypatch.setattr(time, "time_ns", lambda: identity.requested_unix_ns + 9 * HOUR_NS)
    assert began_ns <= RunStore.at(jail).get(NAME).identity.requested_ns() <= now_ns()


def test_a_request_of_the_future_is_of_now(jail: Path) -> None:
    """Another boot's, by a wall clock that was ahead."""
    ahead_ns = time.time_ns() + HOUR_NS
    identity = RunStore.at(jail).open(NAME, requested_unix_ns=ahead_ns).identity
    before_ns = now_ns()
    assert before_ns <= identity.requested_ns() <= now_ns()


@pytest.mark.usefixtures("wandering")
def test_a_request_reaches_its_supervisor_and_no_other(jail: Path) -> None:
    folder = RunStore.at(jail).open(NAME)
    lease = acquire(folder)
    assert view(folder).state is LeaseState.HELD
    asked = [request(folder, "save"), request(folder, "stop")]
    lease.renew()
    taken = ControlInbox(folder, lease.epoch).take()
    assert [one.number for one in taken.requests] == [one.number for one in asked]
    assert taken.ignored == ()
    lease.release()
    assert acquire(folder).epoch == lease.epoch + 1
