"""Records of a run in a bucket: who wins, who is fenced, what comes and goes.

Hosts are folders here, each with a working copy of its own.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from holdfast.cli.doctor import doctor
from holdfast.doctor import checks_bucket
from holdfast.errors import (
    AttemptExists,
    ConfigurationError,
    RunHeld,
    StoreUnavailable,
    UnknownRun,
)
from holdfast.journal import lease as leases
from holdfast.journal import objects
from holdfast.journal.atomic import write_atomic
from holdfast.journal.attempts import create_attempt
from holdfast.journal.carrier import Carrier
from holdfast.journal.clocks import RunClock
from holdfast.journal.control import ControlInbox, request
from holdfast.journal.facts.followed import FollowedJournal
from holdfast.journal.holder import RunHolder
from holdfast.journal.lease import LeaseState, acquire, view
from holdfast.journal.machine_facts import MachineFacts
from holdfast.journal.moving import move, remove_run
from holdfast.journal.objects import Bucket, parse_place
from holdfast.journal.remote import refresh, remote_of
from holdfast.journal.store import RunFolder, RunStore
from holdfast.journal.submitted import alone, stored
from holdfast.snapshot.retention import pin, read_pins

if TYPE_CHECKING:
    from servers import Moto, Proxy


class Hosts:
    """Several hosts, each with a disk of its own, and one bucket."""

    def __init__(self, place: str, folder: Path) -> None:
        self.place = place
        self.folder = folder

    def store(self, host: str) -> RunStore:
        return RunStore.at(self.place, mirror=str(self.folder / host), instance=False)

    def run(self, host: str) -> RunFolder:
        return self.store(host).open("r")


@pytest.fixture
def hosts(bucket: str, tmp_path: Path) -> Hosts:
    return Hosts(f"s3://{bucket}/team", tmp_path)


def somewhere_else() -> RunHolder:
    """A supervisor of which this host's process table knows nothing."""
    return replace(RunHolder.current(), host="other", boot_id="another-boot")


def attempt_of(folder: RunFolder, who: str) -> None:
    facts = {"parent": None, "resume_step": 0, "restore_set": None, "epoch": 1, "ranks": 1}
    create_attempt(folder, 0, incarnation=who, **facts)


def remote(folder: RunFolder) -> Any:
    found = remote_of(folder.path)
    assert found is not None
    return found


def test_all_open_the_same_run(hosts: Hosts) -> None:
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda host=host: found.append(hosts.run(host).identity.run_id))
        for host in "abcd"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(found)) == 1
    assert hosts.store("e").names() == ("r",)
    with pytest.raises(ConfigurationError, match=r"already exists in s3://"):
        hosts.store("e").create("r")


def test_the_marks_of_folders_are_no_objects(hosts: Hosts, moto: Moto, bucket: str) -> None:
    run = hosts.run("a")
    for key in ("team/", "team/r/", "team/r/attempts/", "team/empty/"):
        moto.put(bucket, key)
    assert hosts.store("b").names() == ("r",)
    assert hosts.run("b").identity == run.identity
    assert list(Bucket(parse_place(f"{hosts.place}/r")).list_top()) == ["run.json"]
    assert hosts.store("b").open("empty").name == "empty"
    remove_run(hosts.store("b"), "r")
    assert hosts.store("c").names() == ("empty",)
    assert hosts.store("c").open("r").identity != run.identity


def test_an_object_that_cannot_be_listed_is_named(hosts: Hosts, moto: Moto, bucket: str) -> None:
    moto.put(bucket, "team//r")
    with pytest.raises(StoreUnavailable, match=r"invalid path.*remove that object"):
        hosts.store("a").names()


def test_a_living_holder_elsewhere_is_left_alone(hosts: Hosts) -> None:
    here, there = hosts.run("a"), hosts.run("b")
    held = acquire(there, somewhere_else())
    assert view(hosts.run("a")).state is LeaseState.UNKNOWN
    # Fenced by pid: the test's process plays both, and only the holder's own renews.
    held.holder = replace(held.holder, pid=RunHolder.current().pid)
    with pytest.raises(RunHeld, match="is held by"):
        acquire(here, sleep=lambda _s: held.renew(), clock=Clock(step_s=1.0))


def test_a_silent_holder_elsewhere_is_fenced_off(hosts: Hosts) -> None:
    here, there = hosts.run("a"), hosts.run("b")
    old = acquire(there, somewhere_else())
    new = acquire(here, sleep=lambda _s: None, clock=Clock(step_s=leases.SILENT_AFTER_S / 3))
    assert new.epoch == old.epoch + 1
    with pytest.raises(RunHeld, match="was taken over"):
        old.check()
    new.check()
    new.release()
    assert acquire(there).epoch == new.epoch + 1, "released there is free here"


def test_of_two_submissions_at_once_one_is_refused(hosts: Hosts) -> None:
    here, there = hosts.run("a"), hosts.run("b")
    with alone(there, lambda _: None):
        write_atomic(there.path / "engine.json", b'{"job": "17"}')
        with pytest.raises(RunHeld, match="'r' is being submitted by pid"), alone(here, print):
            pass
        assert stored(here) is None
    with alone(here, print):
        assert stored(here) == {"job": "17"}, "what the other one has left is seen"
    assert view(hosts.run("c")).state is LeaseState.FREE, "the run itself is nobody's"


def test_one_attempt_of_a_number(hosts: Hosts) -> None:
    """Two that both believe in themselves: one creates it, the other has the winner's record."""
    here, there = hosts.run("a"), hosts.run("b")
    attempt_of(here, "a")
    with pytest.raises(AttemptExists):
        attempt_of(there, "b")
    said = json.loads((there.attempt_dir(0) / "attempt.json").read_text())
    assert said["incarnation"] == "a"


def test_a_request_from_another_host(hosts: Hosts) -> None:
    here, there = hosts.run("a"), hosts.run("b")
    held = acquire(here)
    remote(there).fetch("r")
    request(there, "stop", now=True)
    inbox = ControlInbox(here, held.epoch)
    assert inbox.take().requests == ()
    remote(here).pull(here.control_dir)
    assert [one.verb for one in inbox.take().requests] == ["stop"]
    assert list(remote(here).bucket.list("r/control")) == []
    remote(there).pull(there.control_dir)
    assert list(there.control_dir.iterdir()) == [], "what was taken is gone everywhere"


def test_journals_and_logs_are_carried(hosts: Hosts) -> None:
    here = hosts.run("a")
    log = here.logs_dir(0) / "rank-00000.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("one\n")
    assert remote(here).push("r") == 1
    assert remote(here).push("r") == 0, "what did not change stays"
    log.write_text("one\ntwo\n")
    assert remote(here).push("r") == 1
    assert (hosts.run("b").logs_dir(0) / log.name).read_text() == "one\ntwo\n"


def test_what_is_new_is_asked_for_side_by_side(hosts: Hosts, proxy: Proxy) -> None:
    """No answer comes before all of a run's requests are there."""
    here = hosts.run("a")
    logs = here.logs_dir(0)
    logs.mkdir(parents=True)
    for rank in range(5):
        (logs / f"rank-{rank:05d}.log").write_text(f"of rank {rank}\n")
    remote(here).push("r")
    proxy.requests.clear()
    proxy.pause_at = "rank-00000.log"
    there = threading.Thread(target=hosts.store("b").runs)
    there.start()
    wait_for(lambda: sum("/logs/" in one for one in proxy.requests) == 5)
    proxy.pause.set()
    there.join()
    fetched = hosts.run("b").logs_dir(0)
    assert {path.read_text() for path in fetched.iterdir()} == {
        f"of rank {rank}\n" for rank in range(5)
    }
    proxy.requests.clear()
    assert [folder.name for folder in hosts.store("b").runs()[0]] == ["r"]
    assert not any("/logs/" in one for one in proxy.requests), "what is here is not asked for"


def test_runs_are_looked_at_side_by_side_and_told_in_their_order(
    hosts: Hosts, proxy: Proxy
) -> None:
    """First whether they are runs, then each of them: no answer comes before all are asked for."""
    for name in ("b", "c", "a"):
        hosts.store("a").open(name)
    found: list[list[str]] = []
    there = threading.Thread(
        target=lambda: found.append([one.name for one in hosts.store("b").runs()[0]])
    )
    proxy.requests.clear()
    proxy.pause_at = "HEAD "
    there.start()
    wait_for(lambda: sum(one.startswith("HEAD ") for one in proxy.requests) == 3)
    proxy.requests.clear()
    proxy.pause_at = "list-type"
    proxy.pause.set()
    wait_for(lambda: sum("list-type" in one for one in proxy.requests) == 3)
    proxy.pause.set()
    there.join()
    assert found == [["a", "b", "c"]]


def test_compiled_programs_go_home_and_away(hosts: Hosts) -> None:
    """Only who wants them fetches them; those that make room for others make it there, too."""
    here = hosts.run("a")
    here.cache_dir.mkdir()
    for name in ("one", "two"):
        (here.cache_dir / f"{name}.hfx").write_bytes(name.encode() * 3_000_000)
    remote(here).push("r", everything=True)
    there = hosts.run("b")
    assert not there.cache_dir.exists()
    refresh(there.cache_dir)
    assert (there.cache_dir / "two.hfx").read_bytes() == b"two" * 3_000_000
    (there.cache_dir / "one.hfx").unlink()
    remote(there).push("r")
    assert list(remote(there).bucket.list("r/cache")) == ["r/cache/two.hfx"]


def test_what_is_ahead_here_is_kept(hosts: Hosts) -> None:
    """A host that died before its log was home, and comes back; also without its notes."""
    here = hosts.run("a")
    log = here.logs_dir(0) / "rank-00000.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("one\n")
    remote(here).push("r")
    log.write_text("one\ntwo\n")
    shutil.move(here.path.parent.parent, hosts.folder / "again")
    (hosts.folder / "again" / here.path.parent.name / ".seen-r.json").unlink()
    again = hosts.run("again")
    assert (again.logs_dir(0) / log.name).read_text() == "one\ntwo\n"
    remote(again).push("r")
    assert (hosts.run("b").logs_dir(0) / log.name).read_text() == "one\ntwo\n"


@pytest.mark.parametrize("again", ["here", "there"])
def test_a_run_that_is_deleted_and_made_again_is_another_one(hosts: Hosts, again: str) -> None:
    """Of the old one nothing is left in the new; what was never home is put aside."""
    here = hosts.run("here")
    attempt_of(here, "old")
    log = here.logs_dir(0) / "rank-00000.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("never home\n")
    bucket = remote(here).bucket
    bucket.delete(list(bucket.list("r")))
    made = hosts.run(again)
    assert made.identity.run_id != here.identity.run_id
    for host in ("here", "there"):
        found = hosts.run(host)
        assert found.identity == made.identity
        assert list(found.path.rglob("attempt.json")) == []
        assert not (found.logs_dir(0) / log.name).exists()
    aside = list(here.path.parent.glob(".gone-r-*/**/rank-00000.log"))
    assert [path.read_text() for path in aside] == ["never home\n"]
    assert hosts.store("here").names() == ("r",)


def test_pins_are_there_at_once(hosts: Hosts) -> None:
    here, name = hosts.run("a"), "0000-000000000001"
    pin(here.pins_path, "best", name)
    assert read_pins(hosts.run("b").pins_path) == {"best": name}
    pin(hosts.run("b").pins_path, "worst", name)
    assert read_pins(hosts.run("a").pins_path) == {"best": name, "worst": name}


def test_a_carrier_says_what_is_wrong_once(
    hosts: Hosts, proxy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "QUICK_S", 0.5)
    monkeypatch.setattr("holdfast.journal.carrier.PERIOD_S", 0.05)
    said: list[str] = []
    here = hosts.run("a")
    carrier = Carrier(here, said.append)
    proxy.down()
    (here.path / "note.txt").write_text("x")
    wait_for(lambda: said)
    assert "training goes on" in said[0]
    proxy.up()
    wait_for(lambda: len(said) >= 2)
    assert "nothing was lost" in said[1]
    proxy.down()
    (here.path / "note.txt").write_text("y")
    carrier.close(60.0)
    assert f"they stay in {here.path}" in said[-1]
    proxy.up()
    remote(here).push("r", everything=True)
    assert remote(here).bucket.get("r/note.txt", 10) == b"y"


def test_without_the_store_nothing_is_created(
    hosts: Hosts, proxy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never a claim or an attempt that only this host knows of."""
    monkeypatch.setattr(objects, "QUICK_S", 0.5)
    here = hosts.run("a")
    proxy.down()
    with pytest.raises(StoreUnavailable):
        acquire(here)
    with pytest.raises(StoreUnavailable):
        attempt_of(here, "a")
    assert list(here.lease_dir.iterdir()) == []
    assert not (here.attempt_dir(0) / "attempt.json").exists()


class Clock:
    """Goes on by so much at each look."""

    def __init__(self, step_s: float) -> None:
        self._now_s = 0.0
        self._step_s = step_s

    def __call__(self) -> float:
        self._now_s += self._step_s
        return self._now_s


def wait_for(predicate: Any, within_s: float = 60.0) -> None:
    end = time.monotonic() + within_s
    while not predicate():
        assert time.monotonic() < end, "not true in time"
        time.sleep(0.005)


def test_what_happens_to_machines_is_told_in_the_bucket(
    hosts: Hosts, store: Path, moto: Any, bucket: str
) -> None:
    del store  # its scratch, not its folder
    laptop, machine = hosts.run("a"), hosts.run("b")
    facts = MachineFacts(laptop)
    facts.waited("queue", 10**18, 10**18 + 5 * 10**9)
    there = Bucket(parse_place(f"s3://{bucket}/team/r/journal"))
    assert {name.rpartition(".")[2] for name in there.list()} == {"hfj", "jsonl"}
    facts.lost(0, "machine_preempted", 10**18)
    facts.close()
    refresh(machine.path)
    (journal,) = machine.journal_dir.glob("machines-*.hfj")
    told = FollowedJournal(journal, RunClock()).poll().statements
    assert [type(one).__name__ for one in told] == ["WaitFact", "AttemptLost"]


def test_the_doctor_tries_the_bucket_out(
    bucket: str, proxy: Any, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del store  # its variables, not its folder
    monkeypatch.setattr(checks_bucket, "SLOW_READ_S", 60.0)  # this machine may be a busy one

    def found(place: str, code: int) -> list[dict[str, str]]:
        words = ["--store", place, "--json"]
        result = CliRunner().invoke(doctor, words, env={"HOLDFAST_MIRROR": str(tmp_path / "m")})
        assert result.exit_code == code, result.output
        return [one for one in json.loads(result.stdout)["findings"] if one["check"] == "bucket"]

    assert found(f"s3://{bucket}/team", 0) == []
    assert not Bucket(parse_place(f"s3://{bucket}")).list()
    (one,) = found("s3://nobody/team", 1)
    assert "s3://nobody/team cannot be written: " in one["what"]
    assert "there is no bucket" in one["what"]
    monkeypatch.setattr(objects, "QUICK_S", 0.2)
    proxy.down()
    (one,) = found(f"s3://{bucket}/team", 1)
    assert "cannot be reached" in one["what"]


def test_a_run_that_is_removed_leaves_nothing_and_one_that_is_half_gone_keeps_its_name(
    hosts: Hosts, bucket: str
) -> None:
    """First it is no run any more, to everybody; what is left of it never gets into another."""
    folder = hosts.run("a")
    attempt_of(folder, "a")
    there = Bucket(parse_place(f"s3://{bucket}/team"))
    there.put("r/ckpt/0000-000000000001/manifest.json", b"{}")
    hosts.run("b")
    with pytest.raises(ConfigurationError, match="cannot rename"):
        move(hosts.store("a"), "r", "other")
    there.delete(["r/run.json"])  # as one whose removal was broken off
    assert hosts.store("b").names() == ()
    with pytest.raises(ConfigurationError, match="finish that first: holdfast rm r"):
        hosts.run("b")
    remove_run(hosts.store("b"), "r")
    assert not there.list("r")
    hosts.run("b")
    remove_run(hosts.store("a"), "r")
    assert not there.list("r")
    assert not [path for path in hosts.store("a").root.iterdir() if "r" in path.name.split("-")]
    with pytest.raises(UnknownRun):
        remove_run(hosts.store("a"), "r")
