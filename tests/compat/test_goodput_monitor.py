"""A monitor beside the training, and beside others who ask of the same job."""

from __future__ import annotations

import datetime
import threading
from typing import Any

import pytest
from goodput_logs import BORN_S, ListLog

from holdfast.compat.ml_goodput_measurement import (
    clock,
    goodput,
    goodput_elastic,
    goodput_utils,
    keys,
    monitoring,
)
from holdfast.compat.ml_goodput_measurement.goodput_utils import BadputType, StepInfo
from holdfast.compat.ml_goodput_measurement.local import LocalLog
from holdfast.compat.ml_goodput_measurement.stored import Stored


class Kept:
    """A sink."""

    def __init__(self) -> None:
        self.told: list[tuple[str, object]] = []

    def cumulative(self, goodput, badput, step, details) -> None:
        self.told.append(("cumulative", (goodput, badput, step, details)))

    def interval(self, details) -> None:
        self.told.append(("interval", details))

    def step_deviation(self, deviations) -> None:
        self.told.append(("deviation", deviations))

    def close(self) -> None:
        self.told.append(("close", None))


def test_a_monitor_tells_its_sinks_and_a_last_time_when_it_is_stopped(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setenv("HOLDFAST_STORE", str(tmp_path / "store"))
    sink = Kept()
    monkeypatch.setattr(monitoring, "_sinks", [lambda _: sink])
    recorder = goodput.GoodputRecorder("watched", "log", True)
    now = clock.utc_now().timestamp()
    seconds = iter(range(100))

    def moment():
        return datetime.datetime.fromtimestamp(now - 100 + next(seconds), datetime.UTC)

    recorder.record_job_start_time(moment())
    for step in range(20):
        recorder.record_step_start_time(step, moment())
    monitor = monitoring.GoodputMonitor(
        "watched", "log", str(tmp_path), 3600, True, False, True, include_step_deviation=True,
        step_deviation_interval_seconds=3600, final_flush_timeout_seconds=None,
    )  # fmt: skip
    monitor.start_goodput_uploader()
    monitor.stop_goodput_uploader()
    monitor.start_rolling_window_goodput_uploader([50])
    monitor.stop_rolling_window_goodput_uploader()
    monitor.start_step_deviation_uploader()
    monitor.stop_step_deviation_uploader()
    LocalLog.of("watched").close()
    kinds = [kind for kind, _ in sink.told]
    assert kinds == ["cumulative", "close", "interval", "close", "deviation", "close"]
    percent, badput, step, details = sink.told[0][1]
    assert step == 18
    assert 0 < percent < 100
    assert BadputType.OTHER in badput
    assert details["disruption_count"] == 0
    assert sink.told[2][1]["interval_size"] == 50
    assert sink.told[2][1]["max_productive_step"] == 18
    assert sorted(sink.told[4][1]) == list(range(19))


def test_a_monitor_makes_no_more_deviations_than_are_wanted(tmp_path, monkeypatch) -> None:
    """Those of a million steps took half a second, in which no other thread went on."""
    sinks = [Kept()]
    log = ListLog()
    log.entries = [{keys.JOB_NAME: "long", keys.JOB_START: BORN_S}]
    for step in range(3000):
        at_s = BORN_S + 10 * step + (step % 7)
        log.entries.append({keys.JOB_NAME: "long", keys.STEP: step, keys.STEP_START: at_s})
    monitor = monitoring.GoodputMonitor("long", "log", str(tmp_path), 3600, True)
    monitor._goodput_calculator = calculator = goodput.GoodputCalculator("long", "log", log)
    made: list[int] = []
    real = StepInfo.__init__

    def counted(info: StepInfo, ideal: float, deviations: dict[int, float]) -> None:
        made.append(len(deviations))
        real(info, ideal, deviations)

    monkeypatch.setattr(StepInfo, "__init__", counted)
    tell = monitoring.DeviationsOf(monitor)
    monitor._tell_goodput(sinks)
    tell(sinks)
    log.entries.append({keys.JOB_NAME: "long", keys.STEP: 3000, keys.STEP_START: at_s + 10})
    tell(sinks)
    tell(sinks)
    assert made == [1100, 2999, 1, 0]
    kinds = [kind for kind, _ in sinks[0].told]
    assert kinds == ["cumulative", "deviation", "deviation"]
    assert list(sinks[0].told[2][1]) == [2999]
    told = sinks[0].told[0][1][3]["step_time_deviation"]
    whole = calculator.get_job_goodput_details()["step_time_deviation"]
    assert list(whole) == list(range(3000))
    assert list(told) == list(range(1899, 2999))
    baseline = goodput_utils.compute_step_deviation_from_baseline
    del whole[2999]
    assert baseline(told) == pytest.approx(baseline(whole), abs=1e-3)


@pytest.mark.parametrize("question", ["get_job_goodput", "get_step_deviation", "window"])
def test_of_one_job_one_question_is_answered_at_a_time(
    question: str, tmp_path, monkeypatch
) -> None:
    """A monitor and a script ask the same books, each by its own calculator."""
    monkeypatch.setenv("HOLDFAST_STORE", str(tmp_path / "store"))
    recorder = goodput.GoodputRecorder("shared", "log", True)
    now = clock.utc_now()
    recorder.record_job_start_time(now - datetime.timedelta(seconds=50))
    for step in range(5):
        recorder.record_step_start_time(step, now - datetime.timedelta(seconds=50 - 10 * step))
    mine = goodput_elastic.ElasticGoodputCalculator("shared", "log")
    others = goodput_elastic.ElasticGoodputCalculator("shared", "log")
    waits: list[bool] = []

    def watched(name: str) -> None:
        real = getattr(Stored, name)

        def asked(books: Stored, *args: Any, **named: Any) -> Any:
            other = threading.Thread(target=lambda: waits.append(not free(others)))
            other.start()
            other.join()
            return real(books, *args, **named)

        monkeypatch.setattr(Stored, name, asked)

    def free(calculator: Any) -> bool:
        got = calculator._asking.acquire(blocking=False)
        if got:
            calculator._asking.release()
        return bool(got)

    for name in ("refresh", "ask", "step_times"):
        watched(name)
    if question == "window":
        mine.get_interval_metric_details(now - datetime.timedelta(seconds=40), now)
    else:
        getattr(mine, question)()
    LocalLog.of("shared").close()
    assert len(waits) >= 2
    assert all(waits)
    assert free(others)
