"""The release step: whatever fails of it is said, and keeps nothing else from being done."""

from __future__ import annotations

import sys

from holdfast.agent.release import LIMIT_NS, ReleaseStep


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


def test_a_command_that_is_not_there_and_none_at_all(tmp_path):
    assert ReleaseStep(["/no/such"]).start(0) == (False, "/no/such: No such file or directory")
    assert ReleaseStep().start(0) == (True, "do nothing (no release step is set)")
    assert ReleaseStep(file=tmp_path / "flag").start(0) == (True, f"touch {tmp_path}/flag")
    assert (tmp_path / "flag").exists()


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
