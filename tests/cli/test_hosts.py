"""`holdfast hosts`: what the controller has told of its hosts."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli.hosts import hosts
from holdfast.cli.several_hosts import FOR_LONG_NS, _silent_ns
from holdfast.errors import StoreUnavailable
from holdfast.journal.hosts_table import ListedHost, read_hosts, tell_hosts
from holdfast.journal.lease import Lease, LeaseState, acquire, view
from holdfast.journal.quarantine import put_in_quarantine, quarantined, release
from holdfast.journal.store import RunStore

HOUR_NS = 3600 * 10**9


@pytest.fixture
def lease(store: Path) -> Lease:
    return acquire(RunStore(store).create("lm"))


def shown(*options: str) -> str:
    result = CliRunner().invoke(hosts, ["lm", *options])
    assert result.exit_code == 0, result.output
    return result.output


def test_each_host_has_a_line(lease: Lease) -> None:
    now = time.time_ns()
    tell_hosts(
        lease,
        [
            ListedHost(0, "lost", "10.0.0.1", None, now - 600_000_000_000),
            ListedHost(
                1,
                "assigned",
                "10.0.0.2",
                1,
                now,
                25_000_000,
                100_000_000,
                slice="eu-1",
                first_rank=8,
                last_rank=15,
                boot="b",
                offset_ns=5,
                error_ns=0,
                ahead_ns=0,
            ),
            ListedHost(
                2,
                "assigned",
                "",
                0,
                now,
                0,
                100_000_000,
                first_rank=7,
                last_rank=7,
                offset_ns=-9,
                error_ns=400_000,
                ahead_ns=3 * HOUR_NS,
            ),
        ],
    )
    lines = [" ".join(line.split()) for line in shown().splitlines()]
    assert lines == [
        "host state trains as ranks behind slice address clock last heard",
        "0 lost – – – – 10.0.0.1 – 10 min ago",
        "1 assigned host 1 8–15 25 ms (25 %) eu-1 10.0.0.2 the same 0 s ago",
        "2 assigned host 0 7 0 s (0 %) – – +3 h ± 400 µs 0 s ago",
    ]
    found = json.loads(shown("--json"))
    assert not found["is_over"]
    assert [row["trains_as"] for row in found["hosts"]] == [None, 1, 0]


def test_of_a_run_that_is_over_it_says_so(lease: Lease) -> None:
    tell_hosts(lease, [ListedHost(0, "assigned", "10.0.0.1", 0, 1)])
    lease.release()
    assert shown().splitlines()[-1] == "nobody runs it now: that is how they stood last"


def test_what_the_next_controller_hears_of_hosts_that_are_silent(lease: Lease) -> None:
    rows = [
        ListedHost(0, "assigned", "10.0.0.1", 0, boot="one"),
        ListedHost(3, "suspect", "10.0.0.2", 1, silent_ns=7),
        ListedHost(4, "spare", "10.0.0.3", boot="one"),
    ]
    tell_hosts(lease, rows)
    lived = replace(view(lease.folder), state=LeaseState.DEAD)
    assert _silent_ns(lease.folder, lived) == {1: 7}
    assert lived.holder is not None
    elsewhere = replace(lived.holder, boot_id="one")
    silent = replace(lived, state=LeaseState.UNKNOWN, holder=elsewhere)
    tell_hosts(lease, rows[:2])
    assert _silent_ns(lease.folder, silent) == {0: FOR_LONG_NS, 1: 7}
    tell_hosts(lease, [replace(row, silent_ns=7) for row in rows])
    assert _silent_ns(lease.folder, lived) == {}  # it may have been cut off


def test_a_run_of_one_host_has_no_table(lease: Lease) -> None:
    assert "run 'lm' has one host" in shown()


@pytest.mark.parametrize(
    "rubbish", ["", "[]", '{"hosts": 1}', '{"hosts": [1]}', '{"hosts": [{"index": -1}]}']
)
def test_rubbish_is_no_table(lease: Lease, rubbish: str) -> None:
    tell_hosts(lease, [])
    (path,) = lease.folder.lease_dir.glob("*.hosts")
    path.write_text(rubbish)
    assert read_hosts(lease.folder, lease.epoch) is None


def test_a_host_goes_into_quarantine_and_comes_out(lease: Lease) -> None:
    said = shown("--quarantine", "3", "--reason", "a\n slow  one")
    assert said == (
        "Host 3 of run 'lm' goes into quarantine; `holdfast hosts lm --release 3` ends that\n"
    )
    assert shown().splitlines()[-1].startswith("host 3 is in quarantine (a slow one), by pid")
    (kept,) = json.loads(shown("--json"))["quarantine"]
    assert (kept["index"], kept["reason"]) == (3, "a slow one")
    assert shown("--release", "3") == "Host 3 of run 'lm' may have a part again\n"
    assert shown("--release", "3") == "Host 3 of run 'lm' was not in quarantine\n"
    assert json.loads(shown("--json"))["quarantine"] == []


def test_what_the_run_has_decided_itself_is_told_apart(lease: Lease) -> None:
    put_in_quarantine(lease.folder, 1, "lost or failed 3 times", is_automatic=True)
    words = "host 1 is in quarantine (lost or failed 3 times), by the run itself 0 s ago"
    assert shown().splitlines()[-1] == words
    (kept,) = json.loads(shown("--json"))["quarantine"]
    assert kept["is_automatic"]
    put_in_quarantine(lease.folder, 1, "to be repaired")
    put_in_quarantine(lease.folder, 1, "failed its preflight", is_automatic=True)
    assert quarantined(lease.folder)[1].reason == "to be repaired"  # a person's word holds
    assert not release(lease.folder, 1, is_automatic=True)
    assert release(lease.folder, 1)


def test_a_quarantine_that_cannot_be_read_holds(lease: Lease) -> None:
    put_in_quarantine(lease.folder, 1, "slow")
    (lease.folder.path / "quarantine" / "000001.json").write_text("[")
    assert quarantined(lease.folder)[1].reason == "for a reason that cannot be read"
    assert release(lease.folder, 1)


def test_of_a_store_that_is_away_nothing_is_known_of_quarantine(lease: Lease) -> None:
    lease.folder.path.rename(lease.folder.path.with_name("away"))
    with pytest.raises(StoreUnavailable):
        quarantined(lease.folder)
    with pytest.raises(StoreUnavailable):
        put_in_quarantine(lease.folder, 1, "slow")
    assert not lease.folder.path.exists()


@pytest.mark.parametrize("number", ["-1", "1000000", "one"])
def test_a_host_that_cannot_be_is_refused(lease: Lease, number: str) -> None:
    assert CliRunner().invoke(hosts, ["lm", f"--quarantine={number}"]).exit_code == 2
