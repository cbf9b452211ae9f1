"""Google Cloud's exporters against fakes of its clients, which take the clients' own messages."""

from __future__ import annotations

from typing import Any

import pytest
from google.api_core.exceptions import ServiceUnavailable
from google.cloud import monitoring_v3

from holdfast.compat.ml_goodput_measurement.kinds import badput_seconds
from holdfast.core.ledger.summary import ALL, Loss, RunSummary, Spent
from holdfast.export.asked import Gcp
from holdfast.export.cloud_logging import CloudLogging, entries
from holdfast.export.cloud_monitoring import CloudMonitoring
from holdfast.export.familiar import BADPUT_TYPES, type_of
from holdfast.export.outlet import ExportLook
from holdfast.export.sample import EndedAttempt, Sample
from holdfast.export.time_series import MOST_SERIES

S = 1_000_000_000
GCP = Gcp("proj", "us-central1-a", "TPU")
KINDS = {"step": 60 * S, "startup": 20 * S, "custom:eval": 10 * S, "lost": 5 * S, "queued": 5 * S}


class FakeMetricClient:
    """Stands in for MetricServiceClient: what it is given must be what the real one takes."""

    def __init__(self) -> None:
        self.requests: list[monitoring_v3.CreateTimeSeriesRequest] = []
        self.away = False

    def create_time_series(self, *, name: str, time_series: list[Any], timeout: float) -> None:
        assert timeout > 0
        if self.away:
            raise ServiceUnavailable("away")
        request = monitoring_v3.CreateTimeSeriesRequest(name=name, time_series=time_series)
        assert len(request.time_series) <= MOST_SERIES
        # As on the wire.
        data = monitoring_v3.CreateTimeSeriesRequest.serialize(request)
        self.requests.append(monitoring_v3.CreateTimeSeriesRequest.deserialize(data))


class FakeLoggingClient:
    """Stands in for google.cloud.logging.Client: a payload must fit into a log entry's."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, dict[str, Any]]] = []
        self.away = False
        self.closed = False

    def logger(self, name: str) -> FakeLogger:
        return FakeLogger(self, name)

    def close(self) -> None:
        self.closed = True


class FakeLogger:
    """One log of it."""

    def __init__(self, client: FakeLoggingClient, name: str) -> None:
        self._client, self._name = client, name

    def log_struct(self, info: dict[str, Any], **fields: Any) -> None:
        from google.cloud.logging_v2.types import LogEntry
        from google.protobuf.json_format import ParseDict
        from google.protobuf.struct_pb2 import Struct

        if self._client.away:
            raise ServiceUnavailable("away")
        payload = ParseDict(info, Struct())
        LogEntry(
            json_payload=payload,
            severity=fields["severity"],
            insert_id=fields["insert_id"],
            timestamp=fields["timestamp"],
            labels=fields["labels"],
        )
        self._client.entries.append((self._name, {**info, **fields}))


def a_look(at_s: float = 1000.5, runs: int = 1) -> ExportLook:
    spent = Spent(
        KINDS, steps_kept=6, losses=(Loss(5, "killed", 9),), wall_ns=100 * S, kept_ns=60 * S
    )
    samples = tuple(
        Sample(
            RunSummary(f"r{n}", f"id{n}", "running", chips=1, step=7,
                       within={ALL: spent, "1h": spent}),
            at_s,
            started_s=((0, 10.0), (1, 30.0)),
            ended=(EndedAttempt(0, "killed", "killed by <b>SIGKILL", 20.0),),
        )
        for n in range(runs)
    )  # fmt: skip
    return ExportLook(samples, tuple(one.run for one in samples), began_unix_s=at_s)


def sent(client: FakeMetricClient) -> dict[tuple[str, str], monitoring_v3.TimeSeries]:
    found = {}
    for request in client.requests:
        for one in request.time_series:
            labels = dict(one.metric.labels)
            source = labels.get("badput_source") or labels.get("goodput_source") or ""
            window = labels.get("rolling_window_size", "")
            found[
                one.metric.type.removeprefix("compute.googleapis.com/workload/"),
                f"{source}{':' if window else ''}{window}",
            ] = one
    return found  # fmt: skip


def test_metrics_and_labels_of_the_library() -> None:
    client = FakeMetricClient()
    target = CloudMonitoring(GCP, lambda: client)
    target.deliver(a_look())
    target.close()
    found = sent(client)
    values = {
        key: one.points[0].value.double_value or one.points[0].value.int64_value
        for key, one in found.items()
    }
    assert values["goodput_time", "TOTAL"] == pytest.approx(60)
    assert values["badput_time", "TRAINING_PREP"] == pytest.approx(20)
    assert values["badput_time", "CUSTOM_BADPUT_EVENTS.EVAL"] == pytest.approx(10)
    assert values["badput_time", "WASTED_PROGRESS_FROM_DISRUPTION"] == pytest.approx(5)
    assert values["total_elapsed_time", ""] == pytest.approx(100)
    assert (values["disruptions", ""], values["max_productive_steps", ""]) == (1, 7)
    assert values["performance", ""] == pytest.approx(10)
    assert values["interval_goodput", "TOTAL:3600"] == pytest.approx(60)  # percent
    assert values["interval_badput", "TRAINING_PREP:3600"] == pytest.approx(20)
    assert not any(key[1].endswith("604800") for key in found)  # no such window in the sample
    named = {source for metric, source in found if metric == "badput_time"}
    assert named - {"CUSTOM_BADPUT_EVENTS.EVAL"} == set(BADPUT_TYPES) - {"CUSTOM_BADPUT_EVENTS"}
    for one in found.values():
        assert one.resource.type == "compute.googleapis.com/Workload"
        assert dict(one.resource.labels) == {
            "location": "us-central1-a", "workload_id": "r0", "replica_id": "0",
        }  # fmt: skip
        assert one.points[0].interval.end_time.timestamp() == pytest.approx(1000.5)
    assert dict(found["disruptions", ""].metric.labels) == {
        "accelerator_type": "TPU", "window_type": "cumulative",
    }  # fmt: skip
    assert client.requests[0].name == "projects/proj"


def test_many_points_come_in_parts() -> None:
    client = FakeMetricClient()
    target = CloudMonitoring(GCP, lambda: client)
    target.deliver(a_look())
    target.deliver(a_look(runs=20))
    parts = [len(request.time_series) for request in client.requests[1:]]
    assert len(parts) > 1
    assert sum(parts) == 20 * len(client.requests[0].time_series)


def test_a_service_that_is_away_is_a_failed_delivery_and_then_all_is_told() -> None:
    client, logs = FakeMetricClient(), FakeLoggingClient()
    for target in (CloudMonitoring(GCP, lambda: client), CloudLogging(GCP, lambda: logs)):
        client.away = logs.away = True
        with pytest.raises(ServiceUnavailable):
            target.deliver(a_look())
        client.away = logs.away = False
        target.deliver(a_look())
    assert client.requests
    assert len(logs.entries) == 3


def test_events_of_a_run_are_told_once() -> None:
    client = FakeLoggingClient()
    target = CloudLogging(GCP, lambda: client)
    target.deliver(a_look())
    target.deliver(a_look(1030.0))
    target.close()
    assert client.closed
    start, end, again = (entry for _, entry in client.entries)
    assert {name for name, _ in client.entries} == {"goodput_r0"}
    assert (start["job_name"], start["job_start_time"], start["severity"]) == ("r0", 10.0, "INFO")
    assert (end["job_end_time"], end["cause"], end["severity"]) == (20.0, "killed", "WARNING")
    assert end["words"] == "killed by <b>SIGKILL"
    assert again["insert_id"] == "id0-1-start"
    assert end["labels"] == {"run_id": "id0"}


def test_a_second_exporter_tells_the_same_entries() -> None:
    """The service takes two for one where the id and the time are the same."""
    client = FakeLoggingClient()
    for at_s in (1000.5, 2000.5):
        CloudLogging(GCP, lambda: client).deliver(a_look(at_s))
    told = [(entry["insert_id"], entry["timestamp"].timestamp()) for _, entry in client.entries]
    assert (
        told[:3] == told[3:] == [("id0-0-start", 10.0), ("id0-0-end", 20.0), ("id0-1-start", 30.0)]
    )


def test_nothing_is_told_of_a_run_without_records() -> None:
    client = FakeMetricClient()
    empty = RunSummary("new", "x", "new")
    CloudMonitoring(GCP, lambda: client).deliver(ExportLook((Sample(empty, 1.0),), (empty,)))
    assert client.requests == []
    assert list(entries(Sample(empty, 1.0))) == []


@pytest.mark.parametrize(
    "kind",
    ["compile", "save", "data", "restore", "lost", "detect", "hang", "drain", "backoff", "queued",
     "queued:boot", "reschedule", "reschedule:queue", "stopped", "other", "custom:eval"],
)  # fmt: skip
def test_types_are_those_of_the_drop_in(kind: str) -> None:
    theirs = badput_seconds({kind: 1.0}, elastic=False)
    flat = {
        f"{one.name}.{event}" if isinstance(value, dict) else one.name
        for one, value in theirs.items()
        for event in (value if isinstance(value, dict) else [""])
        if value
    }
    assert flat == {type_of(kind)}
