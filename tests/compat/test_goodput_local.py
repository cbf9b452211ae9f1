"""A recorder's run in the store: nothing is lost however the process ends, and others read it."""

from __future__ import annotations

import datetime
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from goodput_logs import ListLog

from holdfast.compat.ml_goodput_measurement import (
    clock,
    goodput,
    goodput_elastic,
    local,
    tape,
)
from holdfast.compat.ml_goodput_measurement.goodput_utils import BadputType
from holdfast.compat.ml_goodput_measurement.local import LocalLog
from holdfast.journal.recorded import load_run

STEPS = 50
RECORDER = """
    import os, signal, sys
    from holdfast.compat.ml_goodput_measurement import goodput
    recorder = goodput.GoodputRecorder("job", "log", True)
    recorder.record_job_start_time()
    for step in range(50):
        recorder.record_step_start_time(step)
"""
ENDS = {
    "exit": ("", 0),
    "sys.exit": ("sys.exit(3)", 3),
    "exception": ("raise RuntimeError", 1),
    "SIGTERM": ("signal.raise_signal(signal.SIGTERM)", -signal.SIGTERM),
    "SIGKILL": ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
}


def run(script: str, store: Path) -> int:
    code = textwrap.dedent(script)
    return subprocess.run(
        [sys.executable, "-c", code], env=environment(store), capture_output=True
    ).returncode


def environment(store: Path) -> dict[str, str]:
    return {**os.environ, "HOLDFAST_STORE": str(store)}


@pytest.fixture
def log(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_STORE", str(tmp_path / "store"))
    log = LocalLog("job")
    yield log
    log.close()


@pytest.mark.real
@pytest.mark.parametrize("end", ENDS)
def test_every_step_is_there_however_the_process_ends(end: str, store: Path) -> None:
    line, code = ENDS[end]
    assert run(textwrap.dedent(RECORDER) + line, store) == code
    recorded = load_run(store / "job")
    assert recorded.ledger.last_kept_step() == STEPS - 1  # that many ended
    assert recorded.account().steps_kept == STEPS - 1
    under_way = recorded.facts._attempts.of(0).steps.under_way()
    assert under_way is not None
    assert under_way.step == STEPS


@pytest.mark.real
def test_the_next_process_is_the_next_attempt_and_proves_the_last_step(store: Path) -> None:
    assert run(textwrap.dedent(RECORDER) + "os.kill(os.getpid(), signal.SIGKILL)", store) < 0
    again = RECORDER.replace("range(50)", "range(50, 60)") + "    recorder.record_job_end_time()"
    assert run(again, store) == 0
    account = load_run(store / "job").account()
    assert account.steps_kept == 60
    assert account.lost_steps == 0
    assert [one.attempt for one in account.disruptions] == [0]


def test_a_start_in_the_same_process_is_an_attempt_too(log: LocalLog) -> None:
    recorder = goodput.GoodputRecorder("job", "log", True, log)
    for first in (0, 5):
        recorder.record_job_start_time()
        for step in range(first, 10):
            recorder.record_step_start_time(step)
    recorder.record_job_end_time()
    account = load_run(Path(log.store) / "job").account()
    assert (account.steps_kept, account.lost_steps, len(account.disruptions)) == (10, 4, 1)


def test_an_end_that_was_none_becomes_a_disruption(log: LocalLog) -> None:
    recorder = goodput.GoodputRecorder("job", "log", True, log)
    for first in (0, 10):
        recorder.record_job_start_time()
        for step in range(first, first + 10):
            recorder.record_step_start_time(step)
        recorder.record_job_end_time()
    account = load_run(Path(log.store) / "job").account()
    assert (account.steps_kept, [one.cause for one in account.disruptions]) == (20, ["restarted"])


def test_steps_that_were_passed_over_were_run(log: LocalLog) -> None:
    recorder = goodput.GoodputRecorder("job", "log", True, log)
    recorder.record_job_start_time()
    for step in (0, 10, 20):
        recorder.record_step_start_time(step)
    assert load_run(Path(log.store) / "job").account().steps_kept == 20


def test_a_disabled_recorder_writes_nothing(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HOLDFAST_STORE", str(tmp_path / "store"))
    recorder = goodput.GoodputRecorder("job", "log")
    recorder.record_job_start_time()
    recorder.record_step_start_time(1)
    assert not (tmp_path / "store").exists()


def test_a_job_of_which_nothing_is_known_is_a_value_error(log: LocalLog) -> None:
    with pytest.raises(ValueError, match="nothing is recorded of job 'job'"):
        goodput.GoodputCalculator("job", "log", log).get_job_goodput()


def test_a_store_that_cannot_be_written_costs_a_warning_and_no_step(
    tmp_path, monkeypatch, caplog
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HOLDFAST_STORE", str(tmp_path / "file" / "store"))
    log = LocalLog("job")
    recorder = goodput.GoodputRecorder("job", "log", True, log)
    recorder.record_job_start_time()
    for step in range(10):
        recorder.record_step_start_time(step)
    recorder.record_job_end_time()
    assert len(caplog.records) == 1
    log.close()


ODD: dict[str, Callable[[Any], object]] = {
    "no end": lambda r: r.record_step_start_time(float("inf")),
    "several": lambda r: r.record_step_start_time(np.array([1, 2])),
    "no number": lambda r: r.record_step_start_time("x", clock.utc_now()),
    "no moment": lambda r: r.record_step_start_time(2, 5.0),
    "before all time": lambda r: r.record_data_loading_start_time(datetime.datetime.min),
    "slices": lambda r: r.record_elastic_slice_counts(float("inf"), 1, 1),
}


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("place", ["store", "injected"])
def test_nothing_that_is_recorded_raises(
    odd: str, place: str, tmp_path, monkeypatch, caplog
) -> None:
    monkeypatch.setenv("HOLDFAST_STORE", str(tmp_path / "store"))
    log = ListLog() if place == "injected" else None
    recorder = goodput_elastic.ElasticGoodputRecorder("odd", "log", True, log)
    recorder.record_job_start_time()
    for step in range(3):
        recorder.record_step_start_time(step)
    for _ in range(2):
        ODD[odd](recorder)
    for step in range(3, 6):
        recorder.record_step_start_time(step)
    recorder.record_job_end_time()
    told = goodput.GoodputCalculator("odd", "log", log).get_job_goodput()
    LocalLog.of("odd").close()
    assert told[2] == 5
    assert {record.levelname for record in caplog.records} == {"WARNING"}
    assert all("not everything is recorded: " in words for words in caplog.messages)


@pytest.mark.parametrize("jump_s", [100, -100])
def test_a_wall_clock_that_is_set_makes_a_job_no_longer(jump_s: int, tmp_path, monkeypatch) -> None:
    """Nobody gives a moment: all of it goes by the clock that steps go by."""
    monkeypatch.setenv("HOLDFAST_STORE", str(tmp_path / "store"))
    recorder = goodput.GoodputRecorder("set", "log", True)
    calculator = goodput.GoodputCalculator("set", "log")
    began_ns = time.monotonic_ns()
    recorder.record_job_start_time()
    now_ns = clock.unix_ns
    for step in range(10):
        if step == 5:
            monkeypatch.setattr(clock, "unix_ns", lambda: now_ns() + jump_s * 10**9)
        if step == 7:
            recorder.record_job_start_time()
        recorder.record_data_loading_start_time()
        recorder.record_data_loading_end_time()
        recorder.record_step_start_time(step)
    LocalLog.of("set").beat()
    for end, last in (lambda: None, 8), (recorder.record_job_end_time, 9):
        end()
        _, badput, step = calculator.get_job_goodput(include_badput_breakdown=True)
        took_s = (time.monotonic_ns() - began_ns) / 1e9
        details = calculator.get_job_goodput_details()
        assert 0 < details["total_elapsed_time"] <= took_s
        assert (step, details["disruption_count"]) == (last, 1)
        assert badput[BadputType.DATA_LOADING_SYNC] > 0
    window = calculator.get_job_goodput_interval(
        calculator._now() - datetime.timedelta(seconds=50), calculator._now()
    )
    LocalLog.of("set").close()
    assert window[1][BadputType.DATA_LOADING_SYNC] > 0


def test_open_and_crossing_events_are_told_as_they_were(log: LocalLog) -> None:
    recorder = goodput.GoodputRecorder("job", "log", True, log)
    recorder.record_job_start_time()
    recorder.record_custom_badput_event_start_time(None, "outer")
    recorder.record_custom_badput_event_start_time(None, "crossing")
    recorder.record_custom_badput_event_end_time(None, "outer")
    books = log.books()
    answer = books.ask(clock.unix_ns())
    assert answer.by_kind["custom:OUTER"] >= 0
    assert "custom:CROSSING" in answer.by_kind
    recorder.record_custom_badput_event_end_time(None, "crossing")
    assert sum(answer.by_kind.values()) == pytest.approx(answer.elapsed_s)


def test_a_record_in_the_middle_of_another_is_written_by_the_next(log: LocalLog) -> None:
    recorder = goodput.GoodputRecorder("job", "log", True, log)
    recorder.record_job_start_time()
    recorder.record_step_start_time(0)
    local_busy = log._busy
    with local_busy:  # as when a signal handler interrupts a record
        recorder.record_step_start_time(1)
    recorder.record_step_start_time(2)
    assert load_run(Path(log.store) / "job").account().steps_kept == 2


@pytest.mark.real
def test_a_forked_child_does_not_write_on_its_parents_tape(store: Path) -> None:
    script = (
        RECORDER
        + """
    if not os.fork():
        recorder.record_step_start_time(50)
        recorder.record_job_end_time()
        os._exit(0)
    os.wait()
    recorder.record_step_start_time(50)
    """
    )
    assert run(script, store) == 0
    recorded = load_run(store / "job")
    assert recorded.ledger.last_kept_step() == 50
    assert recorded.facts._attempts.of(0).cause is None


@pytest.mark.real
def test_a_child_records_what_its_parent_has_not_begun(store: Path) -> None:
    script = """
    import os
    from holdfast.compat.ml_goodput_measurement import goodput
    recorder = goodput.GoodputRecorder("job", "log", True)
    if not os.fork():
        recorder.record_job_start_time()
        for step in range(3):
            recorder.record_step_start_time(step)
        os._exit(0)
    os.wait()
    """
    assert run(script, store) == 0
    assert load_run(store / "job").account().steps_kept == 2


# Where the library's own package may be: whether anything else than ours is found without us.
REAL = {"absent": "None", "installed": "not None", "another": "not None"}


@pytest.mark.real
@pytest.mark.parametrize("real", REAL)
@pytest.mark.parametrize("way", ["import", "environment"])
def test_code_that_names_the_library_gets_ours(real: str, way: str, tmp_path: Path) -> None:
    if real == "another":  # one that would not do
        package = tmp_path / "site" / "ml_goodput_measurement"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("raise RuntimeError('the real one')")
    path = [Path(local.__file__).parents[3], tmp_path / "site"]
    if way == "environment":
        path.insert(0, Path(local.__file__).parents[1] / "shadow")
        first = ""
    else:
        first = f"""
        import importlib.util
        assert importlib.util.find_spec("ml_goodput_measurement") is {REAL[real]}
        import holdfast.compat.ml_goodput_measurement.auto"""
    code = f"""{first}
        from ml_goodput_measurement import goodput
        import ml_goodput_measurement.src.monitoring as monitoring
        from ml_goodput_measurement.src import goodput as again
        import holdfast.compat.ml_goodput_measurement.goodput as ours
        assert goodput is again is ours
        print(goodput.__name__, monitoring.__name__)
    """
    # Without `site` there is no folder of installed packages.
    flags = ["-S"] if real == "absent" else []
    command = [sys.executable, *flags, "-c", textwrap.dedent(code)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
    ours = "holdfast.compat.ml_goodput_measurement"
    assert result.stdout.split() == [f"{ours}.goodput", f"{ours}.monitoring"]


def test_on_a_network_filesystem_the_journal_is_local_and_copied(
    tmp_path, monkeypatch, log: LocalLog
) -> None:
    monkeypatch.setattr(tape, "is_remote", lambda kind: True)
    monkeypatch.setattr(local, "BEAT_S", 3600.0)  # the test has it beat
    monkeypatch.setenv("HOLDFAST_SCRATCH", str(tmp_path / "scratch"))
    recorder = goodput.GoodputRecorder("job", "log", True, log)
    recorder.record_job_start_time()
    for step in range(10):
        recorder.record_step_start_time(step)
    journal = Path(log.store) / "job" / "attempts" / "0000" / "journal" / tape.JOURNAL
    before = journal.stat().st_size if journal.exists() else 0
    assert log.books().ask(clock.unix_ns()).max_productive_step == 8  # read where it lies
    log.beat()
    assert journal.stat().st_size > before
    log.close()
    assert load_run(Path(log.store) / "job").account().steps_kept == 9
    assert not list((tmp_path / "scratch").rglob("*.hfj"))
