"""The release step: whatever fails of it is said, and keeps nothing else from being done."""

from __future__ import annotations

import os
import sys

import pytest

from holdfast.agent.daemon.release import LIMIT_NS, ReleaseStep
from holdfast.config.trusted import Untrusted


@pytest.mark.contract("host daemon: the command that releases the host")
def test_the_command_is_run_though_the_file_cannot_be_touched(tmp_path, eventually):
    done = tmp_path / "done"
    write = [sys.executable, "-I", "-S", "-c", f"open({str(done)!r}, 'x')"]
    step = ReleaseStep(write, tmp_path / "none" / "flag")
    assert step.start(0) is None
    is_done, words = eventually(lambda: step.poll(1))
    assert not is_done
    assert words.startswith(f"{tmp_path}/none/flag: No such file or directory; ")
    assert words.endswith("exit code 0")
    assert done.exists()


def test_the_file_is_never_touched_through_a_link(tmp_path):
    victim, flag = tmp_path / "victim", tmp_path / "flag"
    flag.symlink_to(victim)
    assert ReleaseStep(file=flag).start(0) == (False, f"{flag} is a link: name the file itself")
    assert not victim.exists()
    flag.unlink()
    flag.touch()
    before_ns = flag.stat().st_mtime_ns
    os.utime(flag, ns=(0, 0))
    assert ReleaseStep(file=flag).start(0) == (True, f"touch {flag}")
    assert flag.stat().st_mtime_ns >= before_ns


def test_a_folder_that_everybody_may_write_is_refused_at_once(tmp_path):
    tmp_path.chmod(0o777)
    with pytest.raises(Untrusted, match="everybody may write"):
        ReleaseStep(file=tmp_path / "flag").check()
    tmp_path.chmod(0o1777)
    ReleaseStep(file=tmp_path / "flag").check()
    ReleaseStep(file=tmp_path / "none" / "flag").check()  # perhaps it is made later
    ReleaseStep().check()


@pytest.mark.real
def test_a_command_that_is_not_there_and_none_at_all(tmp_path):
    assert ReleaseStep(["/no/such"]).start(0) == (False, "/no/such: No such file or directory")
    assert ReleaseStep().start(0) == (True, "do nothing (no release step is set)")
    assert ReleaseStep(file=tmp_path / "flag").start(0) == (True, f"touch {tmp_path}/flag")
    assert (tmp_path / "flag").exists()


@pytest.mark.real
def test_a_command_that_takes_too_long_is_ended():
    step = ReleaseStep(["sleep", "1000"])
    assert step.start(7) is None
    assert step.start(8) == (False, "the command of an earlier release still runs")
    assert step.poll(7 + LIMIT_NS - 1) is None
    assert step.poll(7 + LIMIT_NS) == (
        False,
        "run sleep 1000: ended, it took longer than a minute",
    )
    assert step.poll(8 + LIMIT_NS) is None
    assert step.deadline_ns is None
