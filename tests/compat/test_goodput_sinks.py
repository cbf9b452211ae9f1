"""Where a monitor's numbers go: TensorBoard's files, and messages that Google's client takes."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast.compat.ml_goodput_measurement.goodput_utils import (
    BadputType,
    GCPOptions,
    GoodputType,
)
from holdfast.compat.ml_goodput_measurement.google_sink import GoogleCloud
from holdfast.compat.ml_goodput_measurement.sinks import SinkTarget, TensorBoard

BADPUT: dict[BadputType, Any] = {
    BadputType.TPU_INITIALIZATION: 2.5,
    BadputType.DATA_LOADING_ASYNC: 1.0,
    BadputType.CUSTOM_BADPUT_EVENTS: {"EVAL": 7.5},
}
DETAILS: Any = {
    "goodput_time": {GoodputType.TOTAL: 90.0},
    "badput_time": BADPUT,
    "max_productive_step": 7,
    "total_elapsed_time": 100.0,
    "disruption_count": 2,
    "step_time_deviation": {1: 0.5, 2: -1.5},
    "ideal_step_time": 3.0,
    "total_excluded_time": 0.0,
}
WINDOW: Any = {
    "interval_goodput": {GoodputType.TOTAL: 50.0},
    "interval_badput": BADPUT,
    "interval_size": 600,
    "max_productive_step": 7,
}
OPTIONS = GCPOptions(project_id="proj", location="here", acc_type="TPU", cluster_name="c")


def test_tensorboard_gets_the_tags_that_people_know(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    sink = TensorBoard.of(SinkTarget("job", str(tmp_path), True, GCPOptions()))
    assert sink is not None
    sink.cumulative(90.0, BADPUT, 7, DETAILS)
    sink.interval(WINDOW)
    sink.step_deviation({3: 0.25})
    sink.close()
    assert told_in(tmp_path) == {
        ("goodput/goodput", 90.0, 7),
        ("badput/tpu_initialization", 2.5, 7),
        ("badput/data_loading_async", 1.0, 7),
        ("badput/custom_badput_events/eval", 7.5, 7),
        ("rolling_window_goodput/600", 50.0, 7),
        ("rolling_window_badput/600/tpu_initialization", 2.5, 7),
        ("rolling_window_badput/600/data_loading_async", 1.0, 7),
        ("rolling_window_badput/600/custom_badput_events/eval", 7.5, 7),
        ("step_deviation", 0.25, 3),
    }


def told_in(folder: Path) -> set[tuple[str, float, int]]:
    """(tag, value, step) of all files."""
    from tensorboardX.proto.event_pb2 import Event

    events = []
    for path in folder.iterdir():
        data = path.read_bytes()
        while data:  # length, its checksum, the event, its checksum
            length = int.from_bytes(data[:8], "little")
            events.append(Event.FromString(data[12 : 12 + length]))
            data = data[16 + length :]
    return {(v.tag, v.simple_value, e.step) for e in events for v in e.summary.value}


def test_two_uploaders_of_one_second_write_a_file_each(tmp_path: Path, monkeypatch) -> None:
    pytest.importorskip("tensorboardX")
    monkeypatch.setattr(time, "time", lambda: 1_700_000_000.0)
    folder = tmp_path / "goodput"
    target = SinkTarget("job", str(folder), False, GCPOptions())
    first, second = TensorBoard.of(target), TensorBoard.of(target)
    assert first is not None
    assert second is not None
    first.cumulative(90.0, {}, 7, DETAILS)
    second.interval({**WINDOW, "interval_badput": {}})
    first.close()
    second.close()
    assert told_in(folder) == {
        ("goodput/goodput", 90.0, 7),
        ("rolling_window_goodput/600", 50.0, 7),
    }


def test_two_uploaders_may_find_no_folder_at_once(tmp_path: Path, monkeypatch) -> None:
    """Each sees that there is none; tensorboardX then makes it, and fails for the second."""
    pytest.importorskip("tensorboardX")
    folder = tmp_path / "goodput"
    real = os.path.exists

    def exists(path: object) -> bool:
        if str(path) != str(folder) or real(folder):
            return real(path)  # type: ignore[arg-type]
        folder.mkdir()  # by the other, just now
        return False

    monkeypatch.setattr(os.path, "exists", exists)
    sink = TensorBoard.of(SinkTarget("job", str(folder), False, GCPOptions()))
    assert sink is not None
    sink.close()


class FakeClient:
    """Stands in for MetricServiceClient: what it is given must be what the real one takes."""

    def __init__(self) -> None:
        self.series: list[Any] = []

    def create_time_series(self, *, name: str, time_series: list[Any], timeout: float) -> None:
        monitoring_v3 = pytest.importorskip("google.cloud.monitoring_v3")
        assert name == "projects/proj"
        request = monitoring_v3.CreateTimeSeriesRequest(name=name, time_series=time_series)
        data = monitoring_v3.CreateTimeSeriesRequest.serialize(request)  # as on the wire
        self.series += monitoring_v3.CreateTimeSeriesRequest.deserialize(data).time_series


def test_google_gets_the_metrics_and_labels_that_people_know() -> None:
    pytest.importorskip("google.cloud.monitoring_v3")
    client = FakeClient()
    target = SinkTarget("job", "", True, OPTIONS, include_slice_efficiency=True)
    sink = GoogleCloud(target, lambda: client)
    sink.cumulative(90.0, BADPUT, 7, {**DETAILS, "stepping_slice_efficiency": 0.5})
    sink.interval(WINDOW)
    sink.step_deviation({3: 0.25})
    sink.close()
    told = {}
    for one in client.series:
        assert one.resource.type == "compute.googleapis.com/Workload"
        assert dict(one.resource.labels) == {
            "location": "here", "workload_id": "job", "replica_id": "0"
        }  # fmt: skip
        value = one.points[0].value
        labels = dict(one.metric.labels)
        if labels:
            assert labels.pop("accelerator_type") == "TPU"
            assert labels.pop("cluster_name") == "c"
        name = one.metric.type.removeprefix("compute.googleapis.com/workload/")
        told[name, tuple(sorted(labels.values()))] = value.double_value or value.int64_value
    assert told == {
        ("goodput_time", ("TOTAL",)): 90.0,
        ("badput_time", ("TPU_INITIALIZATION",)): 2.5,
        ("badput_time", ("CUSTOM_BADPUT_EVENTS.EVAL",)): 7.5,
        ("disruptions", ("cumulative",)): 2,
        ("max_productive_steps", ()): 7,
        ("total_elapsed_time", ("cumulative",)): 100.0,
        ("performance", ()): 3.0,
        ("step_time_deviation", ()): 1.0,
        ("stepping_slice_efficiency", ("0", "CUMULATIVE")): 0.5,
        ("interval_goodput", ("600", "TOTAL")): 50.0,
        ("interval_badput", ("600", "TPU_INITIALIZATION")): 2.5,
        ("interval_badput", ("600", "CUSTOM_BADPUT_EVENTS.EVAL")): 7.5,
    }


def test_google_gets_each_metric_in_its_own_type_whatever_was_given() -> None:
    """An ideal step time of 2, or of 2.0; the service refuses a point of another type."""
    pytest.importorskip("google.cloud.monitoring_v3")
    client = FakeClient()
    sink = GoogleCloud(SinkTarget("job", "", True, OPTIONS), lambda: client)
    sink.cumulative(90, {}, 7, {**DETAILS, "ideal_step_time": 2, "total_elapsed_time": 100})
    whole = {
        one.metric.type.rpartition("/")[2]
        for one in client.series
        if "int64_value" in one.points[0].value
    }
    assert whole == {"disruptions", "max_productive_steps"}


@pytest.mark.parametrize(
    "options",
    [
        GCPOptions(),
        GCPOptions(project_id="proj"),
        GCPOptions("proj", "here", enable_gcp_goodput_metrics=False),
    ],
)
def test_google_is_told_nothing_unless_it_is_asked_for(options: GCPOptions) -> None:
    assert GoogleCloud.of(SinkTarget("job", "", True, options)) is None
