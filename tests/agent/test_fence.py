"""What lives on after its supervisor, guard and reaper is ended before a successor starts."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from processes import is_alive

from holdfast.agent import fence as fences
from holdfast.agent.fence import fence
from holdfast.errors import RunHeld

pytestmark = pytest.mark.real

RUN = secrets.token_hex(8)  # nobody else's on this machine, who may run the same tests
DAEMON = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve("/bin/sleep", ["sleep", "1000"], {})  # an environment of its own
    os.write(1, b"up\\n")
    while True: signal.pause()
while True: signal.pause()
"""


def start(run_id: str, *argv: str, **more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", *argv],
        env={**os.environ, "HOLDFAST_RUN_ID": run_id, **more},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.contract("takeover: what an earlier supervisor left is ended")
def test_everything_of_the_run_and_nothing_else_is_ended() -> None:
    mine, other = start(RUN, DAEMON), start(f"{RUN}2", "print('up', flush=True); input()")
    assert [one.stdout.readline() for one in (mine, other)] == ["up\n", "up\n"]
    ended = fence(RUN)
    assert len(ended) == 3, "parent, child, and a grandchild without the mark"
    assert not any(is_alive(pid) for pid in ended)
    assert is_alive(other.pid)
    assert fence(RUN) == []
    for one in (mine, other):
        one.kill()
        one.communicate()


def test_a_run_with_that_id_in_another_store_is_spared_while_it_is_there(tmp_path: Path) -> None:
    """Who copies a run copies its id; a store that was moved is no other one."""
    ours, others = tmp_path / "ours" / "r", tmp_path / "others" / "r"
    for folder in (ours, others):
        folder.mkdir(parents=True)
    where = {"HOLDFAST_STORE": str(others.parent), "HOLDFAST_RUN": "r"}
    process = start(RUN, "print('up', flush=True); input()", **where)
    assert process.stdout.readline() == "up\n"
    assert fence(RUN, folder=ours) == []
    assert is_alive(process.pid)
    others.rename(tmp_path / "moved")
    assert fence(RUN, folder=ours) == [process.pid]
    process.communicate()


def test_a_run_started_from_within_itself_is_spared() -> None:
    """A shell that somebody opened inside a training process: it, and all below it, stays."""
    code = """
import os, subprocess, sys
sleeper = subprocess.Popen(["sleep", "1000"])
code = "from holdfast.agent.fence import fence; print(fence('%s'))" % os.environ["HOLDFAST_RUN_ID"]
subprocess.run([sys.executable, "-c", code])
print(sleeper.poll(), flush=True)
sleeper.kill()
sleeper.wait()
"""
    shell = start(RUN, code)
    assert shell.communicate()[0].split() == ["[]", "None"]
    assert shell.returncode == 0


def test_what_survives_sigkill_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here nothing is really sent: what the kernel does not end cannot be had in a test."""
    monkeypatch.setattr(fences, "_kill", lambda *_: None)
    one = start(RUN, "print('up', flush=True); import signal; signal.pause()")
    one.stdout.readline()
    with pytest.raises(RunHeld, match=f"{one.pid} .* survive SIGKILL"):
        fence(RUN, limit_s=0.05)
    one.send_signal(signal.SIGKILL)
    one.communicate()
