"""What commands that look after a run for long know of it in an object store: each look anew."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.cli import fleet, push
from holdfast.cli.hosts import _show
from holdfast.cli.push import NamedMachines, PushAsked, PushLoop
from holdfast.engines.ray.store import look_at_run
from holdfast.engines.ssh.words import Reach
from holdfast.errors import StoreUnavailable
from holdfast.journal.attempts import AttemptEnd, create_attempt, end_attempt
from holdfast.journal.holder import RunHolder
from holdfast.journal.hosts_table import ListedHost, tell_hosts
from holdfast.journal.lease import LastWords, acquire
from holdfast.journal.machines import MachinesBook, tell_loss
from holdfast.journal.remote import refresh
from holdfast.journal.store import RunFolder, RunStore

STOPPED = AttemptEnd("stopped", "by a person", (75,), 1)
DONE = AttemptEnd("done", "done", (0,), 1)


def seen_by_two(tmp_path: Path) -> tuple[RunFolder, RunFolder]:
    """A run's folder as its hosts have it, and as somebody elsewhere."""
    place = f"memory://{tmp_path.name}/runs"
    hosts = RunStore.at(place, mirror=str(tmp_path / "there")).open("lm", command=("x",))
    return hosts, RunStore.at(place, mirror=str(tmp_path / "here")).get("lm")


def ended(folder: RunFolder, number: int, end: AttemptEnd) -> None:
    parent = number - 1 if number else None
    create_attempt(folder, number, parent=parent, resume_step=0, restore_set=None)
    end_attempt(folder, number, end)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(push, "say", found.append)
    return found


def test_a_run_that_a_person_has_stopped_is_not_started_again(
    tmp_path: Path, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts, here = seen_by_two(tmp_path)
    asked = PushAsked(tmp_path, "memory://x", (), ("x",), {})
    loop = PushLoop(here, asked, Reach(), NamedMachines(()), tmp_path)
    try:
        assert not loop.fleet.is_over()
        ended(hosts, 0, STOPPED)
        assert loop.fleet.is_over()
        assert loop._over() == 75

        def away(_folder: Path) -> None:
            raise StoreUnavailable("the bucket does not answer")

        monkeypatch.setattr(push, "refresh", away)
        loop._newest, loop._asked_s = 0, -60.0
        assert loop.fleet.is_over(), "nobody knows"
        assert loop.fleet.is_over()
        assert loop._over() is None
        assert told[1:] == [
            "the bucket does not answer; nothing is started again until the store tells how it "
            "ended"
        ]
    finally:
        loop.fleet.close()


def test_rays_foreman_hears_how_the_run_has_ended(tmp_path: Path) -> None:
    hosts, here = seen_by_two(tmp_path)
    assert look_at_run(here).term == 0
    lease = acquire(hosts, on_wait=str)
    tell_hosts(lease, [ListedHost(0, "assigned", "10.0.0.1")])
    assert look_at_run(here).there == {0}
    lease.release(LastWords(75, "stopped", by_person=True))
    found = look_at_run(here)
    assert (found.term, found.code, found.by_person) == (1, 75, True)


def test_hosts_are_shown_as_they_are_now(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hosts, here = seen_by_two(tmp_path)
    _show(here, as_json=False)
    assert "has one host" in capsys.readouterr().out
    tell_hosts(acquire(hosts, on_wait=str), [ListedHost(0, "assigned", "10.0.0.1")])
    _show(here, as_json=False)
    assert "assigned" in capsys.readouterr().out


def test_what_machines_were_lost_to_is_told_of_the_attempt_that_ran_on_them(
    tmp_path: Path,
) -> None:
    hosts, here = seen_by_two(tmp_path)
    create_attempt(hosts, 0, parent=None, resume_step=0, restore_set=None)
    refresh(here.attempts_dir)
    end_attempt(hosts, 0, DONE)
    create_attempt(hosts, 1, parent=None, resume_step=0, restore_set=None)
    assert tell_loss(here, "preempted", "preempted") == (1, "preempted")


def test_a_machine_that_is_no_more_need_not_be_watched(tmp_path: Path) -> None:
    """Else its silence counts, for half a minute: `acquire` says so."""
    hosts, here = seen_by_two(tmp_path)
    elsewhere = replace(RunHolder.current(), host="h1", boot_id="b1")
    said: list[str] = []
    book = MachinesBook(here, said.append, lambda holder: holder.boot_id == "b1")
    acquire(hosts, holder=elsewhere)
    book.hold()
    assert book.is_held
    assert [one.partition("; ")[2] for one in said] == [
        "waiting up to 0 s to see whether it is alive"
    ]
    book.close()


def test_no_machines_are_made_for_a_run_that_is_done_meanwhile(tmp_path: Path) -> None:
    hosts, here = seen_by_two(tmp_path)
    assert not fleet._is_done(here)
    ended(hosts, 0, DONE)
    assert fleet._is_done(here)
