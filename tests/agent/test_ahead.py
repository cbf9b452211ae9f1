"""Ranks woken ahead of their attempt: given up with the first loss, edit or other attempt."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from threading import Event

import pytest

from holdfast.agent import ahead
from holdfast.agent.ahead import Ahead
from holdfast.agent.tree import RankCommand, TreeMessage
from holdfast.journal.gate import Go, encode_files, files_path, wait

GO = Go("0000-000000000004", 4, 0, 0, None)
PAST_NS = 1_000_000_000


class Freed:
    """The tree, as far as it is asked for anything here."""

    def __init__(self) -> None:
        self.times = 0

    def free(self) -> None:
        self.times += 1


class Place:
    """Two ranks of attempt 3, a script and a module of theirs."""

    def __init__(self, folder: Path) -> None:
        self.script, self.module = folder / "train.py", folder / "model.py"
        for path in (self.script, self.module):
            path.write_text("pass")
            os.utime(path, ns=(PAST_NS, PAST_NS))
        self.tree = Freed()
        commands = [
            RankCommand(rank, ["python", "train.py", "x" * 5000], {}, str(folder), 1)
            for rank in (0, 1)
        ]
        self.folder = folder / "attempt-0003"
        self.ahead = Ahead(self.tree, 3, self.folder, commands)  # type: ignore[arg-type]

    def tell(self, rank: int) -> None:
        """The rank has come to the gate."""
        files = encode_files([str(self.script), str(self.module)])
        files_path(self.folder, rank).write_text(json.dumps(files))
        self.ahead.look()


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(ahead, "CHECK_LIMIT_S", 60)
    place = Place(tmp_path)
    yield place
    place.ahead.gate.close()


def message(event: str, **fields) -> TreeMessage:
    return TreeMessage(event, 5, fields)


def test_who_has_come_is_known(place):
    assert place.ahead.waiting == 0
    files_path(place.folder, 0).write_text("[")  # half of it
    place.ahead.look()
    assert place.ahead.waiting == 0
    place.tell(0)
    place.tell(1)
    assert place.ahead.waiting == 2
    assert place.ahead.unfit_for(3) == ""


def test_it_fits_before_anybody_has_come(place):
    assert place.ahead.unfit_for(3) == ""


def test_another_attempt_is_not_theirs(place):
    assert place.ahead.unfit_for(4) == "it was to be attempt 3"


@pytest.mark.parametrize("which", ["script", "module"])
@pytest.mark.parametrize("how", ["written", "gone", "moved"])
def test_what_was_read_and_has_changed(place, which, how):
    place.tell(0)
    path = getattr(place, which)
    if how == "written":
        path.write_text("import os")
        os.utime(path, ns=(PAST_NS, PAST_NS))  # its size tells
    elif how == "gone":
        path.unlink()
    else:
        other = path.with_suffix(".new")
        other.write_text("pass")
        os.utime(other, ns=(PAST_NS, PAST_NS))
        other.replace(path)
    assert place.ahead.unfit_for(3) == f"{path} has changed since it was read"


def test_a_look_that_is_under_way_may_have_passed_the_file_by(place, monkeypatch):
    begun, go_on, mark, wait_for = Event(), Event(), ahead.mark, ahead.Check.wait

    def late(path):
        found = mark(path)
        begun.set()
        go_on.wait()
        return found

    def going_on(check, limit_s):
        go_on.set()
        return wait_for(check, limit_s)

    monkeypatch.setattr(ahead, "mark", late)
    monkeypatch.setattr(ahead.Check, "wait", going_on)
    place.tell(0)
    begun.wait()
    place.script.unlink()
    assert place.ahead.unfit_for(3) == f"{place.script} has changed since it was read"


def test_a_disk_that_does_not_answer(place, monkeypatch):
    answered = Event()
    monkeypatch.setattr(ahead, "mark", lambda _path: answered.wait() and None)
    monkeypatch.setattr(ahead, "CHECK_LIMIT_S", 0.01)
    for _ in range(2):
        assert place.ahead.unfit_for(3) == "whether its files have changed cannot be told"
    answered.set()
    assert place.ahead._check.wait(60)


def test_a_change_before_it_was_told_of(place):
    """Read, changed, and then told of as it is now."""
    now_ns = time.time_ns() + 10**9
    os.utime(place.module, ns=(now_ns, now_ns))
    place.tell(0)
    assert "model.py has changed" in place.ahead.unfit_for(3)


def test_the_script_counts_before_anybody_has_come(place):
    now_ns = time.time_ns() + 10**9
    os.utime(place.script, ns=(now_ns, now_ns))
    assert "train.py has changed" in place.ahead.unfit_for(3)


@pytest.mark.parametrize(
    ("lost", "words"),
    [
        (message("exit", rank=1, code=1, signal=None), "ended ahead of its attempt (exit code 1)"),
        (message("exit", rank=1, code=None, signal=9), "ended ahead of its attempt (signal 9)"),
        (message("spawn_failed", failures=[]), "the command cannot be started"),
        (message("gone"), "the processes ahead of the attempt are gone"),
    ],
)
def test_the_first_loss_is_the_end_of_all(place, lost, words):
    place.ahead.hear(message("launched", pids={"0": 2**22 + 1}, woken=[0]))
    place.ahead.hear(lost)
    place.ahead.hear(message("gone"))
    assert words in place.ahead.unfit_for(3)


def test_the_go_frees_and_opens(place):
    """Also where a rank has just died: that is the attempt's own affair by then."""
    launched = message("launched", pids={"0": 2**22 + 1}, woken=[0])
    place.ahead.hear(launched)
    place.ahead.go(GO)
    assert place.tree.times == 1
    assert wait(place.ahead.gate.path, lambda: None) == GO
    assert place.ahead.backlog == [launched]
