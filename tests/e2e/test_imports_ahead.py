"""The next attempt's ranks have waited for it, with everything imported: real runs, real kills."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from processes import EXIT_DONE, House, Process, children, guards_of, said_by, short_name

pytestmark = pytest.mark.real

# A library that says who imports it, and how often.
LIBRARY = """
import os
PID = os.getpid()
with open(os.environ["IMPORTED"], "a") as file:
    print(PID, file=file)
"""
SCRIPT = """
import os, sys, time
is_ahead = "told_one" in sys.modules
import told_one
import numpy as np
import holdfast as hf

run = hf.start()
print("attempt", run.attempt, "rank", run.rank, "ahead", is_ahead, told_one.PID == os.getpid())
print("as ever:", __name__, sys.argv[1:], sys.path[0] == os.path.dirname(__file__))
print("pid", os.getpid())
state = run.restore(init=lambda: {"w": np.zeros(3)})
for step in run.steps(6):
    while step == 3 and run.attempt == 0 and not os.path.exists(os.environ["GO"]):
        time.sleep(0.01)
    run.done(step, state)
print("ended")
"""


@pytest.fixture
def imported(house: House) -> Path:
    """Where the pids of those are noted that have imported the library."""
    library = house.folder / "site-packages"
    library.mkdir()
    (library / "told_one.py").write_text(LIBRARY)
    path = house.folder / "imported"
    path.touch()
    return path


def _run(house: House, imported: Path, *options: object, ranks: int = 1):
    paths = [str(house.folder / "site-packages"), os.environ.get("PYTHONPATH", "")]
    command = (sys.executable, house.script(SCRIPT), "a", "b")
    options = ("--name", "r", "--ranks", ranks, *options)
    env = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "IMPORTED": imported}
    return house.holdfast("run", *options, "--", *command, **env, GO=house.go_file)


def waiting(run: Process) -> list[int]:
    """The interpreters that stand by."""
    below = (
        pid for guard in guards_of(run) for reaper in children(guard) for pid in children(reaper)
    )
    return [pid for pid in below if short_name(pid) == "hf-standby"]


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_restart_finds_its_imports_done(ranks: int, house: House, imported: Path) -> None:
    run = _run(house, imported, ranks=ranks)
    house.eventually(lambda: len(waiting(run)) == ranks)
    victim = run.saw(rf"{said_by(0, ranks)}pid (\d+)")
    os.kill(int(victim[1]), signal.SIGKILL)
    for rank in range(ranks):
        run.saw(rf"attempt 1 rank {rank} ahead True False")  # a fork of who has imported it
        pid = run.saw(rf"{said_by(rank, ranks)}pid (\d+)", count=2)[1]
        assert pid not in imported.read_text().split()
    run.saw(r"as ever: __main__ \['a', 'b'\] True", count=2 * ranks)
    run.wait(EXIT_DONE)
    assert len(imported.read_text().split()) == ranks + 1


def test_code_that_changed_is_imported_anew(house: House, imported: Path) -> None:
    run = _run(house, imported)
    house.eventually(lambda: len(imported.read_text().split()) == 2)
    library = house.folder / "site-packages" / "told_one.py"
    library.write_text(LIBRARY + "print('the new one')\n")
    os.kill(int(run.saw(r"^pid (\d+)")[1]), signal.SIGKILL)
    run.saw("the new one")
    run.saw("attempt 1 rank 0 ahead False True")
    run.wait(EXIT_DONE)
