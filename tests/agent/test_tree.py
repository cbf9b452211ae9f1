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
from processes import await_dead, is_alive

from holdfast.agent import tree
from holdfast.agent.reaper.processes import PR_SET_CHILD_SUBREAPER, Fate, descendants
from holdfast.agent.tree import RankCommand, Tree, become_subreaper

pytestmark = pytest.mark.real

LIMIT_S = 60.0


def reaper_of(guard: int) -> int:
    """The guard's only child."""
    (pid,) = Path(f"/proc/{guard}/task/{guard}/children").read_text().split()
    return int(pid)


class Attempt:
    """A tree with one output pipe, and everything its reaper has said so far."""

    def __init__(self, *commands: list[str]) -> None:
        self.read_fd, write_fd = os.pipe()
        self.tree = Tree.start([write_fd])
        self.tree.launch(
            [
                RankCommand(rank, argv, dict(os.environ), "/", write_fd)
                for rank, argv in enumerate(commands)
            ]
        )
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


WAIT = "import signal; signal.pause()"


@pytest.mark.contract("spawn: how a rank ended is reported")
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
    assert failure["where"] == "no-such-command-here"  # and no folder of PATH
    one.until("gone")
    assert not [m for m in one.heard if m.event == "launched"]


@pytest.mark.contract("kill: what left the tree goes with it")
def test_double_forked_sessions_die_with_the_last_rank(attempt):
    code = """
import os, signal
said, says = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print(os.getpid(), flush=True)
        os.write(says, b".")
        while True: signal.pause()
    os._exit(0)
os.wait()
os.read(said, 1)  # the last rank does not leave before its orphan is known
"""
    one = attempt(python(code))
    daemon = int(one.line())
    one.until("gone")
    assert not is_alive(daemon)


@pytest.mark.contract("kill: a whole tree, whatever it does")
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


@pytest.mark.contract("signal: to one rank")
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
    guard = one.tree._process.pid
    for pid in (guard, reaper_of(guard)):
        for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGQUIT"):
            os.kill(pid, signal.Signals[name])
    one.tree.signal(signal.SIGUSR2)  # the reaper hears it after all of those
    assert one.until("exit").fields["signal"] == signal.SIGUSR2
    one.until("gone")


AGENT = """
import os, select, sys
from holdfast.agent.tree import RankCommand, Tree
r, w = os.pipe()
tree = Tree.start([w])
tree.launch([RankCommand(0, [sys.executable, "-c", sys.argv[1]], dict(os.environ), "/", w)])
read = os.fdopen(r)
print(tree._process.pid, read.readline().strip(), flush=True)
while True:
    select.select([tree], [], [])
    tree.read()
"""

# A rank with a daemon that has left its session and its parents, and ignores what it can.
FAMILY = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
rank = os.getpid()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.write(1, b"%d %d\\n" % (rank, os.getpid()))
        while True: signal.pause()
    os._exit(0)
while True: signal.pause()
"""


@pytest.mark.parametrize(
    "victims",
    [
        ["agent"],
        ["agent", "reaper"],
        ["reaper", "agent"],
        ["agent", "guard"],
        ["guard", "agent"],
    ],
    ids="+".join,
)
def test_when_the_agent_is_killed_its_tree_goes(tmp_path, victims):
    """The agent here is a process of its own, killed with SIGKILL, alone or with another."""
    agent = tmp_path / "agent.py"
    agent.write_text(AGENT)
    process = subprocess.Popen([sys.executable, agent, FAMILY], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    guard, rank, daemon = map(int, process.stdout.readline().split())
    pids = {"agent": process.pid, "guard": guard, "reaper": reaper_of(guard)}
    for pid in pids.values():
        os.kill(pid, signal.SIGSTOP)  # so that none of them sees another one die first
    for name in victims:
        os.kill(pids[name], signal.SIGKILL)
    for name in pids.keys() - set(victims):
        os.kill(pids[name], signal.SIGCONT)
    process.wait()
    process.stdout.close()
    for pid in (rank, daemon, guard, pids["reaper"]):
        await_dead(pid)


@pytest.mark.contract("kill: ranks do not outlive a killed agent")
def test_when_agent_guard_and_reaper_are_killed_the_ranks_go(tmp_path):
    agent = tmp_path / "agent.py"
    agent.write_text(AGENT)
    code = "import os, signal; print(os.getpid(), 0, flush=True); signal.pause()"
    process = subprocess.Popen([sys.executable, agent, code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    guard, rank, _ = map(int, process.stdout.readline().split())
    victims = [reaper_of(guard), guard, process.pid]
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in victims:
            os.kill(pid, number)
    process.wait()
    process.stdout.close()
    await_dead(rank)


@pytest.fixture
def subreaper():
    become_subreaper()
    yield
    # Else this process would adopt the orphans of every later test, and never reap them.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


@pytest.mark.parametrize("victim", ["guard", "reaper", "both"])
def test_when_the_reaper_is_killed_its_orphans_go(attempt, subreaper, victim):
    one = attempt(python(FAMILY))
    rank, daemon = map(int, one.line().split())
    guard = one.tree._process.pid
    pids = {"guard": [guard], "reaper": [reaper_of(guard)], "both": [reaper_of(guard), guard]}
    for pid in pids[victim]:
        os.kill(pid, signal.SIGKILL)
    assert select.select([one.tree.pidfd], [], [], LIMIT_S)[0]
    assert one.tree.ended()
    assert one.tree.sweep_orphans() == []
    assert not is_alive(rank)
    assert not is_alive(daemon)


def test_a_reaper_that_does_nothing_is_ended(attempt, subreaper, monkeypatch):
    monkeypatch.setattr(tree, "KILL_LIMIT_S", 0.1)
    one = attempt(python(FAMILY))
    rank, daemon = map(int, one.line().split())
    os.kill(reaper_of(one.tree._process.pid), signal.SIGSTOP)
    one.tree.kill()
    end = time.monotonic() + LIMIT_S
    while not one.tree.ended():
        assert time.monotonic() < end
        select.select([one.tree.pidfd], [], [], 0.05)
    assert one.tree.sweep_orphans() == []
    assert not is_alive(rank)
    assert not is_alive(daemon)


def test_closing_waits_no_longer_than_it_may(attempt):
    one = attempt(python(WAIT))
    guard = one.tree._process.pid
    one.until("launched")
    reaper = reaper_of(guard)
    for pid in (reaper, guard):
        os.kill(pid, signal.SIGSTOP)
    one.tree.close(limit_s=0.1)
    for pid in (guard, reaper):
        os.kill(pid, signal.SIGCONT)
    await_dead(guard)


@pytest.mark.parametrize(
    ("end", "is_told"),
    [
        ("os._exit(0)", False),  # the kernel says 0 as well where we may not know
        ("os._exit(3)", True),
        ("os.kill(os.getpid(), signal.SIGKILL)", True),
        ("signal.signal(signal.SIGTERM, signal.SIG_DFL); os.kill(os.getpid(), 15)", False),
        ("os.abort()", False),  # it may dump core
    ],
)
def test_how_a_child_ends_is_known_before_it_is_waited_for(end, is_told):
    """Nobody waits for it here: the kernel tells the same while it still frees the memory."""
    command = [sys.executable, "-c", f"import os, signal; input(); {end}"]
    child = subprocess.Popen(command, stdin=subprocess.PIPE)
    fate = Fate(child.pid)
    assert fate.look() is None
    child.stdin.write(b"\n")
    child.stdin.flush()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    told = fate.look()
    _, status = os.waitpid(child.pid, 0)
    assert fate.look() is None  # it is gone, and another may have its number
    fate.close()
    assert told == (status if is_told else None)
    child.returncode = status
    child.stdin.close()


def test_descendants_are_found_through_dead_parents(attempt):
    one = attempt(python(WAIT))
    rank = one.until("launched").fields["pids"]["0"]
    assert rank in descendants(one.tree._process.pid)
    assert descendants(rank) == []
