"""The reaper with real processes: nothing outlives an attempt, whoever is killed."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.agent.reaper import PR_SET_CHILD_SUBREAPER, descendants
from holdfast.agent.tree import RankCommand, Tree, become_subreaper

LIMIT_S = 20.0


class Attempt:
    """A tree with one output pipe, and everything its reaper has said so far."""

    def __init__(self, *commands: list[str]) -> None:
        self.read_fd, write_fd = os.pipe()
        self.tree = Tree(
            [
                RankCommand(rank, argv, dict(os.environ), "/", write_fd)
                for rank, argv in enumerate(commands)
            ]
        )
        os.close(write_fd)
        self.heard = []
        self._rest = b""

    def until(self, event: str, count: int = 1):
        """Wait until the reaper has said `event` that often; returns the last such message."""
        end = time.monotonic() + LIMIT_S
        while len(found := [m for m in self.heard if m.event == event]) < count:
            assert time.monotonic() < end, f"no {event}; heard {self.heard}"
            select.select([self.tree], [], [], 1.0)
            self.heard += self.tree.read()
        return found[-1]

    def line(self) -> str:
        """The next line the ranks print."""
        while b"\n" not in self._rest:
            assert select.select([self.read_fd], [], [], LIMIT_S)[0], "no output"
            data = os.read(self.read_fd, 4096)
            assert data, "the ranks closed their output"
            self._rest += data
        line, self._rest = self._rest.split(b"\n", 1)
        return line.decode()

    def close(self) -> None:
        self.tree.close()
        os.close(self.read_fd)


@pytest.fixture
def attempt():
    attempts = []

    def start(*commands: list[str]) -> Attempt:
        attempts.append(Attempt(*commands))
        return attempts[-1]

    yield start
    for one in attempts:
        one.close()


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


def wait_dead(pid: int) -> None:
    end = time.monotonic() + LIMIT_S
    while is_alive(pid):
        assert time.monotonic() < end, f"process {pid} is still there"
        select.select([], [], [], 0.005)


WAIT = "import signal; signal.pause()"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("raise SystemExit(3)", (3, None)),
        ("import os; os.kill(os.getpid(), 9)", (None, 9)),
        ("import os; os.abort()", (None, 6)),
        ("pass", (0, None)),
    ],
)
def test_exit_is_reported(attempt, code, expected):
    one = attempt(python(code))
    exit_ = one.until("exit")
    assert (exit_.fields["code"], exit_.fields["signal"]) == expected
    one.until("gone")


def test_a_command_that_does_not_exist_starts_nothing(attempt):
    one = attempt(["no-such-command-here"], python(WAIT))
    failure = one.until("spawn_failed").fields["failures"][0]
    assert failure["rank"] == 0
    assert "no-such-command-here" in failure["where"]
    one.until("gone")
    assert not [m for m in one.heard if m.event == "launched"]


def test_double_forked_sessions_die_with_the_last_rank(attempt):
    code = """
import os, signal, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print(os.getpid(), flush=True)
        signal.pause()
    os._exit(0)
os.wait()
sys.stdin.read()
os.kill(os.getppid(), 0)
"""
    one = attempt(python(code))
    daemon = int(one.line())
    one.until("gone")
    assert not is_alive(daemon)


def test_kill_ends_everything_at_once(attempt):
    one = attempt(python(WAIT), python(WAIT))
    pids = one.until("launched").fields["pids"].values()
    one.tree.kill()
    one.until("gone")
    assert not any(is_alive(pid) for pid in pids)
    assert [m.fields["signal"] for m in one.heard if m.event == "exit"] == [9, 9]


def test_a_stopped_rank_can_be_killed(attempt):
    one = attempt(python("import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"))
    one.until("launched")
    one.tree.kill()
    one.until("gone")


def test_a_signal_goes_to_one_rank(attempt):
    code = """
import os, signal
signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
os.write(1, b"ready\\n")  # in one write: two ranks share the pipe
while True: signal.pause()
"""
    one = attempt(python(code), python(code))
    assert [one.line(), one.line()] == ["ready", "ready"]
    one.tree.signal(signal.SIGTERM, rank=1)
    exit_ = one.until("exit")
    assert (exit_.fields["rank"], exit_.fields["code"]) == (1, 7)
    one.tree.kill()
    one.until("gone")


def test_ranks_start_with_default_signal_dispositions(attempt):
    code = """
import signal
names = [n for n in ("SIGTERM","SIGHUP","SIGUSR1","SIGQUIT","SIGCHLD") if
         signal.getsignal(getattr(signal, n)) is not signal.SIG_DFL]
print(names, signal.pthread_sigmask(signal.SIG_BLOCK, []), flush=True)
"""
    assert attempt(python(code)).line() == "[] set()"


def test_the_reaper_ignores_signals_meant_for_others(attempt):
    one = attempt(python(WAIT))
    one.until("launched")
    reaper = one.tree._process.pid
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGQUIT):
        os.kill(reaper, number)
    one.tree.kill()
    assert one.until("exit").fields["signal"] == 9
    one.until("gone")


def test_when_the_agent_is_killed_its_tree_goes(tmp_path):
    """The agent here is a process of its own, killed with SIGKILL."""
    agent = tmp_path / "agent.py"
    agent.write_text(
        """
import os, select, sys
from holdfast.agent.tree import RankCommand, Tree
r, w = os.pipe()
tree = Tree([RankCommand(0, [sys.executable, "-c", "import signal; signal.pause()"],
                         dict(os.environ), "/", w)])
while True:
    select.select([tree], [], [])
    for message in tree.read():
        if message.event == "launched":
            print(message.fields["pids"]["0"], tree._process.pid, flush=True)
"""
    )
    process = subprocess.Popen([sys.executable, str(agent)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    rank, reaper = map(int, process.stdout.readline().split())
    process.kill()
    process.wait()
    process.stdout.close()
    wait_dead(rank)
    wait_dead(reaper)


def test_when_the_reaper_is_killed_the_agent_ends_its_orphans(attempt):
    become_subreaper()
    try:
        one = attempt(python(WAIT))
        rank = one.until("launched").fields["pids"]["0"]
        os.kill(one.tree._process.pid, signal.SIGKILL)
        assert select.select([one.tree.pidfd], [], [], LIMIT_S)[0]
        assert one.tree.ended()
        assert one.tree.sweep_orphans() == []
        assert not is_alive(rank)
    finally:
        # Else this process would adopt the orphans of every later test, and never reap them.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def test_descendants_are_found_through_dead_parents(attempt):
    one = attempt(python(WAIT))
    rank = one.until("launched").fields["pids"]["0"]
    assert rank in descendants(one.tree._process.pid)
    assert descendants(rank) == []
