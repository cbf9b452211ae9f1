"""Ranks woken ahead of their attempt: given up with the first loss, edit or other attempt."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from threading import Event

import pytest

from holdfast.agent import read_files
from holdfast.agent.standby import Standby
from holdfast.agent.tree import RankCommand, Tree, TreeMessage
from holdfast.core.hosts.standby import StandbyMove, StandbyStage
from holdfast.journal.gate import Go, encode_files, files_path, wait

GO = Go("0000-000000000004", 4, 0, 0, None)
PAST_NS = 1_000_000_000


class TreeThatObeys:
    """The tree, as far as it is asked for anything here."""

    pid = 123456789

    def __init__(self, output_fds) -> None:
        self.freed = self.killed = 0
        for fd in output_fds:
            os.close(fd)

    def stand_by(self, _standbys) -> None: ...

    def launch(self, _ranks, **how) -> None:
        self.how = how

    def free(self) -> None:
        self.freed += 1

    def kill(self) -> None:
        self.killed += 1

    def close(self, limit_s: float = 0) -> None: ...


class Place:
    """Two ranks of attempt 3, a script and a module of theirs."""

    def __init__(self, folder: Path) -> None:
        self.script, self.module = folder / "train.py", folder / "model.py"
        for path in (self.script, self.module):
            path.write_text("pass")
            os.utime(path, ns=(PAST_NS, PAST_NS))
        self.where = str(folder)
        self.folder = folder / "attempt-0003"
        self.standby = Standby.start(range(2))
        self.standby.prepare(["waiting"], self.commands)
        assert self.standby.stage is StandbyStage.IMPORTING
        self.standby.wake(3, self.folder, self.commands, StandbyMove.WAKE)
        assert self.standby.woken is not None
        self.woken, self.files = self.standby.woken, self.standby.woken.files

    def commands(self, outputs) -> list[RankCommand]:
        words, env = ["python", "train.py", "x" * 5000], {"HOLDFAST_IMPORTS": "none"}
        return [RankCommand(one.rank, words, env, self.where, 1) for one in outputs]

    def tell(self, rank: int) -> None:
        """The rank has come to the gate."""
        files = encode_files([str(self.script), str(self.module)])
        files_path(self.folder, rank).write_text(json.dumps(files))
        self.files.look()


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(read_files, "CHECK_LIMIT_S", 60)
    monkeypatch.setattr(Tree, "start", TreeThatObeys)
    place = Place(tmp_path)
    yield place
    place.standby.end()


def message(event: str, **fields) -> TreeMessage:
    return TreeMessage(event, 5, fields)


def test_who_has_come_is_known(place):
    assert place.files.waiting == 0
    files_path(place.folder, 0).write_text("[")  # half of it
    place.files.look()
    assert place.files.waiting == 0
    place.tell(0)
    place.tell(1)
    assert place.files.waiting == 2
    assert place.standby.unfit_for(3, (0, 1)) == ""


def test_it_fits_before_anybody_has_come(place):
    assert place.standby.unfit_for(3, (0, 1)) == ""


def test_another_attempt_is_not_theirs(place):
    assert place.standby.unfit_for(4, (0, 1)) == "it was to be attempt 3"
    assert place.standby.unfit_for(3, (2, 3)) == "other ranks run here now"


def test_interpreters_that_only_wait_can_be_any_ranks(tmp_path, monkeypatch):
    monkeypatch.setattr(Tree, "start", TreeThatObeys)
    standby = Standby.start(range(2))
    commands = [RankCommand(rank, ["python"], {"HOLDFAST_IMPORTS": "-"}, "/", 1) for rank in (0, 1)]
    standby.prepare(["waiting"], lambda _: commands)
    assert standby.unfit_for(3, (0,)) == "1 ranks run here now, not 2"
    assert standby.unfit_for(3, (4, 5)) == ""
    standby.become((4, 5))
    assert [output.rank for output in standby.outputs] == [4, 5]
    standby.begin(GO, lambda _: commands)
    assert standby.tree.how == {"waited_as": [0, 1]}
    standby.end()


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
    assert place.standby.unfit_for(3, (0, 1)) == f"{path} has changed since it was read"


def test_a_look_that_is_under_way_may_have_passed_the_file_by(place, monkeypatch):
    begun, go_on, mark, wait_for = Event(), Event(), read_files.mark, read_files.Check.wait

    def late(path):
        found = mark(path)
        begun.set()
        go_on.wait()
        return found

    def going_on(check, limit_s):
        go_on.set()
        return wait_for(check, limit_s)

    monkeypatch.setattr(read_files, "mark", late)
    monkeypatch.setattr(read_files.Check, "wait", going_on)
    place.tell(0)
    begun.wait()
    place.script.unlink()
    assert place.standby.unfit_for(3, (0, 1)) == f"{place.script} has changed since it was read"


def test_a_disk_that_does_not_answer(place, monkeypatch):
    answered = Event()
    monkeypatch.setattr(read_files, "mark", lambda _path: answered.wait() and None)
    monkeypatch.setattr(read_files, "CHECK_LIMIT_S", 0.01)
    for _ in range(2):
        assert place.standby.unfit_for(3, (0, 1)) == "whether its files have changed cannot be told"
    answered.set()
    assert place.files._check.wait(60)


def test_a_change_before_it_was_told_of(place):
    """Read, changed, and then told of as it is now."""
    now_ns = time.time_ns() + 10**9
    os.utime(place.module, ns=(now_ns, now_ns))
    place.tell(0)
    assert "model.py has changed" in place.standby.unfit_for(3, (0, 1))


def test_the_script_counts_before_anybody_has_come(place):
    now_ns = time.time_ns() + 10**9
    os.utime(place.script, ns=(now_ns, now_ns))
    assert "train.py has changed" in place.standby.unfit_for(3, (0, 1))


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
    place.standby.hear(message("launched", pids={"0": 2**22 + 1}, woken=[0]))
    place.standby.hear(lost)
    place.standby.hear(message("gone"))
    assert words in place.standby.unfit_for(3, (0, 1))


def test_the_go_frees_and_opens(place):
    """Also where a rank has just died: that is the attempt's own affair by then."""
    launched = message("launched", pids={"0": 2**22 + 1}, woken=[0])
    place.standby.hear(launched)
    place.standby.begin(GO, place.commands)
    assert place.standby.tree.freed == 1
    assert wait(place.woken.gate.path, lambda: None) == GO
    assert place.standby.backlog == [launched]


def test_a_gate_that_cannot_be_opened_is_the_end_of_those_who_wait(place, monkeypatch):
    """The disk is full: they wait for nothing."""

    def full(_go):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(place.woken.gate, "open", full)
    place.standby.begin(GO, place.commands)
    assert place.standby.tree.killed == 1


@pytest.mark.parametrize(
    ("how", "flags", "stage"),
    [
        (StandbyMove.WAKE, {"held": False, "beside": False}, StandbyStage.AHEAD),
        (StandbyMove.WAKE_HELD, {"held": True, "beside": False}, StandbyStage.HELD),
        (StandbyMove.WAKE_BESIDE, {"held": False, "beside": True}, StandbyStage.AHEAD),
    ],
)
def test_how_far_it_has_come(tmp_path, monkeypatch, place, how, flags, stage):
    one = Standby.start(range(2))
    assert one.stage is StandbyStage.COLD
    one.prepare(["waiting"], place.commands)
    one.hear(message("standby", rank=0, status={"event": "ready"}))
    assert one.stage is StandbyStage.IMPORTING
    one.hear(message("standby", rank=1, status={"event": "unfit", "why": "it is a wrapper"}))
    assert one.stage is StandbyStage.READY
    one.wake(4, tmp_path / "attempt-0004", place.commands, how)
    assert (one.tree.how, one.stage) == (flags, stage)
    one.free()
    assert one.stage is StandbyStage.AHEAD
    one.end()


def test_one_that_lacks_an_interpreter_is_never_ready(place):
    one = Standby.start(range(2))
    one.prepare(["waiting"], place.commands)
    one.hear(message("standby", rank=0, status={"event": "ready"}))
    one.hear(message("standby_lost", rank=1))
    assert (one.stage, one.is_whole) == (StandbyStage.IMPORTING, False)
    one.hear(message("standby_lost", rank=0))
    assert one.stage is StandbyStage.COLD
    one.end()
