"""Each check over a table of facts: what it finds, and what it leaves in peace."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.doctor.checks import CHECKS, examine
from holdfast.doctor.checks_host import numbers
from holdfast.doctor.checks_script import SAYS
from holdfast.doctor.facts import (
    BadHabit,
    Facts,
    FolderFacts,
    MemoryFacts,
    ObjectStore,
    RunRecord,
    ScriptHabit,
    SourceFact,
)

GIB = 1 << 30
RUN = RunRecord("lm", 2, 4 * GIB, step_s=1.0, blocked_s=1.0, write_s=2.5)  # needs 8 s
SHM = MemoryFacts("/dev/shm", "tmpfs", 3, 12 * GIB, "/dev/shm has 16 GiB free")
DISK = FolderFacts("/store", "ext4", free_bytes=100 * GIB, fsync_s=0.004, skew_s=0.0)
BUCKET = ObjectStore("s3://b/runs", took_s=0.02, skew_s=0.0, is_exclusive=True)
GCE = SourceFact("gce", "as set", has_answered=True)
WELL = Facts(
    run=RUN,
    state_bytes=4 * GIB,
    memory=SHM,
    store=DISK,
    scratch=FolderFacts("/var/tmp", "ext4"),
    sources=(GCE,),
    open_files=4096,
    core_bytes=0,
    core_pattern="core",
    locked_bytes=-1,
    has_infiniband=True,
    ptrace_scope=0,
    has_py_spy=True,
    is_synchronised=True,
    versions={"jax": "0.10.2", "jaxlib": "0.10.2", "torch": "2.13.0+cpu"},
)
DEAF = replace(GCE, has_answered=False, trouble="no connection")


GPU = {"devices": ("/dev/nvidia0", "/dev/nvidia1")}
NOTED = ["devices note"]


def run(**changes):
    return {"run": replace(RUN, **changes)}


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, []),
        ({"grace_s": 14.0}, []),  # 2 s to leave, 8 s needed, half of that again
        ({"grace_s": 13.9}, ["grace warning"]),
        ({"grace_s": 10.0}, ["grace warning"]),
        ({"grace_s": 9.9}, ["grace error"]),
        (run(write_s=300.0), ["grace error"]),
        (run(write_s=None), ["grace note"]),
        ({"run": None}, []),
        ({"sources": (DEAF,)}, ["notices error"]),
        ({"sources": (GCE, replace(DEAF, name="aws"))}, ["notices error"]),
        ({"sources": (replace(GCE, trouble="nodes are forbidden"),)}, ["notices warning"]),
        ({"sources": ()}, ["notices note"]),
        ({"store": replace(DISK, trouble="Permission denied")}, ["store error"]),
        ({"store": replace(DISK, fsync_s=0.5, skew_s=-30.0)}, ["store warning"] * 2),
        ({"store": replace(DISK, free_bytes=16 * GIB)}, []),  # three to keep, and one on its way
        ({"store": replace(DISK, free_bytes=16 * GIB - 1)}, ["room warning"]),
        ({"store": replace(DISK, free_bytes=8 * GIB - 1)}, ["room error"]),
        ({"store": replace(DISK, free_bytes=1), "state_bytes": None}, []),
        ({"store": None, "bucket": BUCKET, "mirror": DISK}, []),
        *[
            ({"store": None, "bucket": replace(BUCKET, step=step, trouble="no")}, ["bucket error"])
            for step in ("opened", "written", "read", "listed", "claimed", "deleted")
        ],
        ({"bucket": replace(BUCKET, is_exclusive=False)}, ["bucket error"]),
        ({"bucket": replace(BUCKET, took_s=0.6, skew_s=-30.0)}, ["bucket warning"] * 2),
        ({"bucket": BUCKET, "mirror": replace(DISK, trouble="no")}, ["bucket error"]),
        ({"scratch": FolderFacts("/home/me", "nfs4", is_remote=True)}, ["scratch error"]),
        ({"scratch": FolderFacts("/root", trouble="no")}, ["scratch error"]),
        ({"memory": replace(SHM, room_bytes=12 * GIB - 1)}, ["memory note"]),
        ({"memory": replace(SHM, room_bytes=4 * GIB - 1)}, ["memory warning"]),
        ({"memory": replace(SHM, room_bytes=0, buffers=0)}, []),
        ({"store": None, "bucket": BUCKET, "keeps_programs": True}, ["cache note"]),
        (
            {"store": None, "bucket": BUCKET, "keeps_programs": True, "has_cache_key": True},
            [],
        ),
        ({"has_cache_key": True, "cache_key_trouble": "others may open it"}, ["cache error"]),
        ({"memory": replace(SHM, filesystem="ext4")}, ["memory warning"]),
        ({"removes_ipc": True}, ["ipc warning"]),
        ({"removes_ipc": True, "memory": replace(SHM, buffers=0)}, []),
        (GPU, ["devices note"]),
        (GPU | {"memory": replace(SHM, buffers=0)}, []),
        (GPU | {"versions": {"numpy": "2.3"}}, []),
        ({"devices": ("/dev/accel0",), "versions": {"jax": "0.10.2", "libtpu": "0.0.2"}}, NOTED),
        ({"devices": ("/dev/vfio/0",), "versions": {"jax": "0.10.2"}}, []),  # of something else
        ({"is_synchronised": False}, ["clock note"]),
        ({"is_synchronised": None}, []),
        ({"suspended_s": 0.9}, []),
        ({"suspended_s": 3600.0}, ["suspend note"]),
        ({"open_files": 256}, ["files warning"]),
        ({"open_files": 1024, "ranks": 64}, ["files warning"]),
        ({"open_files": -1, "ranks": 640}, []),
        ({"core_bytes": -1}, ["core warning"]),
        ({"core_bytes": -1, "core_pattern": "|/usr/lib/systemd/systemd-coredump"}, []),
        ({"locked_bytes": 65536}, ["memlock warning"]),
        ({"locked_bytes": 65536, "has_infiniband": False}, []),
        ({"ptrace_scope": 1}, ["stacks note"]),
        ({"ptrace_scope": 2, "is_root": True}, []),
        ({"ptrace_scope": 3, "is_root": True}, ["stacks note"]),
        ({"has_py_spy": False}, ["stacks note"]),
        ({"versions": {"jax": "0.10.2", "jaxlib": "0.9.1"}}, ["versions error"]),
        ({"versions": {"torch": "2.3.1", "jax": "0.5.0"}}, ["versions warning"] * 2),
        ({"stranger": "holdfast-2.3 lies there, too"}, ["versions error"]),
        ({"versions": {"torch": "unknown"}}, ["versions warning"]),
        ({"jax_preemption": True, "torchrun_shares_store": True}, ["versions warning"] * 2),
    ],
)
def test_what_is_found(changes, found):
    findings = examine(replace(WELL, **changes))
    assert [f"{one.check} {one.severity}" for one in findings] == found
    for one in findings:
        assert one.check in CHECKS
        assert all((one.what, one.why, one.fix))


def test_the_gravest_comes_first_and_says_the_value():
    bad = replace(WELL, sources=(DEAF,), suspended_s=60.0, open_files=256)
    severities = [one.severity for one in examine(bad)]
    assert severities == ["error", "warning", "note"]
    assert "gce (as set) does not answer: no connection" in examine(bad)[0].what
    (short,) = examine(replace(WELL, grace_s=5.0))
    assert short.what == "--grace is 5 s, and a save of run 'lm' takes 8 s"
    assert "wait 14 s or more" in short.fix


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "are copied beside the next steps from /dev/nvidia0 and 1 more"),
        ({"cuda_trouble": "libcuda.so.1: no such file"}, "and 1 more: libcuda.so.1: no such file"),
        (
            {"versions": {"torch": "2.13.0+cpu"}},
            "more: torch is 2.13.0+cpu, which is built without",
        ),
        ({"versions": {"torch": "2.13.0+cu130"}}, "are copied beside the next steps"),
    ],
)
def test_what_is_copied_beside_the_steps_or_why_it_is_not(changes, words):
    (found,) = examine(replace(WELL, **GPU | changes))
    assert words in found.what
    assert ("run.snapshot_safe(False)" in found.fix) == ("are copied" in words)


def test_every_habit_of_a_script_has_its_words():
    assert set(SAYS) == set(BadHabit)
    habits = tuple(ScriptHabit(3, habit, "x()") for habit in BadHabit)
    findings = examine(replace(WELL, script="train.py", habits=habits))
    assert len(findings) == len(BadHabit)
    assert all("train.py:3 " in one.what for one in findings)


def test_numbers_of_versions():
    assert numbers("2.13.0+cpu") == (2, 13, 0)
    assert numbers("0.6.0.dev1") == (0, 6, 0)
    assert numbers("dev") == ()
