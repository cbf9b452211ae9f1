"""Slurm's `scontrol`: the job's end, drains and reservations, and a program that misbehaves."""

from __future__ import annotations

import pytest

from holdfast.core.notices.board import NoticeAction, NoticeState
from holdfast.notices import slurm as source
from holdfast.testing.slurm import JOB, NODE, SlurmEmulator

INSIDE = {"SLURM_JOB_ID": JOB, "SLURMD_NODENAME": NODE, "PATH": "/usr/bin:/bin"}


@pytest.fixture
def slurm(tmp_path):
    with SlurmEmulator(tmp_path) as emulator:
        yield emulator


@pytest.fixture
def watching(slurm, listening):
    return listening(f"slurm:{slurm.path}", environment=INSIDE, naps=True)


def test_the_end_a_drain_and_a_reservation_are_told_once(slurm, watching):
    (told,) = watching.heard(1)
    assert told.action == NoticeAction.TIME_LIMIT
    assert watching.leaves(told, 3600)
    slurm.do("reserve", "elsewhere", "600", "4200", "n2,n3")
    slurm.do("reserve", "no-maintenance", "600", "4200", NODE, "FLEX")
    slurm.do("reserve", "too-late", "3700", "7200")
    slurm.do("state", "MIXED+DRAIN", "bad fan, soon")
    told = watching.heard(2)[1]
    assert told.action is NoticeAction.DRAIN
    assert told.words.startswith("the node is drained: bad fan, soon [root@")
    slurm.do("reserve", "june", "600", "4200", f"n2,{NODE}")
    told = watching.heard(3)[2]
    assert told.words == "maintenance reservation june"
    assert watching.leaves(told, 600)
    slurm.do("release", "june")
    assert (watching.heard(4)[3].key, watching.heard(4)[3].state) == (
        told.key,
        NoticeState.WITHDRAWN,
    )
    slurm.do("end", "15", "preempted")
    told = watching.heard(5)[4]
    assert told.words == "the job is preempted"
    assert watching.leaves(told, 15)
    assert told.key == watching.heard(1)[0].key
    asked = len(slurm.calls)
    watching.until(lambda: len(slurm.calls) > asked + 6)
    assert (len(watching.notices), watching.said) == (5, [])


@pytest.mark.parametrize("how", ["fail", "hang", "giant", "html"])
def test_trouble_is_counted_said_once_and_over(slurm, listening, how, monkeypatch):
    monkeypatch.setattr(source, "LIMIT_S", 0.1 if how == "hang" else 60)
    slurm.do("fail", how)
    watching = listening(f"slurm:{slurm.path}", environment=INSIDE, naps=True)
    watching.until(lambda: watching.standing.failures >= 2)
    slurm.do("recover")
    monkeypatch.undo()
    watching.heard(1)
    watching.answered()
    assert watching.trouble_was_said()


def test_a_program_that_is_not_there_and_one_that_hangs_at_the_end(slurm, listening, monkeypatch):
    monkeypatch.setattr(source, "LIMIT_S", 600)  # nobody waits for that at the end
    watching = listening("slurm:/nowhere/scontrol", environment=INSIDE)
    watching.until(lambda: watching.standing.failures)
    assert "/nowhere/scontrol cannot be run" in watching.said[0][1]
    slurm.do("fail", "hang")
    listening(f"slurm:{slurm.path}", environment=INSIDE)
    watching.until(lambda: slurm.calls)
