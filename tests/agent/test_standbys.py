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
from holdfast.agent.launch import imports_path
from holdfast.agent.reaper.processes import descendants
from holdfast.agent.standby import Standby
from holdfast.agent.standbys import GivenUpTree, StandbyJob, Standbys
from holdfast.agent.tree import RankCommand
from holdfast.core import actions as act
from holdfast.core.hosts.standby import StandbyOrder, StandbyStage

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
        self.standby = Standby.start(range(ranks))
        self.standby.prepare(WAITING, lambda outputs: commands(outputs, **how))
        self.tree = self.standby.tree
        self.heard = []
        self.is_closed = False

    def ready(self) -> None:
        """Wait until all of them are."""
        self.wait(lambda: self.standby.stage is StandbyStage.READY)

    def wait(self, condition) -> None:
        end = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < end, f"heard {self.heard}"
            select.select([self.tree], [], [], 0.5)
            self.standby.read()

    def waiting(self) -> list[int]:
        """The pids of the interpreters."""
        (reaper,) = children(self.tree.pid)
        return children(reaper)

    def launch(self, **how) -> None:
        self.tree.launch(commands(self.standby.outputs, **{**self.how, **how}))

    def until(self, event: str, count: int = 1):
        end = time.monotonic() + LIMIT_S
        while len(found := [m for m in self.heard if m.event == event]) < count:
            assert time.monotonic() < end, f"no {event}; heard {self.heard}"
            select.select([self.tree], [], [], 1.0)
            self.heard += self.tree.read()
        return found[-1]

    def line(self, rank: int) -> str:
        fd, text = self.standby.outputs[rank].read_fd, b""
        while not text.endswith(b"\n"):
            assert select.select([fd], [], [], LIMIT_S)[0], "no output"
            text += os.read(fd, 4096)
        return text.decode().strip()

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.standby.end()
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
def test_a_woken_interpreter_can_be_another_rank(following):
    one = following()
    one.ready()
    one.standby.become((5, 4))
    one.tree.launch(commands(one.standby.outputs, mode="now"), waited_as=(0, 1))
    launched = one.until("launched")
    assert launched.fields["woken"] == [5, 4]
    for place, rank in enumerate((5, 4)):
        assert one.line(place) == f"{rank} now {launched.fields['pids'][str(rank)]}"
    assert {m.fields["rank"] for m in one.heard if m.event == "standby"} <= {4, 5}
    one.until("exit", 2)
    assert {m.fields["rank"] for m in one.heard if m.event == "exit"} == {4, 5}


@pytest.mark.real
def test_what_it_says_of_itself_is_known(following):
    one = following(1)
    one.ready()
    said = one.standby.interpreters[0]
    assert (said.modules, said.memory_bytes) == (7, 90 << 20)
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


@pytest.mark.real
@pytest.mark.skipif(os.geteuid() != 0, reason="the way back from SCHED_IDLE is not open to all")
def test_one_that_is_late_with_its_imports_gives_way_no_more(following):
    one = following(1, mode="idle")
    one.ready()
    (pid,) = one.waiting()
    one.standby.lift()
    one.wait(lambda: os.sched_getscheduler(pid) == os.SCHED_OTHER)
    assert one.standby.idle_since_ns is None


@pytest.mark.contract("standby: a dead one costs a cold start")
def test_where_one_has_died_its_rank_starts_cold(following):
    one = following()
    one.ready()
    victim, other = one.waiting()
    os.kill(victim, signal.SIGKILL)
    one.wait(lambda: len(one.standby.interpreters) == 1)
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
    one.tree.launch(commands(one.standby.outputs[:1]))
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
    assert not one.standby.read()


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


class Keeper:
    """The standbys of a run of one rank, whose first attempt has told what it imports."""

    def __init__(
        self, scratch: Path, selector: selectors.BaseSelector, *, hot: bool, argv=WAITING
    ) -> None:
        imports_path(scratch, 0).write_text('{"restores": true}')
        self.said: list[str] = []
        self.how: dict[str, str] = {}
        self.selector = selector
        job = StandbyJob(argv, is_hot=hot)
        self.standbys = Standbys(job, (0,), scratch, selector, self._commands, self._say)
        self.order(StandbyOrder.READY)

    def _commands(self, outputs, *, attempt, gate):
        return commands(outputs, **self.how)

    def _say(self, words: str) -> None:
        if words != "Standbys are not forked: a stand-in":  # which is so for all of them
            self.said.append(words)

    def order(self, wanted: StandbyOrder) -> None:
        self.standbys.stand_by(act.StandBy(1, wanted))

    def turn_until(self, condition) -> None:
        end = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < end, (self.standbys.words, self.said)
            self.selector.select(0.05)
            self.standbys.turn([])

    def until_ready(self) -> None:
        self.turn_until(lambda: self.standbys.words.startswith("ready"))


@pytest.fixture
def keeper(tmp_path):
    with selectors.DefaultSelector() as selector:
        keeper = Keeper(tmp_path, selector, hot=False)
        yield keeper
        keeper.standbys.close()


@pytest.fixture
def hot_keeper(tmp_path):
    with selectors.DefaultSelector() as selector:
        keeper = Keeper(tmp_path, selector, hot=True)
        yield keeper
        keeper.standbys.close()


@pytest.mark.real
def test_the_keeper_says_what_is_ready(keeper):
    assert not keeper.standbys.words
    keeper.turn_until(lambda: keeper.standbys.words == "0 of 1 ready")
    keeper.turn_until(lambda: keeper.standbys.words == "ready, 1 × 90 MiB")
    taken, cold = keeper.standbys.take(1, (0,)), keeper.standbys.take(1, (0,))
    assert (taken.stage, cold.stage) == (StandbyStage.READY, StandbyStage.COLD)
    assert not keeper.standbys.words
    for one in (taken, cold):
        one.end()


@pytest.mark.real
def test_nothing_is_prepared_before_it_is_known_what_is_imported(tmp_path, keeper):
    imports_path(tmp_path, 0).unlink()
    keeper.standbys.turn([])
    assert not keeper.standbys.words


@pytest.mark.real
def test_one_that_is_not_wanted_any_more_is_dropped(keeper):
    keeper.until_ready()
    keeper.order(StandbyOrder.NONE)
    keeper.standbys.turn([])
    assert not keeper.standbys.words
    assert not keeper.said


@pytest.mark.real
def test_interpreters_that_end_by_themselves_are_given_up(keeper):
    keeper.how = {"mode": "dead"}
    keeper.turn_until(lambda: keeper.said)
    keeper.turn_until(lambda: not keeper.standbys.pids)
    keeper.standbys.turn([])
    assert not keeper.standbys.words
    assert len(keeper.said) == 1
    assert "restarts will take longer" in keeper.said[0]


@pytest.mark.real
def test_one_that_is_lost_ahead_is_said_once_and_never_hot_again(tmp_path, hot_keeper):
    """Here the script does not come to its gate: it ends ahead of its attempt."""
    hot_keeper.turn_until(lambda: hot_keeper.said)
    assert "ended ahead of its attempt (exit code 0)" in hot_keeper.said[0]
    assert hot_keeper.said[0].endswith("; it starts again with its attempt")
    hot_keeper.turn_until(lambda: not (tmp_path / "attempt-0001").exists())
    hot_keeper.until_ready()
    for _ in range(3):
        hot_keeper.standbys.turn([])
    assert hot_keeper.standbys.words.startswith("ready")
    assert len(hot_keeper.said) == 1


@pytest.mark.real
def test_a_folder_that_cannot_be_made(tmp_path, hot_keeper):
    (tmp_path / "attempt-0001").touch()
    hot_keeper.turn_until(lambda: hot_keeper.said)
    assert "attempt-0001 cannot be made (File exists)" in hot_keeper.said[0]
    assert not hot_keeper.standbys.words


@pytest.mark.real
def test_where_no_interpreter_can_be_started_the_run_goes_on_without(tmp_path):
    with selectors.DefaultSelector() as selector:
        keeper = Keeper(tmp_path, selector, hot=False, argv=[str(tmp_path / "gone")])
        keeper.turn_until(lambda: len(keeper.said) == 2)
        assert "cannot be started (No such file or directory)" in keeper.said[0]
        assert "restarts will take longer" in keeper.said[1]
        keeper.standbys.close()


@pytest.mark.real
def test_nothing_is_left_when_the_keeper_closes(keeper):
    keeper.until_ready()
    waiting = descendants(os.getpid())
    keeper.standbys.close()
    assert not [pid for pid in waiting if is_alive(pid)]


@pytest.mark.real
def test_a_tree_that_was_killed_is_not_taken(keeper):
    keeper.until_ready()
    (guard,) = keeper.standbys.pids
    reaper = children(guard)[0]
    os.kill(reaper, signal.SIGKILL)
    wait_dead(guard)
    taken = keeper.standbys.take(1, (0,))
    assert taken.stage is StandbyStage.COLD
    taken.end()


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
    monkeypatch.setattr(Standby, "start", lambda _ranks: None)  # what would start now
    folder = tmp_path / "attempt-0001"
    folder.mkdir()
    (folder / "of one that waited").touch()
    with selectors.DefaultSelector() as selector:
        keeper = Standbys(StandbyJob(WAITING), (0,), tmp_path, selector, commands, say=print)
        keeper._ending = [GivenUpTree(Given(asked), folder), GivenUpTree(Given(9), None)]
        keeper.take(1, (0,))
        assert not folder.exists()
        folder.mkdir()
        (folder / "its own").touch()
        for _ in range(20):
            keeper.look()
        assert (folder / "its own").exists()
        assert not keeper._ending


def test_the_folder_of_an_attempt_is_its_own_though_what_waited_cannot_be_killed(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(standbys_module, "CLEAR_LIMIT_S", 0.0)
    monkeypatch.setattr(Standby, "start", lambda _ranks: None)
    folder = tmp_path / "attempt-0001"
    folder.mkdir()
    with selectors.DefaultSelector() as selector:
        keeper = Standbys(StandbyJob(WAITING), (0,), tmp_path, selector, commands, say=print)
        tree = Given(1 << 60)
        keeper._ending = [GivenUpTree(tree, folder)]
        keeper.take(1, (0,))
        assert [path.name for path in tmp_path.iterdir()] == [f"given-up-{tree.pid}"]
        folder.mkdir()
        tree.asked = 0
        keeper.look()
        assert list(tmp_path.iterdir()) == [folder]
