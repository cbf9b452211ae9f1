"""An agent that looks for its controller finds somebody who cannot be it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from holdfast.agent import controller_watch
from holdfast.agent.controller_watch import (
    REFUSED_S,
    TELL_NS,
    UNLINKED_S,
    ControllerWatch,
    Sighting,
)
from holdfast.errors import EXIT_CONFIGURATION, EXIT_UNAVAILABLE
from holdfast.journal.lease import Lease, acquire
from holdfast.journal.listening import Listening, tell_listening
from holdfast.journal.store import RunStore
from holdfast.journal.unlinked import unlinked_hosts

LIMIT_S = 60.0
REFUSED_LOOKS = round(REFUSED_S / UNLINKED_S)


class Looks:
    """A host's watch, without its thread: whoever holds the run, it was not started here."""

    def __init__(self, lease: Lease) -> None:
        self.seen: list[Sighting] = []
        self.said: list[str] = []
        self._watch = ControllerWatch(
            lease.folder, 1, _nobody, self.seen.append, lambda _, words: self.said.append(words)
        )

    def look(self, times: int = 1) -> None:
        for _ in range(times):
            self._watch.look()

    @property
    def ends(self) -> list[tuple[int, str]]:
        return [(one.over.exit_code, one.over.words) for one in self.seen if one.over is not None]

    @property
    def ports(self) -> list[int]:
        return [one.claim.port for one in self.seen if one.claim is not None]


def _nobody(_: object) -> None:
    raise AssertionError("somebody holds the run")


@pytest.fixture
def lease(tmp_path: Path) -> Lease:
    return acquire(RunStore(tmp_path).create("lm"))


def test_a_run_of_one_host_is_no_controller(lease: Lease) -> None:
    looks = Looks(lease)
    looks.look(REFUSED_LOOKS - 1)
    assert len(looks.said) == 1
    assert "which takes no other hosts" in looks.said[0]
    assert looks.ends == []
    looks.look()
    ((code, words),) = looks.ends
    assert code == EXIT_UNAVAILABLE
    assert words.startswith("run 'lm' is held by pid ")
    assert "which trains on one host alone; stop it with `holdfast stop lm`, or give" in words


def test_a_controller_that_listens_late_is_one(lease: Lease) -> None:
    looks = Looks(lease)
    looks.look(REFUSED_LOOKS - 1)
    tell_listening(lease, Listening(("127.0.0.1",), 4000))
    looks.look(2)
    assert looks.ports == [4000]
    assert looks.ends == []


def test_a_controller_of_another_version_is_told_once_it_shows_life(lease: Lease) -> None:
    """The run may have been stopped by force, to go on with a newer version."""
    tell_listening(lease, Listening(("127.0.0.1",), 4000, "9.9"))
    looks = Looks(lease)
    looks.look(5)
    assert (looks.ends, looks.ports) == ([], [])
    lease.renew()
    looks.look()
    ((code, words),) = looks.ends
    assert code == EXIT_CONFIGURATION
    assert "this host has Holdfast 0." in words
    assert words.endswith(", has 9.9: have one version on all hosts")


def test_a_host_has_time_to_dial_before_it_says_that_it_cannot(
    lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has only come, and who has lost the link to another controller, has not tried yet."""
    now = [100 * TELL_NS]
    monkeypatch.setattr(controller_watch, "now_ns", lambda: now[0])
    tell_listening(lease, Listening(("127.0.0.1",), 4000))
    looks = Looks(lease)
    looks.look()
    assert unlinked_hosts(lease.folder, lease.epoch) == set()
    now[0] += TELL_NS + 1
    looks.look()
    assert unlinked_hosts(lease.folder, lease.epoch) == {1}

    lease.release()
    successor = acquire(lease.folder)
    tell_listening(successor, Listening(("127.0.0.1",), 5000))
    now[0] += 10 * TELL_NS
    looks.look()
    assert looks.ports == [4000, 5000]
    assert unlinked_hosts(lease.folder, successor.epoch) == set()
    now[0] += TELL_NS + 1
    looks.look()
    assert unlinked_hosts(lease.folder, successor.epoch) == {1}


def test_of_hosts_with_a_link_the_first_look_often_and_not_all_others_at_once(
    lease: Lease,
) -> None:
    rests = []
    for index in range(100):
        watch = ControllerWatch(lease.folder, index, _nobody, lambda _: None, lambda *_: None)
        assert watch.rest_s == 0.1
        watch.is_linked = True
        rests.append(watch.rest_s)
    assert rests[:3] == [2.0] * 3
    assert min(rests[3:]) >= 4.0
    assert max(rests) < 6.01
    assert len(set(rests[3:])) > 30


def test_one_whose_link_goes_down_looks_at_once(
    lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_watch, "SELDOM_S", 1e6)
    looked = threading.Event()
    watch = ControllerWatch(lease.folder, 7, _nobody, lambda _: None, lambda *_: None)
    monkeypatch.setattr(watch, "look", looked.set)
    watch.is_linked = True
    watch.start()
    assert looked.wait(LIMIT_S)
    looked.clear()
    watch.is_linked = False
    assert looked.wait(LIMIT_S)
    watch.close()
