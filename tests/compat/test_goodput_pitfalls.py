"""Cases that the library gets wrong, by its own calls, in both places that records can go to."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest
from goodput_logs import BORN_S, ListLog, moment

from holdfast.compat.ml_goodput_measurement import clock, goodput, tape
from holdfast.compat.ml_goodput_measurement.goodput_utils import BadputType
from holdfast.compat.ml_goodput_measurement.local import LocalLog
from holdfast.journal.recorded import load_run


@pytest.fixture(params=["store", "injected"])
def log(request, tmp_path, monkeypatch):
    if request.param == "injected":
        yield ListLog()
        return
    monkeypatch.setenv("HOLDFAST_STORE", str(tmp_path / "store"))
    local = LocalLog("job")
    yield local
    local.close()


class Job:
    """A job whose moments are seconds since its birth."""

    def __init__(self, log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.recorder = goodput.GoodputRecorder("job", "log", True, log)
        self.calculator = goodput.GoodputCalculator("job", "log", log)
        self._monkeypatch = monkeypatch

    def start(self, at_s: float) -> None:
        self.recorder.record_job_start_time(moment(at_s))

    def end(self, at_s: float) -> None:
        self.recorder.record_job_end_time(moment(at_s))

    def steps(self, first: int, last: int, at_s: float, each_s: float = 10.0) -> float:
        """Gives when the last one would be done."""
        for step in range(first, last + 1):
            self.recorder.record_step_start_time(step, moment(at_s))
            at_s += each_s
        return at_s

    def now(self, at_s: float) -> None:
        self._monkeypatch.setattr(clock, "unix_ns", lambda: int((BORN_S + at_s) * 1e9))

    def goodput(self) -> float:
        return self.calculator.get_job_goodput()[0]

    def window(self, start_s: float, end_s: float) -> tuple[Any, ...]:
        return self.calculator.get_job_goodput_interval(moment(start_s), moment(end_s))

    def disruptions(self) -> int:
        self.goodput()
        return self.calculator.get_job_goodput_details()["disruption_count"]


@pytest.fixture
def job(log, monkeypatch) -> Job:
    return Job(log, monkeypatch)


def test_a_restart_that_lost_no_step_is_a_disruption(job: Job) -> None:
    job.start(0)
    at = job.steps(0, 49, 0)
    job.start(at + 600)
    job.end(job.steps(50, 99, at + 600))
    assert job.goodput() == pytest.approx(62.5)
    assert job.disruptions() == 1


def test_a_fall_back_behind_a_fall_back_throws_away_what_it_does(job: Job) -> None:
    job.start(0)
    job.steps(0, 99, 0)
    job.start(1000)
    job.steps(90, 94, 1000)
    job.start(1050)
    job.end(job.steps(50, 99, 1050))
    assert job.goodput() == pytest.approx(1000 / 1550 * 100)  # 50 of the first, 50 of the last
    assert job.disruptions() == 2


def test_every_start_of_a_crash_loop_is_a_failed_attempt(job: Job) -> None:
    for n in range(20):
        job.start(n * 30)
    job.now(20 * 30)
    assert job.disruptions() == 19  # the last may be running
    job.now(20 * 30 + 4000)
    assert job.disruptions() == 20  # it is not


def test_waits_for_data_are_no_progress(job: Job) -> None:
    job.start(0)
    for step in range(10):
        job.steps(step, step, step * 10)
        job.recorder.record_data_loading_start_time(moment(step * 10))
        job.recorder.record_data_loading_end_time(moment(step * 10 + 9))
    job.end(100)
    told, badput, _ = job.calculator.get_job_goodput(include_badput_breakdown=True)
    assert told == pytest.approx(10)
    assert badput[BadputType.DATA_LOADING_SYNC] == pytest.approx(90)
    assert badput[BadputType.DATA_LOADING_ASYNC] == pytest.approx(90)  # the same, told once more


def test_a_hang_shows_in_a_rolling_window(job: Job) -> None:
    job.start(0)
    job.steps(0, 60, 0)
    job.now(2100)
    told, _, _, seconds, _ = job.window(300, 2100)
    assert seconds == 1800
    assert told == pytest.approx(300 / 1800 * 100)


def test_a_window_in_which_nothing_came_at_all_is_a_hang_too(job: Job) -> None:
    job.start(0)
    job.steps(0, 60, 0)
    job.now(2100)
    assert job.window(1500, 2100)[0] == 0.0


def test_a_crash_of_yesterday_is_not_waited_for(job: Job) -> None:
    job.start(0)
    job.steps(0, 360, 100)
    job.now(90_000)
    assert job.goodput() == pytest.approx(3600 / 3700 * 100)


def test_nested_events_are_taken_off_once(job: Job) -> None:
    job.start(0)
    for step in range(10):
        at = step * 11
        job.steps(step, step, at)
        for name, offset_s in (("eval", 2), ("inner", 2.5)):
            job.recorder.record_custom_badput_event_start_time(moment(at + offset_s), name)
        for name, offset_s in (("inner", 5.5), ("eval", 6)):
            job.recorder.record_custom_badput_event_end_time(moment(at + offset_s), name)
    job.end(110)
    told, badput, _ = job.calculator.get_job_goodput(include_badput_breakdown=True)
    assert told == pytest.approx(70 / 110 * 100)
    assert badput[BadputType.CUSTOM_BADPUT_EVENTS] == {
        "EVAL": pytest.approx(10 / 110 * 100),
        "INNER": pytest.approx(30 / 110 * 100),
    }


def test_an_event_that_nobody_ended_lasts_until_the_next_step(job: Job) -> None:
    job.start(0)
    job.steps(0, 4, 0)
    job.recorder.record_custom_badput_event_start_time(moment(42), "eval")
    job.now(60)
    assert job.goodput() == pytest.approx(40 / 60 * 100)
    job.end(job.steps(5, 9, 60))
    job.now(110)
    assert job.goodput() == pytest.approx(100)  # nobody said how long it was: it is in its step


def test_events_that_cross_and_outlast_steps_are_told_whole_and_once(job: Job) -> None:
    job.start(0)
    job.steps(0, 0, 0)
    for name, since_s in (("outer", 1), ("inner", 2), ("crossing", 3)):
        job.recorder.record_custom_badput_event_start_time(moment(since_s), name)
    job.recorder.record_custom_badput_event_end_time(moment(4), "outer")
    job.steps(1, 1, 10)
    job.recorder.record_custom_badput_event_end_time(moment(12), "crossing")
    job.end(job.steps(2, 9, 20))
    told, badput, _ = job.calculator.get_job_goodput(include_badput_breakdown=True)
    # Nobody ended `inner`; `outer` was the one that counted before `crossing` began.
    assert told == pytest.approx(89)
    assert badput[BadputType.CUSTOM_BADPUT_EVENTS] == {
        "OUTER": pytest.approx(2),
        "CROSSING": pytest.approx(9),
    }


def test_clocks_that_go_back_cost_no_error(job: Job) -> None:
    job.start(0)
    job.steps(0, 49, 0)
    job.start(200)  # a host whose clock is 300 s behind; how far, entries do not say
    job.end(job.steps(50, 99, 200))
    assert 99 <= job.goodput() <= 100
    assert job.disruptions() == 1


def test_a_host_whose_clock_is_behind_gives_the_same_number(tmp_path, monkeypatch) -> None:
    """The store's own clock, by which an attempt's file was made, tells how far it is off."""
    monkeypatch.setenv("HOLDFAST_STORE", str(tmp_path / "store"))
    real_ns, real_pair = clock.unix_ns(), tape.read_clock_pair()
    seen = []
    for skew_s in (0.0, -300.0):
        log = LocalLog(f"job{int(skew_s)}")
        for number, (first, since_s, off_s) in enumerate([(0, -1600, 0.0), (50, -500, skew_s)]):
            pair = tape.ClockPair(real_pair.boottime_ns, real_pair.unix_ns + int(off_s * 1e9))
            monkeypatch.setattr(tape, "read_clock_pair", lambda p=pair: p)
            monkeypatch.setattr(tape, "boot_id", lambda n=number: f"boot-of-host-{n}")
            recorder = goodput.GoodputRecorder(log.job_name, "log", True, log)
            at = real_ns / 1e9 + since_s + off_s  # as that host's clock has it
            recorder.record_job_start_time(utc(at))
            for step in range(first, first + 50):
                recorder.record_step_start_time(step, utc(at + (step - first) * 10))
            log.close()
        account = load_run(Path(log.store) / log.job_name).account()
        seen.append((account.productive / 1e9, len(account.disruptions)))
    assert seen[0] == pytest.approx(seen[1], abs=2.1)
    assert seen[0][0] == pytest.approx(990, abs=0.1)


def utc(unix_s: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(unix_s, datetime.UTC)
