"""Requests reach the supervisor they were meant for, once and in order, among any rubbish."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.errors import ConfigurationError
from holdfast.journal.control import ControlInbox, is_stop_asked, request
from holdfast.journal.lease import Lease, acquire
from holdfast.journal.store import RunFolder, RunStore


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunStore(tmp_path).create("r")


@pytest.fixture
def lease(folder: RunFolder) -> Lease:
    return acquire(folder)


def test_requests_arrive_once_and_in_order(folder: RunFolder, lease: Lease) -> None:
    inbox = ControlInbox(folder, lease.epoch)
    assert inbox.take() == ((), ())
    sent = [
        request(folder, "save", tag="before-lunch"),
        request(folder, "save"),
        request(folder, "stop", grace_s=90),
    ]
    taken = inbox.take()
    assert list(taken.requests) == sent
    assert [dict(asked.args) for asked in sent] == [
        {"tag": "before-lunch"},
        {"tag": None},
        {"now": False, "grace_s": 90.0},
    ]
    assert taken.ignored == ()
    assert inbox.take() == ((), ())
    assert list(folder.control_dir.iterdir()) == []


def test_a_stop_that_nobody_has_taken_is_found_at_the_end(folder: RunFolder, lease: Lease) -> None:
    assert not is_stop_asked(folder, lease.epoch)
    request(folder, "save")
    assert not is_stop_asked(folder, lease.epoch)
    request(folder, "stop")
    assert is_stop_asked(folder, lease.epoch)
    assert not is_stop_asked(folder, lease.epoch)
    request(folder, "stop")
    assert not is_stop_asked(folder, lease.epoch + 1)  # it was meant for another holder


def test_many_requests_keep_their_order(folder: RunFolder, lease: Lease) -> None:
    for number in range(12):
        request(folder, "save", tag=str(number))
    tags = [asked.args["tag"] for asked in ControlInbox(folder, lease.epoch).take().requests]
    assert tags == [str(number) for number in range(12)]


def test_nobody_to_ask(folder: RunFolder) -> None:
    with pytest.raises(ConfigurationError, match="'r' is not running: there is nothing to stop"):
        request(folder, "stop")
    acquire(folder).release()
    with pytest.raises(ConfigurationError, match="not running"):
        request(folder, "stop")


def test_a_stop_left_over_does_not_stop_the_next_start(folder: RunFolder, lease: Lease) -> None:
    request(folder, "stop")
    lease.release()
    successor = acquire(folder)
    fresh = request(folder, "save")
    taken = ControlInbox(folder, successor.epoch).take()
    assert taken.requests == (fresh,)
    assert "meant for lease 1, this is lease 2" in taken.ignored[0]
    assert ControlInbox(folder, successor.epoch).take() == ((), ())


def test_who_goes_on_with_an_attempt_hears_what_was_asked_since_it_began(
    folder: RunFolder, lease: Lease
) -> None:
    request(folder, "save")
    lease.release()
    acquire(folder).release()
    last = acquire(folder)
    assert [asked.verb for asked in ControlInbox(folder, last.epoch, since=1).take().requests] == [
        "save"
    ]
    assert ControlInbox(folder, last.epoch, since=1).take() == ((), ())


def test_a_replaced_supervisor_leaves_its_successors_requests(
    folder: RunFolder, lease: Lease
) -> None:
    lease.release()
    successor = acquire(folder)
    asked = request(folder, "stop", now=True)
    assert ControlInbox(folder, lease.epoch).take() == ((), ())
    assert ControlInbox(folder, successor.epoch).take().requests == (asked,)


def test_rubbish_is_named_and_harmless(folder: RunFolder, lease: Lease) -> None:
    asked = request(folder, "stop")
    good = json.loads((folder.control_dir / "000001-stop.json").read_text())
    for number, content in enumerate(
        [
            "",
            "{}",
            "[]",
            json.dumps(good | {"verb": "rm -rf"}),
            json.dumps(good | {"args": {"now": "yes"}}),
            json.dumps(good | {"args": {"grace_s": True}}),
            json.dumps(good | {"args": {"colour": 1}}),
            json.dumps(good | {"epoch": "x"}),
            "x" * 100_000,
        ],
        start=2,
    ):
        (folder.control_dir / f"{number:06d}-stop.json").write_text(content)
    (folder.control_dir / "notes.txt").write_text("mine")
    taken = ControlInbox(folder, lease.epoch).take()
    assert taken.requests == (asked,)
    assert len(taken.ignored) == 9
    assert all(words.startswith("request 0000") for words in taken.ignored)
    assert [path.name for path in folder.control_dir.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    ("verb", "args", "words"),
    [
        ("explode", {}, "'explode' is not a request; ask stop, save, profile or rollback"),
        ("stop", {"soon": True}, "stop has no argument 'soon'"),
        ("stop", {"now": 1}, "stop: now must be true or false, not 1"),
        ("stop", {"grace_s": -1}, "grace_s must be a number of seconds, 0 or more, not -1"),
        ("stop", {"grace_s": float("nan")}, "grace_s must be a number"),
        ("save", {"tag": "a/b"}, "'a/b' cannot be a tag: it contains '/'"),
        ("rollback", {"to": "a b"}, "'a b' cannot be a tag: it contains ' '"),
    ],
)
def test_bad_requests(
    folder: RunFolder, lease: Lease, verb: str, args: dict[str, object], words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        request(folder, verb, **args)
    assert list(folder.control_dir.iterdir()) == []


def test_a_request_that_cannot_be_removed_is_acted_on_once(
    folder: RunFolder, lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = request(folder, "save")

    def refuse(self: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "no")

    inbox = ControlInbox(folder, lease.epoch)
    monkeypatch.setattr(Path, "unlink", refuse)
    assert inbox.take().requests == (asked,)
    assert inbox.take().requests == ()


def test_a_request_of_the_same_name_as_one_that_went_late_is_heard(
    folder: RunFolder, lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file server may say that it failed, and remove the file all the same."""
    unlink = Path.unlink

    def remove_and_fail(self: Path, missing_ok: bool = False) -> None:
        unlink(self, missing_ok)
        raise TimeoutError(110, "timed out")

    inbox = ControlInbox(folder, lease.epoch)
    first = request(folder, "save")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", remove_and_fail)
        assert inbox.take().requests == (first,)
    assert inbox.take().requests == ()
    second = request(folder, "save")
    assert second.number == first.number
    assert inbox.take().requests == (second,)
