"""Ranks started ahead of their attempt: beside ranks that die, and beside ranks that train.

They wait at a gate in the script's `run.restore`. What is asked here: that the run goes on exactly,
whenever what dies or changes, and that nothing of it is left.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from processes import (
    EXIT_DONE,
    EXIT_SAVED,
    FAR,
    TRAINER,
    House,
    Process,
    children,
    expected_digest,
    guards_of,
    is_alive,
    kill,
    ranks_of,
)

pytestmark = pytest.mark.real

STEPS = 8
FROM = r"^(?:\[\d\] )?from \d+$"  # a rank's word, when it has restored
HOT = ("--standby", "hot", "--save-every", 2)


def waiting(run: Process) -> list[int]:
    """The pids of those that wait for the next attempt."""
    guards = guards_of(run)[1:]
    return [pid for guard in guards for reaper in children(guard) for pid in children(reaper)]


def places(name: str) -> list[Path]:
    """Files of this name in any attempt's scratch folder."""
    return sorted(Path(os.environ["HOLDFAST_SCRATCH"]).glob(f"*/*/attempt-*/{name}"))


def at_the_gate(attempt: int = 1) -> list[Path]:
    """What those have told that wait at the gate of an attempt."""
    found = places("at-the-gate-*.json")
    return [path for path in found if path.parent.name == f"attempt-{attempt:04d}"]


def hot(
    house: House, ranks: int = 1, *options: object, steps: int = STEPS, **env: object
) -> Process:
    """A run that has done a few steps, and whose next ranks wait at their gate."""
    house.allow(STEPS - 2)
    run = house.run("--ranks", ranks, *HOT, *options, steps=steps, **env)
    run.saw(f"did {STEPS - 2}$", ranks)
    house.eventually(lambda: len(at_the_gate()) == ranks)
    return run


def finished(house: House, run: Process, ranks: int = 1) -> str:
    """The run ends as if nothing had happened."""
    house.allow(FAR)
    out = run.wait(EXIT_DONE)
    assert out.count(f"final {expected_digest(STEPS)}") == ranks, out
    return out


def restart(house: House, attempt: int = 0) -> dict[str, object]:
    """What is on record of the restart after an attempt."""
    path = house.store / "r" / "attempts" / f"{attempt:04d}" / "restart.json"
    return json.loads(path.read_text())


@pytest.mark.parametrize(
    "ranks", [pytest.param(1, marks=pytest.mark.contract("standby: hot, woken at the gate")), 2]
)
def test_the_ranks_are_those_that_waited(house: House, ranks: int) -> None:
    run = hot(house, ranks)
    standing = waiting(run)
    kill(ranks_of(run)[-1])
    run.saw(FROM, 2 * ranks)
    assert sorted(ranks_of(run)) == sorted(standing)
    finished(house, run, ranks)
    story = restart(house)
    assert story["woken"] == list(range(ranks))
    assert story["cold"] == {}


def test_each_attempt_has_its_own(house: House) -> None:
    run = hot(house)
    for attempt in (1, 2):
        house.eventually(lambda: at_the_gate(attempt))  # noqa: B023 - called here alone
        (standing,) = waiting(run)
        kill(*ranks_of(run))
        run.saw(FROM, attempt + 1)
        assert ranks_of(run) == [standing]
        house.allow(STEPS - 2 + attempt)
    finished(house, run)


def test_what_it_prints_ahead_is_shown_when_its_attempt_begins(house: House) -> None:
    script = TRAINER.read_text().replace(
        "    run = hf.start()\n", "    print('starts')\n    run = hf.start()\n"
    )
    path = house.script(script, "trainer.py")
    house.allow(STEPS - 2)
    run = house.run(*HOT, steps=STEPS, trainer=path)
    run.saw(f"did {STEPS - 2}$")
    house.eventually(at_the_gate)
    assert len([line for line in run.lines if "starts" in line]) == 1
    kill(*ranks_of(run))
    run.saw("starts", 2)
    finished(house, run)
    log = (house.store / "r" / "attempts" / "0001" / "logs" / "rank-00000.log").read_text()
    assert "starts" in log


def test_a_kill_before_it_has_come_to_the_gate(house: House) -> None:
    """It is on its way: it finds the gate open."""
    house.allow(STEPS - 2)
    gated = TRAINER.read_text().replace(
        'hold("start")', 'hold("start" if os.environ["HOLDFAST_GATE"] != "none" else "")'
    )
    path = house.script(gated, "trainer.py")
    run = house.run(*HOT, steps=STEPS, trainer=path, HOLD="start")
    run.saw(f"did {STEPS - 2}$")
    house.eventually(lambda: places("gate"))
    (standing,) = waiting(run)
    kill(*ranks_of(run))
    run.saw("at start")
    house.go()
    run.saw(FROM, 2)
    assert ranks_of(run) == [standing]
    finished(house, run)


@pytest.mark.parametrize("ranks", [1, 2])
def test_one_that_ends_at_the_gate_ends_all_that_is_ahead(house: House, ranks: int) -> None:
    run = hot(house, ranks)
    standing = waiting(run)
    kill(standing[-1])
    run.saw(r"ended ahead of its attempt \(signal 9\)")
    house.eventually(lambda: not any(map(is_alive, standing)))
    house.eventually(lambda: len(waiting(run)) == ranks)  # interpreters that have only imported
    kill(ranks_of(run)[0])
    run.saw(FROM, 2 * ranks)
    out = finished(house, run, ranks)
    assert out.count("ahead of its attempt") == 1


def test_one_that_fails_ahead_leaves_an_attempt_that_begins_from_the_start(house: House) -> None:
    failing = TRAINER.read_text().replace(
        "    run = hf.start()\n",
        "    if os.environ['HOLDFAST_GATE'] != 'none':\n        raise OSError('port 80 is taken')\n"
        "    run = hf.start()\n",
    )
    path = house.script(failing, "trainer.py")
    house.allow(STEPS - 2)
    run = house.run(*HOT, steps=STEPS, trainer=path)
    run.saw(r"rank 0 ended ahead of its attempt \(exit code 1\): OSError: port 80 is taken")
    run.saw(f"did {STEPS - 2}$")
    kill(*ranks_of(run))
    run.saw(FROM, 2)
    finished(house, run)


def test_an_edit_of_the_script_is_seen(house: House) -> None:
    path = house.script(TRAINER.read_text(), "trainer.py")
    house.allow(STEPS - 2)
    run = house.run(*HOT, steps=STEPS, trainer=path)
    run.saw(f"did {STEPS - 2}$")
    house.eventually(at_the_gate)
    standing = waiting(run)
    path.write_text(TRAINER.read_text().replace('f"from {', 'f"edited, from {'))
    kill(*ranks_of(run))
    run.saw("edited, from ")
    assert ranks_of(run) != standing
    finished(house, run)


def test_after_an_edit_it_is_made_anew(house: House) -> None:
    path = house.script(TRAINER.read_text(), "trainer.py")
    house.allow(STEPS - 2)
    run = house.run(*HOT, steps=STEPS, trainer=path)
    run.saw(f"did {STEPS - 2}$")
    house.eventually(at_the_gate)
    before = waiting(run)
    path.write_text(TRAINER.read_text().replace('f"from {', 'f"edited, from {'))
    run.saw("trainer.py has changed")
    again = before

    def stands_there() -> bool:
        nonlocal again
        again = waiting(run)  # first: what the older one told at the gate goes before it comes
        return again not in ([], before) and bool(at_the_gate())

    house.eventually(stands_there)
    kill(*ranks_of(run))
    run.saw("edited, from ")
    assert ranks_of(run) == again
    finished(house, run)


def test_a_script_that_writes_what_it_imports_is_not_made_anew_for_ever(house: House) -> None:
    writes = "from pathlib import Path\nPath(__file__).with_name('made.py').write_text('A = 1')\n"
    marker = "from __future__ import annotations\n"
    text = TRAINER.read_text().replace(marker, f"{marker}\n{writes}\nimport made  # noqa\n", 1)
    path = house.script(text, "trainer.py")
    house.allow(STEPS - 2)
    run = house.run(*HOT, steps=STEPS, trainer=path)
    run.saw("No hot standby any more: .*made.py changes again and again")
    kill(*ranks_of(run))
    run.saw("Attempt 1: ")
    finished(house, run)


def test_a_stop_ends_them_and_leaves_nothing(house: House) -> None:
    run = hot(house, 2, steps=FAR)
    standing = waiting(run)
    run.send(signal.SIGTERM)
    run.saw("saving, then stopping")
    house.eventually(lambda: not any(map(is_alive, standing)))
    house.allow(FAR)
    run.wait(EXIT_SAVED)
    assert places("*") == []


def test_a_run_that_is_done_leaves_nothing_of_them(house: House) -> None:
    run = hot(house, 2)
    standing = waiting(run)
    finished(house, run, 2)
    assert not any(map(is_alive, standing))
    assert places("*") == []


def test_a_sigterm_to_one_of_them_ends_it_and_nothing_else(house: House) -> None:
    run = hot(house)
    (standing,) = waiting(run)
    kill(standing, signal.SIGTERM)
    house.eventually(lambda: not is_alive(standing))
    out = finished(house, run)
    assert "stopping" not in out


def test_a_supervisor_that_is_killed_leaves_none_of_them(house: House) -> None:
    run = hot(house, 2)
    pids = [*guards_of(run), *ranks_of(run), *waiting(run)]
    run.send(signal.SIGKILL)
    house.eventually(lambda: not any(map(is_alive, pids)))
    house.allow(FAR)
    out = house.run("--ranks", 2, steps=STEPS).wait(EXIT_DONE)
    assert out.count(f"final {expected_digest(STEPS)}") == 2, out


def test_ahead_of_a_script_with_checkpoints_of_its_own_nothing_runs(house: House) -> None:
    """It may read what the ranks that train are about to write."""
    script = """
import os, pathlib, sys, time
import numpy
import holdfast as hf
print("runs", os.environ["HOLDFAST_GATE"] != "none", flush=True)
run = hf.start()
mine = pathlib.Path("mine")
before = int(mine.read_text()) if mine.exists() else 0
for step in run.steps(30, after=before):
    while step > int(pathlib.Path(os.environ["ALLOW"]).read_text()): time.sleep(0.002)
    run.done(step, commit=lambda step: mine.write_text(str(step)))
    print("did", step, flush=True)
"""
    path = house.script(script)
    house.allow(6)
    run = house.run(*HOT, trainer=path)
    run.saw("did 6$")
    run.saw("No hot standby: the script does not begin with run.restore()")
    kill(*ranks_of(run))
    run.saw("runs True")
    house.allow(FAR)
    run.wait(EXIT_DONE)


def test_by_default_the_script_runs_while_the_attempt_is_put_on_record(house: House) -> None:
    script = TRAINER.read_text().replace(
        "import holdfast as hf  # noqa: E402\n",
        "import holdfast as hf\nprint('ahead', os.environ['HOLDFAST_GATE'] != 'none')\n",
    )
    path = house.script(script, "trainer.py")
    house.allow(STEPS - 2)
    run = house.run("--save-every", 2, steps=STEPS, trainer=path)
    run.saw("ahead False")
    run.saw(f"did {STEPS - 2}$")
    house.eventually(lambda: len(waiting(run)) == 1)
    (standing,) = waiting(run)
    kill(*ranks_of(run))
    run.saw("ahead True")
    assert ranks_of(run) == [standing]
    finished(house, run)


def test_ranks_of_jax_have_found_each_other_before_they_are_needed(house: House) -> None:
    pytest.importorskip("jax")
    house.allow(STEPS - 2)
    trainer = Path(__file__).with_name("jax_trainer.py")
    run = house.run("--ranks", 2, *HOT, steps=STEPS, trainer=trainer)
    for rank in (0, 1):
        run.saw(rf"\[{rank}\] did {STEPS - 2} ")
    house.eventually(lambda: len(at_the_gate()) == 2)
    standing = waiting(run)
    kill(ranks_of(run)[0])
    house.allow(FAR)
    for rank in (0, 1):
        run.saw(rf"\[{rank}\] from \d+$", 2)
    out = run.wait(EXIT_DONE)
    assert restart(house)["woken"] == [0, 1], out
    assert not any(map(is_alive, standing))
    # Whatever was done again was done as before: no step has two digests.
    digests = {tuple(line.split()[:3]): line for line in out.splitlines() if "] did " in line}
    assert all(line in digests.values() for line in out.splitlines() if "] did " in line), out


@pytest.mark.skipif(os.geteuid() != 0, reason="the way back from SCHED_IDLE is not open to all")
def test_they_give_way_until_they_are_needed(house: House) -> None:
    """With all threads and children that the script has started by then."""
    script = TRAINER.read_text().replace(
        "    run = hf.start()\n",
        "    import subprocess, threading\n"
        "    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
        "    child = subprocess.Popen(['sleep', '600'])\n"
        "    run = hf.start()\n",
    )
    path = house.script(script, "trainer.py")
    house.allow(STEPS - 2)
    run = house.run(*HOT, steps=STEPS, trainer=path)
    run.saw(f"did {STEPS - 2}$")
    house.eventually(at_the_gate)
    (standing,) = waiting(run)
    assert os.sched_getscheduler(standing) == os.SCHED_IDLE
    kill(*ranks_of(run))
    run.saw(FROM, 2)
    pids = [standing, *children(standing)]
    assert len(pids) == 2
    threads = [int(one.name) for pid in pids for one in Path(f"/proc/{pid}/task").iterdir()]
    assert len(threads) > 3
    assert {os.sched_getscheduler(thread) for thread in threads} == {os.SCHED_OTHER}
    finished(house, run)
