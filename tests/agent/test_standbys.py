"""Trees prepared ahead of their attempt, with real processes: woken, lost, killed, and never left.

The interpreters here are stand-ins (`waiting.py`): what real ones do is tested in tests/standby.
"""

from __future__ import annotations

import ast
import os
import select
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.agent import standbys as standbys_module
from holdfast.agent.reaper import descendants
from holdfast.agent.standbys import GivenUpTree, Prepared, Standbys
from holdfast.agent.tree import RankCommand

WAITING = [sys.executable, str(Path(__file__).with_name("waiting.py"))]
LIMIT_S = 60.0
SAY = "import os; print(os.environ['RANK'], os.environ['MODE'], os.getpid(), flush=True)"


def commands(outputs, *, code=SAY, mode="", **env):
    return [
        RankCommand(
            output.rank,
            [sys.executable, "-c", code],
            {
                "PATH": os.environ["PATH"],
                "HOLDFAST_IMPORTS": "none",
                "RANK": str(output.rank),
                "MODE": mode,
                **env,
            },
            "/",
            output.write_fd,
        )
        for output in outputs
    ]


class Next:
    """A prepared tree, and everything its reaper has said so far."""

    def __init__(self, ranks: int = 2, **how) -> None:
        self.how = how
        self.prepared = Prepared(ranks, WAITING, lambda outputs: commands(outputs, **how))
        self.tree = self.prepared.tree
        self.heard = []
        self.is_closed = False

    def ready(self) -> None:
        """Wait until all of them are."""
        self.wait(lambda: all(one.is_ready for one in self.prepared.standbys.values()))

    def wait(self, condition) -> None:
        end = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < end, f"heard {self.heard}"
            select.select([self.tree], [], [], 0.5)
            self.prepared.read()

    def waiting(self) -> list[int]:
        """The pids of the interpreters."""
        (reaper,) = children(self.tree.pid)
        return children(reaper)

    def launch(self, **how) -> None:
        self.tree.launch(commands(self.prepared.outputs, **{**self.how, **how}))

    def until(self, event: str, count: int = 1):
        end = time.monotonic() + LIMIT_S
        while len(found := [m for m in self.heard if m.event == event]) < count:
            assert time.monotonic() < end, f"no {event}; heard {self.heard}"
            select.select([self.tree], [], [], 1.0)
            self.heard += self.tree.read()
        return found[-1]

    def line(self, rank: int) -> str:
        fd, text = self.prepared.outputs[rank].read_fd, b""
        while not text.endswith(b"\n"):
            assert select.select([fd], [], [], LIMIT_S)[0], "no output"
            text += os.read(fd, 4096)
        return text.decode().strip()

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.prepared.end()
            self.tree.close()


@pytest.fixture
def following():
    made = []

    def make(*args, **how) -> Next:
        made.append(Next(*args, **how))
        return made[-1]

    yield make
    for one in made:
        one.close()


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


def wait_dead(*pids: int) -> None:
    end = time.monotonic() + LIMIT_S
    while left := [pid for pid in pids if is_alive(pid)]:
        assert time.monotonic() < end, f"processes {left} are still there"
        time.sleep(0.002)


@pytest.mark.contract("standby: woken, it is the rank")
def test_a_woken_interpreter_is_the_rank(following):
    one = following()
    one.ready()
    before = one.waiting()
    one.launch(mode="now")
    launched = one.until("launched")
    assert launched.fields["woken"] == [0, 1]
    assert sorted(launched.fields["pids"].values()) == sorted(before)
    for rank in (0, 1):
        assert one.line(rank) == f"{rank} now {launched.fields['pids'][str(rank)]}"
    one.until("exit", 2)
    one.until("gone")


@pytest.mark.real
def test_what_it_says_of_itself_is_known(following):
    one = following(1)
    one.ready()
    standby = one.prepared.standbys[0]
    assert (standby.modules, standby.rss_bytes) == (7, 90 << 20)
    one.launch()
    assert one.until("standby").fields["status"] == {"event": "warm"}


@pytest.mark.real
def test_one_that_is_not_ready_is_woken_all_the_same(following):
    one = following(1, mode="quiet")
    one.launch()
    assert one.until("launched").fields["woken"] == [0]
    assert one.line(0).startswith("0 quiet")


@pytest.mark.real
@pytest.mark.skipif(os.geteuid() != 0, reason="the way back from SCHED_IDLE is not open to all")
def test_one_that_is_idle_is_lifted(following):
    code = "import os; print(os.sched_getscheduler(0) == os.SCHED_OTHER, flush=True)"
    one = following(1, mode="idle", code=code)
    one.ready()
    assert os.sched_getscheduler(next(iter(one.waiting()))) == os.SCHED_IDLE
    one.launch()
    assert one.line(0) == "True"


@pytest.mark.contract("standby: a dead one costs a cold start")
def test_where_one_has_died_its_rank_starts_cold(following):
    one = following()
    one.ready()
    victim, other = one.waiting()
    os.kill(victim, signal.SIGKILL)
    one.wait(lambda: len(one.prepared.standbys) == 1)
    one.launch()
    launched = one.until("launched").fields
    assert len(launched["woken"]) == 1
    assert launched["pids"][str(launched["woken"][0])] == other
    assert {one.line(rank).split()[0] for rank in (0, 1)} == {"0", "1"}
    one.until("gone")


@pytest.mark.real
def test_one_that_dies_as_it_is_woken_leaves_a_cold_start(following):
    """The reaper has not heard of the death yet: it is stopped meanwhile."""
    one = following(1)
    one.ready()
    (reaper,) = children(one.tree.pid)
    (victim,) = one.waiting()
    os.kill(reaper, signal.SIGSTOP)
    one.launch()
    os.kill(victim, signal.SIGKILL)
    wait_dead(victim)
    os.kill(reaper, signal.SIGCONT)
    assert one.until("launched").fields["woken"] == []
    assert one.line(0).startswith("0 ")


@pytest.mark.real
def test_an_environment_that_does_not_fit_into_the_pipe_starts_cold(following):
    one = following(1)
    one.ready()
    one.launch(**{f"BIG_{number}": "x" * 100_000 for number in range(12)})
    assert one.until("launched").fields["woken"] == []
    assert one.line(0).startswith("0 ")


@pytest.mark.real
def test_a_rank_has_no_descriptor_but_its_own(following):
    code = """
import os
found = []
for name in os.listdir("/proc/self/fd"):
    try: found.append(name + ":" + os.readlink("/proc/self/fd/" + name))
    except OSError: pass
print(found, flush=True)
"""
    one = following(code=code)
    one.ready()
    one.launch()
    for rank in (0, 1):
        found = ast.literal_eval(one.line(rank))
        # The stand-in leaves the two pipes open by which it was woken; real ones close them.
        assert [int(word.partition(":")[0]) <= 2 for word in found].count(False) == 2, found


@pytest.mark.real
def test_interpreters_end_when_nobody_wants_them(following):
    one = following()
    one.ready()
    waiting = one.waiting()
    one.close()
    assert not any(is_alive(pid) for pid in (one.tree.pid, *waiting))


@pytest.mark.real
def test_fewer_ranks_than_were_prepared_leave_nobody_waiting(following):
    one = following()
    one.ready()
    waiting = one.waiting()
    one.tree.launch(commands(one.prepared.outputs[:1]))
    one.until("gone")
    wait_dead(*waiting)


@pytest.mark.real
@pytest.mark.parametrize("victims", [["guard"], ["reaper"], ["guard", "reaper"]], ids="+".join)
def test_when_guard_or_reaper_is_killed_the_interpreters_go(following, victims):
    one = following()
    one.ready()
    guard, waiting = one.tree.pid, one.waiting()
    (reaper,) = children(guard)
    for victim in victims:
        os.kill({"guard": guard, "reaper": reaper}[victim], signal.SIGSTOP)
    for victim in victims:
        os.kill({"guard": guard, "reaper": reaper}[victim], signal.SIGKILL)
    wait_dead(guard, reaper, *waiting)
    assert not one.prepared.read()


AGENT = """
import select, sys
sys.path.insert(0, sys.argv[1])
from test_standbys import Next
one = Next()
one.ready()
print(one.tree.pid, *one.waiting(), flush=True)
select.select([], [], [])
"""


@pytest.mark.real
@pytest.mark.parametrize(
    "victims",
    [["agent"], ["agent", "reaper"], ["guard", "agent"], ["agent", "guard", "reaper"]],
    ids="+".join,
)
def test_when_the_agent_is_killed_the_interpreters_go(victims):
    process = subprocess.Popen(
        [sys.executable, "-c", AGENT, str(Path(__file__).parent)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    guard, *waiting = map(int, process.stdout.readline().split())
    pids = {"agent": process.pid, "guard": guard, "reaper": children(guard)[0]}
    for pid in pids.values():
        os.kill(pid, signal.SIGSTOP)  # so that none of them sees another one die first
    for name in victims:
        os.kill(pids[name], signal.SIGKILL)
    for name in pids.keys() - set(victims):
        os.kill(pids[name], signal.SIGCONT)
    process.wait()
    process.stdout.close()
    wait_dead(guard, pids["reaper"], *waiting)


@pytest.fixture
def keeper():
    said: list[str] = []
    with selectors.DefaultSelector() as selector:
        keeper = Standbys(1, WAITING, selector, said.append)
        keeper.said = said
        keeper.selector = selector
        yield keeper
        keeper.close()


def look_until(keeper, condition) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end, keeper.words
        keeper.selector.select(0.5)
        keeper.look()


@pytest.mark.real
def test_the_keeper_says_what_is_ready(keeper):
    assert keeper.are_wanted
    keeper.prepare(commands)
    assert not keeper.are_wanted
    assert keeper.words == "0 of 1 ready"
    look_until(keeper, lambda: keeper.words == "ready, 1 × 90 MiB")
    prepared = keeper.take(1)
    assert keeper.take(1) is None
    assert keeper.are_wanted
    prepared.end()


@pytest.mark.real
def test_interpreters_that_end_by_themselves_are_given_up(keeper):
    for _ in range(standbys_module.TRIES):
        look_until(keeper, lambda: keeper.are_wanted)
        keeper.prepare(lambda outputs: commands(outputs, mode="dead"))
        look_until(keeper, lambda: not keeper.words)
    assert not keeper.are_wanted
    assert len(keeper.said) == 1


@pytest.mark.real
def test_nothing_is_left_when_the_keeper_closes(keeper):
    keeper.prepare(commands)
    look_until(keeper, lambda: keeper.words.startswith("ready"))
    waiting = descendants(os.getpid())
    keeper.close()
    assert not [pid for pid in waiting if is_alive(pid)]


@pytest.mark.real
def test_a_tree_that_was_killed_is_not_taken(keeper):
    keeper.prepare(commands)
    look_until(keeper, lambda: keeper.words.startswith("ready"))
    guard = keeper._prepared.tree.pid
    reaper = children(guard)[0]
    os.kill(reaper, signal.SIGKILL)
    wait_dead(guard)
    assert keeper.take(1) is None


class Given:
    """A tree that was given up: it is asked whether it has ended, and has after so many times."""

    pid = 123456789

    def __init__(self, asked: int) -> None:
        self.asked = asked

    def ended(self) -> bool:
        self.asked -= 1
        return self.asked < 0


@pytest.mark.parametrize("asked", [0, 1, 2, 5])
def test_the_folder_of_an_attempt_is_cleared_once_and_before_it_begins(
    tmp_path, asked, monkeypatch
):
    """However late what waited for it is gone: what it then makes itself is its own."""
    monkeypatch.setattr(standbys_module, "LOOK_S", 0)
    folder = tmp_path / "attempt-0001"
    folder.mkdir()
    (folder / "of one that waited").touch()
    with selectors.DefaultSelector() as selector:
        keeper = Standbys(1, WAITING, selector, say=print)
        keeper._ending = [GivenUpTree(Given(asked), folder), GivenUpTree(Given(9), None)]
        assert keeper.take(1) is None
        assert not folder.exists()
        folder.mkdir()
        (folder / "its own").touch()
        for _ in range(20):
            keeper.look()
        assert (folder / "its own").exists()
        assert keeper.are_wanted


def test_the_folder_of_an_attempt_is_its_own_though_what_waited_cannot_be_killed(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(standbys_module, "CLEAR_LIMIT_S", 0.0)
    folder = tmp_path / "attempt-0001"
    folder.mkdir()
    with selectors.DefaultSelector() as selector:
        keeper = Standbys(1, WAITING, selector, say=print)
        tree = Given(1 << 60)
        keeper._ending = [GivenUpTree(tree, folder)]
        keeper.take(1)
        assert [path.name for path in tmp_path.iterdir()] == [f"given-up-{tree.pid}"]
        folder.mkdir()
        tree.asked = 0
        keeper.look()
        assert list(tmp_path.iterdir()) == [folder]
