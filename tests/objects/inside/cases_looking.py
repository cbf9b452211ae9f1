"""Who looks at a bucket: a live page, and all runs together. With few requests: they are paid."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from made_runs import Made, make_run
from served import serving

from holdfast.cli.main import main
from holdfast.journal.remote import remote_of
from holdfast.journal.store import RunStore

S = 1_000_000_000


def push(place: str, folder: Path, name: str, *attempts: Made) -> None:
    """A run that somebody on another host has written, long ago."""
    store = RunStore.at(place, mirror=str(folder / "other"))
    run, _ = make_run(store, name, attempts, requested_ns=time.time_ns() - 90_000 * S)
    remote = remote_of(store.root)
    assert remote is not None
    remote.push(run.name, everything=True)


def test_a_live_page_over_a_bucket(bucket: str, proxy: Any, tmp_path: Path) -> None:
    place = f"s3://{bucket}/team"
    push(place, tmp_path, "good", Made(30, cause="killed"), Made(20))
    with serving(tmp_path / "mirror") as begin:
        server = begin(place)
        listed = server.get("/", Accept="text/html").text
        assert place in listed
        assert 'data-run="good"' in listed
        assert "50 steps kept" in server.get("/run/good", Accept="text/html").text
        events = server.events("/live")
        events.next()
        push(place, tmp_path, "late", Made(5))
        events.until(lambda data: "row:late" in data["parts"])
        proxy.down()  # and an end does not wait for the store to come back
        assert server.end() == 0


def test_all_runs_of_a_bucket_together(
    bucket: str,
    proxy: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    place = f"s3://{bucket}/team"
    for name in ("one", "two"):
        push(place, tmp_path, name, Made(30, cause="killed"), Made(20))
    monkeypatch.setenv("HOLDFAST_MIRROR", str(tmp_path / "mirror"))

    def told() -> dict[str, Any]:
        with pytest.raises(SystemExit) as end:
            main(["report", "--fleet", place, "--json"])
        assert not end.value.code
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    first = told()
    assert first["store"] == place
    assert [run["name"] for run in first["runs"]] == ["one", "two"]
    for folder, _, names in os.walk(tmp_path / "mirror"):  # what is new is not trusted yet
        for name in names:
            os.utime(Path(folder) / name, (1e9, 1e9))
        os.utime(folder, (1e9, 1e9))
    told()
    proxy.requests.clear()
    again = told()
    assert again["runs"] == first["runs"]
    assert len(proxy.requests) == 3  # the list of runs, and one of each run's objects
