"""The fork server and its trees: whose child is who, what ends with whom, what is imported anew."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import standing
from forking import Forking
from processes import await_dead, is_alive
from standing import LIMIT_S

from holdfast.agent.reaper import processes

Serve = Callable[..., Forking]
pytestmark = pytest.mark.real

SAY = "import os, sys; print(os.environ['RANK'], os.getppid(), 'counted' in sys.modules)"
WAIT = "import os, signal; print(os.getpid(), flush=True); signal.pause()"
COUNTED = """
import os
with open(os.environ["COUNT"], "a") as file:
    file.write(f"{os.getpid()}\\n")
VALUE = 1
"""
COLLECTING = """
import gc, os
def note(phase, info):
    if phase == "start" and info["generation"] == 2:
        with open(os.environ["COUNT"], "a") as file:
            file.write(f"{os.getpid()}\\n")
gc.callbacks.append(note)
"""


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A folder on the path that counts as a library's, with one module that counts its imports."""
    place = tmp_path / "site-packages"
    place.mkdir()
    (place / "counted.py").write_text(COUNTED)
    return place


@pytest.fixture
def serve(tmp_path: Path, library: Path, surroundings: dict[str, str], fork_server: Serve) -> Serve:
    """Start a fork server for some code, which has learned of these modules."""

    def start(code: str, *modules: str) -> Forking:
        paths = filter(None, (str(library), surroundings.get("PYTHONPATH")))
        count = str(tmp_path / "count")
        env = {**surroundings, "PYTHONPATH": ":".join(paths), "COUNT": count}
        learned = standing.learn(tmp_path / "imports.json", *(modules or ["counted"]), env=env)
        (tmp_path / "count").write_text("")
        return fork_server([sys.executable, "-c", code], learned, tmp_path, env)

    return start


def reaper_of(guard: int) -> int:
    (reaper,) = Path(f"/proc/{guard}/task/{guard}/children").read_text().split()
    return int(reaper)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])


@pytest.mark.contract("fork server: what it has imported is every attempt's, and imported once")
def test_one_import_serves_every_attempt(tmp_path: Path, serve: Serve) -> None:
    server = serve(SAY)
    server.until_ready()
    for _ in range(2):
        forked = server.fork(ranks=2)
        forked.told("ready", 2)
        guard = forked.tree.pid
        assert parent_of(guard) == os.getpid()
        reaper = reaper_of(guard)
        forked.launch()
        said = sorted(forked.line(rank).split() for rank in range(2))
        assert said == [[str(rank).encode(), str(reaper).encode(), b"True"] for rank in range(2)]
        codes = [one.fields["code"] for one in forked.until("exit", 2)]
        assert codes == [0, 0]
        forked.close()
    assert (tmp_path / "count").read_text().split() == [str(server.server.pid)]


def test_what_it_has_imported_is_looked_through_for_garbage_once(
    tmp_path: Path, library: Path, serve: Serve
) -> None:
    (library / "collecting.py").write_text(COLLECTING)
    server = serve("pass", "collecting")
    server.until_ready()
    for _ in range(3):  # each is asked of a server that is done with what follows the last fork
        server.fork().told("ready")
    assert (tmp_path / "count").read_text().split().count(str(server.server.pid)) == 1


@pytest.mark.contract("fork server: who is killed, and who lives on")
def test_its_trees_live_on_without_it(serve: Serve) -> None:
    server = serve(WAIT)
    server.until_ready()
    forked = server.fork()
    forked.launch()
    rank = int(forked.line())
    os.kill(server.server.pid, signal.SIGKILL)
    server.until(lambda: server.server.has_ended)
    assert is_alive(rank)
    forked.tree.kill()
    (end,) = forked.until("exit")
    assert end.fields["signal"] == signal.SIGKILL
    forked.until("gone")


@pytest.mark.parametrize("victims", ["guard", "reaper", "both"])
def test_when_guard_or_reaper_is_killed_the_rank_goes(victims: str, serve: Serve) -> None:
    server = serve(WAIT)
    server.until_ready()
    forked = server.fork()
    forked.launch()
    rank, guard = int(forked.line()), forked.tree.pid
    reaper = reaper_of(guard)
    for pid in {"guard": [guard], "reaper": [reaper], "both": [reaper, guard]}[victims]:
        os.kill(pid, signal.SIGKILL)
    server.until(lambda: not is_alive(rank) and forked.tree.ended())
    assert forked.tree.sweep_orphans([server.server.pid]) == []
    assert server.server.is_ready
    assert server.fork().told("ready")


AGENT = """
import os, sys
sys.path[:0] = [sys.argv[1]]
from pathlib import Path
from forking import Forking
from holdfast.agent.tree import become_subreaper
become_subreaper()
code, imports, folder = sys.argv[2:]
server = Forking([sys.executable, "-c", code], Path(imports), Path(folder), os.environ)
server.until_ready()
forked = server.fork()
forked.told("ready")
running, waiting = forked, server.fork()
running.launch()
waiting.told("ready")
rank = int(running.line())
print(server.server.pid, running.tree.pid, waiting.tree.pid, rank, flush=True)
sys.stdin.read()
"""


@pytest.mark.contract("fork server: it goes with the agent, and so do its trees")
def test_when_the_agent_is_killed_all_goes(tmp_path: Path, surroundings: dict[str, str]) -> None:
    learned = standing.learn(tmp_path / "imports.json", "json")
    agent = subprocess.Popen(
        [sys.executable, "-c", AGENT, str(Path(__file__).parent), WAIT, learned, tmp_path],
        env=surroundings,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert agent.stdout is not None
    pids = [int(word) for word in agent.stdout.readline().split()]
    assert len(pids) == 4
    assert all(map(is_alive, pids))
    agent.kill()
    standing.await_exit(agent)
    assert agent.stdin is not None
    agent.stdin.close()
    agent.stdout.close()
    await_dead(*pids)


LEFT_BEHIND = {
    "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()": (
        "an import has started threads, which a fork would lose"
    ),
    "import subprocess\nCHILD = subprocess.Popen(['true'])": (
        "an import has started a process, which would be the child of no fork"
    ),
    "import os\nFILE = open(os.environ['COUNT'], 'w')": (
        "an import has left .*/count open, which all forks would share"
    ),
    "import multiprocessing\nLOCK = multiprocessing.Lock()": (
        "an import has made memory .* that all forks would share"
    ),
    "import faulthandler, signal\nfaulthandler.register(signal.SIGUSR2)": (
        "an import handles SIGUSR2 outside of Python, and a fork would not"
    ),
}


@pytest.mark.parametrize("code", LEFT_BEHIND)
def test_what_a_fork_cannot_have_for_itself_is_the_end_of_it(
    code: str, library: Path, serve: Serve
) -> None:
    (library / "leaving.py").write_text(code + "\n")
    server = serve(SAY, "leaving")
    server.until(lambda: server.server.has_ended)
    assert re.fullmatch(LEFT_BEHIND[code], server.server.unfit)
    while processes.has_children():  # what the import has started came to us
        with contextlib.suppress(ChildProcessError):  # the server's own waiting may be first
            os.waitpid(-1, 0)


def test_a_handler_that_an_import_has_set_is_the_ranks(library: Path, serve: Serve) -> None:
    (library / "handling.py").write_text(
        "import signal\nsignal.signal(signal.SIGUSR1, lambda *_: None)\n"
    )
    server = serve("import signal; print(signal.getsignal(signal.SIGUSR1))", "handling")
    server.until_ready()
    forked = server.fork()
    forked.launch()
    assert "lambda" in forked.result().stdout


def test_what_libraries_print_in_each_child_is_nobodys(library: Path, serve: Serve) -> None:
    (library / "talking.py").write_text(
        "import os\nos.register_at_fork(after_in_child=lambda: print('I am a child'))\n"
    )
    server = serve("print('I am a rank')", "talking")
    server.until_ready()
    for _ in range(2):
        forked = server.fork()
        forked.launch()
        assert forked.result().stdout == "I am a rank\n"
        forked.close()


def test_if_what_it_forks_ends_at_once_it_is_given_up(library: Path, serve: Serve) -> None:
    (library / "ending.py").write_text(
        "import os\nos.register_at_fork(after_in_child=lambda: os._exit(3))\n"
    )
    server = serve(SAY, "ending")
    server.until_ready()
    asked = server.ask()
    server.until(lambda: server.server.has_ended)
    assert asked.tree is None


def test_it_imports_anew_what_has_changed(tmp_path: Path, library: Path, serve: Serve) -> None:
    server = serve("import counted; print(counted.VALUE)")
    server.until_ready()
    assert server.fork().told("ready")
    (library / "counted.py").write_text(COUNTED.replace("VALUE = 1", "VALUE = 22"))
    asked = server.ask()
    server.until(lambda: server.server.asked is None)
    assert asked.tree is None
    server.until_ready()
    forked = server.fork()
    forked.launch()
    assert forked.result().stdout == "22\n"
    assert forked.words == ["ready", "warm"]
    assert (tmp_path / "count").read_text().split() == 2 * [str(server.server.pid)]


def test_asked_in_the_middle_of_its_imports_it_forks_what_it_has(
    tmp_path: Path, library: Path, serve: Serve
) -> None:
    """And goes on; the standby imports the rest by itself."""
    door = tmp_path / "door"
    (library / "slow.py").write_text(
        f"import os\nos.path.exists({str(door)!r}) and open({str(door)!r}).read()\n"
    )
    server = serve(SAY, "slow", "counted")
    os.mkfifo(door)
    server.ask()
    with door.open("w"):
        pass
    door.unlink()
    forked = server.take()
    forked.told("ready")
    forked.launch()
    assert forked.result().stdout.split()[2] == "True"
    server.until_ready()
    assert len((tmp_path / "count").read_text().split()) == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="the way back from SCHED_IDLE is not open to all")
def test_while_it_imports_it_gives_way_but_to_who_waits_for_it(
    tmp_path: Path, library: Path, serve: Serve
) -> None:
    door, inside, learned = (tmp_path / name for name in ("door", "inside", "learned"))
    (library / "slow.py").write_text(
        f"import os\nif os.path.exists({str(learned)!r}):\n"
        f"    open({str(inside)!r}, 'w').close()\n    open({str(door)!r}).read()\n"
        f"else:\n    open({str(learned)!r}, 'x').close()\n"  # whoever writes the list of imports
    )
    os.mkfifo(inside)
    os.mkfifo(door)
    server = serve(SAY, "slow").server
    inside.read_bytes()  # it is in the middle of that import
    assert os.sched_getscheduler(server.pid) == os.SCHED_IDLE
    server.lift()
    assert os.sched_getscheduler(server.pid) == os.SCHED_OTHER
    server.give_way()
    assert os.sched_getscheduler(server.pid) == os.SCHED_IDLE
    door.write_bytes(b"")
    while not server.is_ready:
        assert select.select([server], [], [], LIMIT_S)[0]
        server.read()
    assert os.sched_getscheduler(server.pid) == os.SCHED_OTHER
    server.give_way()  # what is ready has nothing to do
    assert os.sched_getscheduler(server.pid) == os.SCHED_OTHER


def test_another_environment_is_executed_anew(tmp_path: Path, serve: Serve) -> None:
    server = serve("import os; print(os.environ['OTHER'])")
    server.until_ready()
    forked = server.fork(OTHER="yes")
    forked.told("ready")
    forked.launch()
    assert forked.result().stdout == "yes\n"
    assert forked.words == ["ready", "warm"]
    assert len((tmp_path / "count").read_text().split()) == 2


def test_ranks_draw_other_numbers(serve: Serve) -> None:
    code = "import random, numpy; print(numpy.random.rand(), random.random())"
    server = serve(code, "numpy", "random")
    server.until_ready()
    forked = server.fork(ranks=2)
    forked.launch()
    drawn = [number for rank in range(2) for number in forked.line(rank).split()]
    assert len(set(drawn)) == 4


def test_ranks_draw_other_numbers_with_torch(serve: Serve) -> None:
    server = serve("import torch; print(torch.rand(1).item())", "torch")
    server.until_ready()
    forked = server.fork(ranks=2)
    forked.launch()
    assert forked.line(0) != forked.line(1)


def test_a_generator_that_a_module_has_seeded_stays_seeded(library: Path, serve: Serve) -> None:
    (library / "seeding.py").write_text("import numpy\nnumpy.random.seed(3)\n")
    server = serve("import numpy; print(numpy.random.rand())", "seeding")
    server.until_ready()
    forked = server.fork()
    forked.launch()
    assert forked.result().stdout == "0.5507979025745755\n"


def test_a_tree_that_ends_before_it_is_there_is_given_up(serve: Serve) -> None:
    server = serve(SAY)
    server.until_ready()
    os.kill(server.server.pid, signal.SIGSTOP)
    asked = server.ask()
    os.kill(server.server.pid, signal.SIGKILL)
    server.until(lambda: server.server.has_ended)
    assert server.server.asked is None
    assert asked.tree is None
