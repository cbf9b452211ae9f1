"""A turn of the race, with real processes: small ones that step every few milliseconds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

RECOVERY = Path(__file__).parents[2] / "bench" / "recovery"
sys.path.append(str(RECOVERY))

from bout import Bout, Struck  # noqa: E402
from systems import Place, Start, System  # noqa: E402

# Goes on after the last step in its own lines; ends at SIGTERM, as Python does.
TRAINER = """
import json, sys, time
sys.path.append({recovery!r})
from ruler import Stamps, boot_ns

folder, rank = sys.argv[1], int(sys.argv[2])
stamps = Stamps(folder, rank)
lines = open(f"{{folder}}/rank-{{rank:05d}}.jsonl").read().splitlines()
step = max((json.loads(line).get("step", 0) for line in lines), default=0)
stamps.begin(step)
while True:
    since_ns = boot_ns()
    time.sleep(0.005)  # what a step takes: its length is what is measured
    step += 1
    stamps.step(step, since_ns)
"""

# Starts its trainer again whenever it is gone, until it is told to stop.
LOOP = """
trap 'kill -TERM $child 2>/dev/null; exit 75' TERM
while :; do "$@" & child=$!; wait $child; done
"""

# The race's own process takes in orphans, which a test's must not; so it is one of its own.
DRIVER = """
import json, sys
from pathlib import Path
sys.path.append({recovery!r})
import family, phases
from schedule import Fault
from results import Result
from systems import Place, Start, System

folder, told = Path(sys.argv[1]), Path(sys.argv[2])
ranks, never_s, names, how = map(json.loads, sys.argv[3:])
phases.HANG_LIMIT_S = never_s
family.adopt_orphans()

def start(place):
    trainer = [sys.executable, str(folder / "trainer.py"), str(place.stamps)]
    commands = [[*how, *trainer, str(rank)] for rank in range(place.ranks)]
    return Start([(command, {{}}) for command in commands])

place = Place(folder / "place", folder / "data", ranks, evidence=folder)
in_a_row = [Fault(0.05, rank) for rank in range(ranks)]
rules = phases.Rules(0.5, [Fault(0.1, ranks - 1)], in_a_row, never_s)
result = Result(told, json.loads(told.read_text()))
phases.turn(System("toy", "a toy", "none", start), place, rules, result, names, print)
assert not family.descendants()
"""

COMES_BACK = ["bash", "-c", LOOP, "loop"]
LONG_S = 60.0  # nothing waits for so long when all is well


@pytest.fixture
def race(tmp_path):
    """Run these phases with such a starter; what is in the file afterwards."""
    (tmp_path / "trainer.py").write_text(TRAINER.format(recovery=str(RECOVERY)))
    (tmp_path / "driver.py").write_text(DRIVER.format(recovery=str(RECOVERY)))
    told = tmp_path / "toy.json"
    told.write_text("{}")

    def run(ranks, names, never_s, how):
        command = [sys.executable, tmp_path / "driver.py", tmp_path, told]
        words = [json.dumps(one) for one in (ranks, never_s, names, how)]
        done = subprocess.run(
            [*command, *words], capture_output=True, text=True, timeout=240, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(told.read_text())

    yield run
    assert not list(Path("/dev/shm").glob(f"{tmp_path.name}-*"))


@pytest.mark.real
def test_a_system_that_starts_its_ranks_again_comes_back(race):
    told = race(2, ["kills"], LONG_S, COMES_BACK)
    (kill,) = told["kills"]["kills"]
    assert (kill["rank"], kill["back"], kill["lost_steps"]) == (1, True, 0)
    assert (told["kills"]["never"], told["kills"]["strays"], told["kills"]["due"]) == (0, 0, 1)
    assert 0 < told["kills"]["goodput"] < 1
    assert "unfinished" not in told["kills"]


def test_a_step_that_was_reached_before_the_kill_is_not_back(tmp_path):
    """The survivor was in its step 3 when the other rank died; then both began again after 2."""
    place = Place(tmp_path, tmp_path / "data", 2)
    place.stamps.mkdir()
    ms = 1_000_000

    def write(rank, pid, begin, *steps):
        lines = [{"begin": begin[0], "boot": begin[1] * ms, "rank": rank, "pid": pid}]
        lines += [
            {"step": step, "since": (at - 9) * ms, "boot": at * ms, "rank": rank, "pid": pid}
            for step, at in steps
        ]
        with (place.stamps / f"rank-{rank:05d}.jsonl").open("a") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)

    for rank, steps in ((0, [(1, 10), (2, 20)]), (1, [(1, 10), (2, 20), (3, 31)])):
        write(rank, 100 + rank, (0, 0), *steps)
        write(rank, 200 + rank, (2, 100), (3, 110))
    bout = Bout(System("toy", "a toy", "none", lambda _: Start([])), place, print)
    struck = Struck("kill", 0, 0.0, 30 * ms)
    assert not bout.comes_back(struck, 0.0)
    assert struck.seen.lost_steps == 1
    for rank in (0, 1):
        write(rank, 300 + rank, (3, 115), (4, 120 + rank))
    again = Struck("kill", 0, 0.0, 30 * ms)
    assert bout.comes_back(again, 0.0)
    assert again.seen.new_s == pytest.approx(0.09)
    assert again.seen.whole_s == pytest.approx(0.091)


@pytest.mark.real
def test_a_planned_stop_is_timed_and_what_it_lost_is_counted(race):
    told = race(1, ["stop"], LONG_S, COMES_BACK)
    assert told["stop"]["left_behind"] == 0
    assert told["stop"]["lost_steps"] == 0


@pytest.mark.real
def test_what_never_comes_back_is_counted_and_started_from_outside(race, tmp_path):
    told = race(2, ["campaign"], 0.3, [])
    assert [kill["back"] for kill in told["campaign"]["kills"]] == [False, False]
    assert told["campaign"]["never"] == 2
    assert "toy.kill-1.txt" in {path.name for path in tmp_path.iterdir()}
    assert "trainer.py" in (tmp_path / "toy.kill-1.txt").read_text()  # the other rank's


@pytest.mark.real
def test_the_kill_by_which_a_system_fell_for_good_is_counted(race, tmp_path):
    driver = tmp_path / "driver.py"
    words = driver.read_text().replace("import family,", "import bout, family,", 1)
    fall = "def fall(_):\n    raise bout.FellError('gone for good')\nbout.Bout.start_anew = fall\n"
    driver.write_text(words.replace("place = Place", f"{fall}place = Place", 1))
    told = race(1, ["kills"], 0.3, [])
    assert told["kills"]["fell"] == "gone for good"
    assert told["kills"]["never"] == 1
    assert told["kills"]["unfinished"] is False


def test_steps_that_are_done_while_the_kill_is_on_its_way_are_not_back(tmp_path):
    """The moment is noted, then this process waits for a core, while the other one trains on."""
    place = Place(tmp_path, tmp_path / "data", 1)
    place.stamps.mkdir()
    ms = 1_000_000
    lines = [{"begin": 0, "boot": 0, "rank": 0, "pid": 100}]
    lines += [
        {"step": step, "since": (at - 9) * ms, "boot": at * ms, "rank": 0, "pid": 100}
        for step, at in ((1, 10), (2, 20), (3, 31), (4, 40))
    ]
    told = "".join(json.dumps(line) + "\n" for line in lines)
    (place.stamps / "rank-00000.jsonl").write_text(told)
    bout = Bout(System("toy", "a toy", "none", lambda _: Start([])), place, print)
    struck = Struck("kill", 0, 0.0, 30 * ms)
    assert not bout.comes_back(struck, 0.0)
    assert (struck.seen.new_s, struck.seen.whole_s) == (None, None)


@pytest.mark.real
def test_a_hang_that_nobody_notices_is_told_as_such(race, tmp_path):
    told = race(2, ["hang"], 0.3, COMES_BACK)
    assert told["hang"]["back"] is False
    assert told["hang"]["whole_s"] is None
    assert "trainer.py" in (tmp_path / "toy.hang-1.txt").read_text()


@pytest.mark.real
def test_a_phase_that_is_there_is_not_run_again(race, tmp_path):
    (tmp_path / "toy.json").write_text(json.dumps({"kills": {"goodput": 0.123}}))
    told = race(1, ["kills", "stop"], LONG_S, COMES_BACK)
    assert told["kills"] == {"goodput": 0.123}
    assert told["stop"]["left_behind"] == 0


@pytest.mark.real
def test_a_system_that_does_not_start_is_told_as_fallen(race, tmp_path):
    driver = tmp_path / "driver.py"
    driver.write_text(driver.read_text().replace("import family,", "import bout, family,", 1))
    driver.write_text(driver.read_text().replace("phases.HANG", "bout.START_S = phases.HANG", 1))
    told = race(1, ["kills", "stop", "hang"], 0.3, ["false"])
    assert told["kills"]["fell"] == "toy did not start within 0 s"
    assert "stop" not in told
