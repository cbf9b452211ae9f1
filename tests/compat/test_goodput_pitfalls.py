"""Cases that the library gets wrong, by its own calls, in both places that records can go to."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from goodput_logs import BORN_S, ListLog, moment, whole

from holdfast.compat.ml_goodput_measurement import clock, goodput, tape
from holdfast.compat.ml_goodput_measurement.goodput_utils import BadputType, GoodputType
from holdfast.compat.ml_goodput_measurement.local import LocalLog
from holdfast.compat.ml_goodput_measurement.old_number import old_number


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

    def event(
        self, name: str, since_s: float, until_s: float, inside: tuple[str, float, float]
    ) -> None:
        """One, and another while it lasts."""
        recorder, (other, begins_s, ends_s) = self.recorder, inside
        recorder.record_custom_badput_event_start_time(moment(since_s), name)
        recorder.record_custom_badput_event_start_time(moment(begins_s), other)
        recorder.record_custom_badput_event_end_time(moment(ends_s), other)
        recorder.record_custom_badput_event_end_time(moment(until_s), name)

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


class Row(NamedTuple):
    """A case of the table: what the library says (percent; None: an error), and what is right."""

    tell: Callable[[Job], float]
    """Records the job; gives the moment of the question."""
    said: float | None
    disruptions_said: int
    right: float
    disruptions: int


def lost_no_step(job: Job) -> float:
    """An autocheckpoint's restart; 1000 s down."""
    job.start(0)
    job.steps(0, 99, 100)
    job.start(2100)
    job.end(end := job.steps(100, 199, 2200))
    return end


def fell_back_twice(job: Job) -> float:
    """A restart at 90, a crash at 95, and back to 50."""
    job.start(0)
    job.steps(0, 99, 100)
    job.start(1200)
    job.steps(90, 94, 1300)
    job.start(1450)
    job.end(end := job.steps(50, 199, 1550))
    return end


def crash_loop(job: Job) -> float:
    """20 starts, no step."""
    for number in range(20):
        job.start(number * 30)
    return 20 * 30 + 4000


def waited_for_data(job: Job) -> float:
    """9 of every 10 s."""
    job.start(0)
    for step in range(100):
        at = 100 + step * 10
        job.steps(step, step, at)
        job.recorder.record_data_loading_start_time(moment(at))
        job.recorder.record_data_loading_end_time(moment(at + 9))
    job.end(1100)
    return 1100


def crashed_a_day_ago(job: Job) -> float:
    """And no end was recorded."""
    job.start(0)
    job.steps(0, 360, 100)
    return 90_000


def nested_events(job: Job) -> float:
    """4 s of every 10, 3 of them in another event."""
    job.start(0)
    for step in range(100):
        at = 100 + step * 10
        job.steps(step, step, at)
        job.event("eval", at + 2, at + 6, inside=("inner", at + 2.5, at + 5.5))
    job.end(1100)
    return 1100


TABLE = {
    "lost_no_step": Row(lost_no_step, 96.9, 0, 62.5, 1),
    "fell_back_twice": Row(fell_back_twice, 78.4, 2, 65.6, 2),
    "crash_loop": Row(crash_loop, 0.0, 0, 0.0, 20),
    "waited_for_data": Row(waited_for_data, 90.9, 0, 9.1, 0),
    "crashed_a_day_ago": Row(crashed_a_day_ago, 4.0, 0, 97.3, 1),
    "nested_events": Row(nested_events, 27.9, 0, 54.5, 0),
}


@pytest.mark.parametrize("name", TABLE)
def test_what_the_library_gets_wrong_is_right_here(name: str, job: Job, log: Any) -> None:
    row = TABLE[name]
    now_s = row.tell(job)
    job.now(now_s)
    told, badput, _ = job.calculator.get_job_goodput(include_badput_breakdown=True)
    assert told == pytest.approx(row.right, abs=0.05)
    assert told + whole(badput) == pytest.approx(100)
    assert job.disruptions() == row.disruptions
    if isinstance(log, ListLog):  # what it makes of the same entries, by our model of it
        old = old_number(log.entries, BORN_S + now_s)
        assert old.goodput == pytest.approx(row.said, abs=0.05)
        assert old.disruptions == row.disruptions_said


def test_the_last_start_of_a_crash_loop_may_be_running(job: Job) -> None:
    crash_loop(job)
    job.now(20 * 30)
    assert job.disruptions() == 19


def test_a_wait_for_data_within_steps_is_told_under_both_names(job: Job) -> None:
    job.now(waited_for_data(job))
    _, badput, _ = job.calculator.get_job_goodput(include_badput_breakdown=True)
    assert badput[BadputType.DATA_LOADING_SYNC] == pytest.approx(900 / 11)
    assert badput[BadputType.DATA_LOADING_ASYNC] == pytest.approx(900 / 11)


def test_a_nested_event_is_told_by_its_own_name(job: Job) -> None:
    job.now(nested_events(job))
    _, badput, _ = job.calculator.get_job_goodput(include_badput_breakdown=True)
    assert badput[BadputType.CUSTOM_BADPUT_EVENTS] == {
        "EVAL": pytest.approx(100 / 11),
        "INNER": pytest.approx(300 / 11),
    }


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


@pytest.mark.parametrize(
    ("until_s", "right", "startup"), [(0, 40.0, 60.0), (50, 60.0, 40.0), (100, 100.0, 0.0)]
)
def test_an_opening_that_is_excluded_is_not_taken_off_twice(
    until_s: float, right: float, startup: float, job: Job
) -> None:
    """A first step of 100 s before six of 10: its first 90 s seem to be the start's."""
    job.start(0)
    job.steps(0, 0, 0)
    job.steps(1, 6, 100)
    job.now(150)
    told, badput, _, excluded_s = job.calculator.get_job_goodput_with_exclusions(
        [(moment(0), moment(until_s))], include_badput_breakdown=True
    )
    assert (told, badput[BadputType.PROGRAM_STARTUP]) == pytest.approx((right, startup))
    assert excluded_s == until_s


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
        calculator = goodput.GoodputCalculator(log.job_name, "log", log)
        told = calculator.get_job_goodput()[0]
        details = calculator.get_job_goodput_details()
        seen.append((told, details["disruption_count"]))
        assert details["goodput_time"][GoodputType.TOTAL] == pytest.approx(990, abs=0.1)
    assert seen[0] == pytest.approx(seen[1], abs=0.15)  # clocks: to a second or two
    assert seen[0][1] == 1


def utc(unix_s: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(unix_s, datetime.UTC)
