"""The truth of tests/truth through the goodput API: a history asked, and a job recorded again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from goodput_logs import BORN_S, moment, whole

from holdfast.compat.ml_goodput_measurement import clock, goodput, goodput_elastic
from holdfast.compat.ml_goodput_measurement.goodput_utils import BadputType
from holdfast.compat.ml_goodput_measurement.history import HistoryLog

TRUTH = Path(__file__).parents[1] / "truth"
CASES = sorted(path.stem for path in TRUTH.glob("p*.jsonl"))


def expected(case: str) -> dict[str, Any]:
    return json.loads((TRUTH / f"{case}.expected.json").read_text())


def at(monkeypatch, at_s: float) -> None:
    """It is that moment of the job's life."""
    monkeypatch.setattr(clock, "unix_ns", lambda: int((BORN_S + at_s) * 1e9))


@pytest.mark.parametrize("case", CASES)
def test_a_history_asked_through_the_api_gives_the_truth(case: str, monkeypatch) -> None:
    truth = expected(case)
    monkeypatch.setattr(clock, "unix_ns", lambda: int(truth.get("now", 1e6) * 1e9))
    calculator = goodput_elastic.ElasticGoodputCalculator(
        "r", "log", HistoryLog(TRUTH / f"{case}.jsonl")
    )
    told, breakdown, last = calculator.get_job_goodput(include_badput_breakdown=True)
    details = calculator.get_job_goodput_details()
    assert told == pytest.approx(truth["goodput"] * 100, abs=1e-6)
    assert details["total_elapsed_time"] == pytest.approx(truth["elapsed_s"], abs=1e-6)
    assert details["disruption_count"] == len(truth["disruptions"])
    assert last == max(0, truth["steps_kept"])
    assert told + whole(breakdown) == pytest.approx(100, abs=1e-6)
    lost = details["badput_time"][BadputType.WASTED_PROGRESS_FROM_DISRUPTION]
    assert lost == pytest.approx(truth["badput_s"].get("lost", 0.0), abs=1e-6)


# What entries cannot say, and what follows: (goodput in percent, disruptions).
UNSAID = {
    # The request, 5 s before the first start; and whether the last of 20 starts still runs.
    "p04_crash_loop": (0.0, 19),
    # When the last step ended, and the process.
    "p08_crashed_and_closed": (100.0, 1),
    # The request, and that the process went on living.
    "p10_back_off_and_nobody_left": (590 / 780 * 100, 2),
}


@pytest.mark.parametrize("case", CASES)
def test_a_recorded_job_gives_the_truth(case: str, log: Any, monkeypatch) -> None:
    lines = [json.loads(line) for line in (TRUTH / f"{case}.jsonl").read_text().splitlines()]
    record(log, lines)
    truth = expected(case)
    at(monkeypatch, truth.get("now") or 1e6)
    calculator = goodput.GoodputCalculator("job", "log", log)
    told, breakdown, _ = calculator.get_job_goodput(include_badput_breakdown=True)
    disruptions = calculator.get_job_goodput_details()["disruption_count"]
    assert told + whole(breakdown) == pytest.approx(100, abs=1e-6)
    wanted, count = UNSAID.get(case, (truth["goodput"] * 100, len(truth["disruptions"])))
    assert told == pytest.approx(wanted, abs=1e-6)
    assert disruptions == count


def record(log: Any, lines: list[dict[str, Any]]) -> None:
    """Everything of a history that the API has words for, in time's order."""
    recorder = goodput_elastic.ElasticGoodputRecorder("job", "log", True, log)
    calls: list[tuple[float, int, Any]] = []
    for line in lines:
        calls += calls_of(recorder, line)
    chips = next(line["chips"] for line in lines if line["event"] == "run")
    for line in lines:
        if line["event"] == "capacity":
            calls.append((line["at"], 5, slices_call(recorder, line, chips)))
    for _, _, call in sorted(calls, key=lambda one: one[:2]):
        call()


def slices_call(recorder: Any, line: dict[str, Any], chips: int) -> Any:
    there = line["chips"]
    return lambda: recorder.record_elastic_slice_counts(there, chips, there, moment(line["at"]))


def calls_of(recorder: Any, line: dict[str, Any]) -> Iterator[tuple[float, int, Any]]:
    match line["event"]:
        case "attempt":
            start, end = moment(line["start"]), line["end"]
            yield line["start"], 2, lambda: recorder.record_job_start_time(start)
            if line["cause"] == "done":
                yield end, 1, lambda: recorder.record_job_end_time(moment(end))
        case "step":
            yield step_call(recorder, line["step"], line["start"])
        case "steps":
            count = line["last"] - line["first"] + 1
            each = (line["end"] - line["start"]) / count
            for n in range(count):
                yield step_call(recorder, line["first"] + n, line["start"] + n * each)
        case "span" | "restore" if line.get("end") is not None:
            yield from span_calls(recorder, line)


def step_call(recorder: Any, step: int, at_s: float) -> tuple[float, int, Any]:
    return at_s, 3, lambda: recorder.record_step_start_time(step - 1, moment(at_s))


def span_calls(recorder: Any, line: dict[str, Any]) -> Iterator[tuple[float, int, Any]]:
    start, end = moment(line["start"]), moment(line["end"])
    kind = line.get("kind", "restore")
    if kind in ("save", "restore"):
        fields = (
            "checkpoint_manager_blocking_start_time",
            "checkpoint_manager_blocking_duration_secs",
        )
        if kind == "restore":
            fields = ("checkpoint_manager_start_time", "checkpoint_manager_duration_secs")
        entry = {
            "job_name": "job",
            "event_type": kind,
            fields[0]: start.timestamp(),
            fields[1]: line["end"] - line["start"],
        }
        yield line["end"], 0, lambda: recorder._cloud_logger.write_cloud_logging_entry(entry)
        return
    if kind == "data":
        begin, done = recorder.record_data_loading_start_time, recorder.record_data_loading_end_time
        yield line["start"], 4, lambda: begin(start)
        yield line["end"], 0, lambda: done(end)
    elif kind.startswith("custom:"):
        name = kind.removeprefix("custom:")
        yield line["start"], 4, lambda: recorder.record_custom_badput_event_start_time(start, name)
        yield line["end"], 0, lambda: recorder.record_custom_badput_event_end_time(end, name)
    else:
        prep = recorder.record_training_preparation_start_time
        yield line["start"], 4, lambda: prep(start)
        yield line["end"], 0, lambda: recorder.record_training_preparation_end_time(end)
