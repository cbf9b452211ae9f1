"""A recorder under `holdfast run`: one run, one account."""

from __future__ import annotations

import re
import signal
import sys

import pytest
from processes import EXIT_DONE, EXIT_SAVED, House

from holdfast.compat.ml_goodput_measurement.goodput import GoodputCalculator
from holdfast.journal.recorded import load_run

pytestmark = pytest.mark.real

STEPS, DATA_S = 12, 0.02
HEAD = f"""
import json, os, signal, sys, time
from pathlib import Path
from holdfast.compat.ml_goodput_measurement import goodput
recorder = goodput.GoodputRecorder("a-job", "log", True)
recorder.record_job_start_time()
recorder.record_tpu_init_start_time()
time.sleep(0.1)
recorder.record_tpu_init_end_time()
def input(step):
    recorder.record_step_start_time(step)
    recorder.record_data_loading_start_time()
    time.sleep({DATA_S})
    recorder.record_data_loading_end_time()
"""
OWN_LOOP = f"""
saved = Path("saved.json")
begin = json.loads(saved.read_text()) if saved.exists() else 0
for step in range(begin, {STEPS}):
    input(step)
    if begin == 0 and step == 8: os.kill(os.getpid(), signal.SIGKILL)
    if step % 3 == 2: saved.write_text(str(step + 1))
recorder.record_job_end_time()
"""
SESSION = f"""
{{before}}
import holdfast as hf
run = hf.start()
state = run.restore(init=lambda: {{{{"sum": 0}}}})
for step in run.steps({STEPS}):
    input(step - 1)
    state["sum"] += step
    if step == 3: run.save()
    if run.resume_step == 0 and step == 8: os.kill(os.getpid(), signal.SIGKILL)
    run.done(step, state)
recorder.record_job_end_time()
"""


# The last: a recorder comes first, and the session takes over.
@pytest.mark.parametrize(
    ("loop", "words"),
    [
        (OWN_LOOP, "done; its steps were recorded"),
        (SESSION.format(before=""), "done; see"),
        pytest.param(
            SESSION.format(before="input(0)"),
            "done; see",
            marks=pytest.mark.contract("a goodput recorder and a session: one account"),
        ),
    ],
    ids=["alone", "beside a session", "before a session"],
)
def test_what_it_records_is_in_the_run(loop: str, words: str, house: House) -> None:
    script = house.script(HEAD + loop)
    run = house.holdfast("run", "--name", "the-run", "--", sys.executable, script)
    out = run.wait(EXIT_DONE)
    assert f"run 'the-run': {words}" in out
    assert re.search(r"Restarting now; attempt 0 made [78] new steps", out)
    assert [folder.name for folder in house.store.iterdir()] == ["the-run"]

    account = load_run(house.store / "the-run").account()
    assert account.steps_kept == STEPS
    assert account.seconds("custom:tpu_init") >= 0.2
    assert account.seconds("data") >= STEPS * DATA_S
    percent, _, _ = GoodputCalculator("the-run", "log").get_job_goodput()
    assert account.goodput is not None
    assert percent == pytest.approx(100 * account.goodput, abs=0.01)


def test_a_sigterm_is_the_scripts_own(house: House) -> None:
    text = """
def leave(*_):
    print("the script saves", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
for step in range(10_000):
    input(step)
    if step == 3: print("well on", flush=True)
"""
    script = house.script(HEAD + text)
    run = house.holdfast("run", "--name", "r", "--", sys.executable, script)
    run.saw("well on")
    run.send(signal.SIGTERM)
    assert "the script saves" in run.wait(EXIT_SAVED)
    assert load_run(house.store / "r").account().steps_kept >= 3
