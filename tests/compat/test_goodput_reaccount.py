"""Exported entries of a finished job: its account, the old number, and why that was wrong."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.compat.ml_goodput_measurement import keys, reaccount
from holdfast.compat.ml_goodput_measurement.old_number import old_number
from holdfast.errors import ConfigurationError

T = 1_704_000_000.0
JOB = {keys.JOB_NAME: "j"}


def start(at: float) -> dict[str, Any]:
    return {**JOB, keys.JOB_START: T + at}


def end(at: float) -> dict[str, Any]:
    return {**JOB, keys.JOB_END: T + at}


def steps(first: int, last: int, at: float, each: float = 10.0) -> list[dict[str, Any]]:
    return [
        {**JOB, keys.STEP: n, keys.STEP_START: T + at + (n - first) * each}
        for n in range(first, last + 1)
    ]


def logged(entry: dict[str, Any], behind: float = 0.0) -> dict[str, Any]:
    """As a cloud's tools export it; its host's clock is that much behind the log's."""
    at = max(value for name, value in entry.items() if name.endswith("_time"))
    true = datetime.datetime.fromtimestamp(at + behind + 0.4, datetime.UTC)
    return {
        "jsonPayload": entry,
        "timestamp": true.isoformat().replace("+00:00", "Z"),
        "receiveTimestamp": true.isoformat().replace("+00:00", "123Z"),
        "insertId": "x",
    }


def write(folder: Path, entries: list[dict[str, Any]], *, array: bool = False) -> Path:
    path = folder / "entries.json"
    path.write_text(
        json.dumps(entries) if array else "".join(json.dumps(one) + "\n" for one in entries)
    )
    return path


PLANNED = [start(0), *steps(0, 49, 0), start(1100), *steps(50, 99, 1100), end(1600)]


def test_a_restart_that_lost_no_step(tmp_path: Path) -> None:
    found = reaccount.reaccount(write(tmp_path, PLANNED))
    assert found.now.goodput == pytest.approx(62.5)
    assert found.old.goodput == pytest.approx(100.0)
    assert (found.now.disruptions, found.old.disruptions) == (1, 0)
    assert [one.seconds for one in found.reasons] == [pytest.approx(600.0), None]


def test_a_clock_that_is_behind_is_told_by_the_log(tmp_path: Path) -> None:
    first, second = PLANNED[:51], PLANNED[51:]
    late = [
        {name: value - 300 if name.endswith("_time") else value for name, value in one.items()}
        for one in second
    ]
    exported = [logged(one) for one in first] + [logged(one, behind=300) for one in late]
    found = reaccount.reaccount(write(tmp_path, exported[::-1], array=True))
    assert found.now.goodput == pytest.approx(62.5, abs=0.05)
    assert "clock" in found.reasons[0].words or "clock" in found.reasons[1].words


def test_a_crash_of_yesterday_without_an_end(tmp_path: Path) -> None:
    path = write(tmp_path, [start(0), *steps(0, 360, 100)])
    found = reaccount.reaccount(path, now_s=T + 90_000)
    assert found.now.goodput == pytest.approx(3600 / 3700 * 100)
    assert found.old.goodput == pytest.approx(4.0, abs=0.01)


def test_waits_for_data_and_nested_events(tmp_path: Path) -> None:
    entries = [start(0)]
    for n in range(10):
        at = n * 20.0
        entries += steps(n, n, at)
        entries += [{**JOB, keys.DATA_START: T + at}, {**JOB, keys.DATA_END: T + at + 9}]
        for name, begin, until in (("a", 10, 14), ("b", 10.5, 13.5)):
            entries.append({**JOB, keys.CUSTOM_TYPE: name, keys.CUSTOM_START: T + at + begin})
            entries.append({**JOB, keys.CUSTOM_TYPE: name, keys.CUSTOM_END: T + at + until})
    found = reaccount.reaccount(write(tmp_path, [*sorted(entries, key=order), end(200)]))
    assert found.now.productive_s == pytest.approx(70.0)
    assert {round(one.seconds or 0) for one in found.reasons} == {90, 30}


def order(entry: dict[str, Any]) -> float:
    return next(value for name, value in entry.items() if name.endswith("_time"))


def test_torn_lines_and_strangers_are_counted_and_passed_over(tmp_path: Path) -> None:
    path = write(tmp_path, PLANNED)
    lines = path.read_text().splitlines()
    lines[10:10] = [
        '{"job_name": "j", "step_co',
        "null",
        '{"job_name": "j", "step_start_time": "x"}',
    ]
    lines[20:20] = ['{"job_name": "other", "job_start_time": 1.0}']
    path.write_text("\n".join(lines))
    with pytest.raises(ConfigurationError, match="2 jobs"):
        reaccount.reaccount(path)
    found = reaccount.reaccount(path, "j")
    assert found.damaged == 3
    assert found.now.goodput == pytest.approx(62.5)


@pytest.mark.parametrize(
    "text", ["", "[", "[1, 2]", "\0", '{"a": 1e999}', '{"job_name": "j", "job_start_time": NaN}']
)
def test_rubbish_gives_a_sentence(text: str, tmp_path: Path) -> None:
    path = tmp_path / "rubbish"
    path.write_text(text)
    with pytest.raises((ConfigurationError, ValueError)):
        reaccount.reaccount(path)


def test_the_command(tmp_path: Path, capsys) -> None:
    path = str(write(tmp_path, PLANNED))
    assert reaccount.command([path]) == 0
    assert "62.5 % goodput; ml-goodput-measurement said 100.0 %" in capsys.readouterr().out
    assert reaccount.command([path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["old"]["disruptions"] == 0
    assert reaccount.command([str(tmp_path / "none")]) == 78


REAL = """
import datetime, json, sys, types
for name in ("google", "google.cloud", "google.cloud.logging", "google.cloud.storage",
             "requests", "scipy", "urllib3", "urllib3.util"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["scipy"].stats = None
sys.modules["urllib3.util"].retry = types.SimpleNamespace(Retry=None)
sys.modules["google.cloud.logging"].Client = object
sys.modules["google.cloud"].logging = sys.modules["google.cloud.logging"]
sys.modules["google.cloud"].storage = sys.modules["google.cloud.storage"]
# Its package imports everything at once; the one module that counts does not need the rest.
package = types.ModuleType("ml_goodput_measurement")
from importlib.util import find_spec
package.__path__ = list(find_spec("ml_goodput_measurement").submodule_search_locations)
sys.modules["ml_goodput_measurement"] = package
from ml_goodput_measurement.src import goodput

class Log:
    def __init__(self, entries):
        self.entries = entries
    def read_cloud_logging_entries(self, *_, **__):
        return self.entries, (datetime.datetime.now(datetime.timezone.utc), "x")

for number, entries in enumerate(json.load(sys.stdin)):
    folder = f"{sys.argv[1]}/{number}"
    calculator = goodput.GoodputCalculator("j", "l", Log(entries), cache_dir=folder)
    try:
        print(calculator.get_job_goodput()[0], calculator._number_of_interruptions)
    except ValueError:
        print("None", calculator._number_of_interruptions)
"""


def test_the_model_says_what_the_library_says(tmp_path: Path) -> None:
    """Its own module, with stand-ins for the cloud clients that it names and does not call."""
    fallen = [start(0), *steps(0, 99, 0), start(1050), *steps(90, 94, 1060), start(1150)]
    fallen += [*steps(50, 99, 1200), end(1700)]
    early = [*PLANNED[:51], start(900), *steps(40, 60, 300), end(400)]
    cases = [PLANNED, fallen, early, [*steps(0, 20, 0)], [start(0), *steps(0, 20, 5), end(300)]]
    result = subprocess.run(
        [sys.executable, "-c", REAL, str(tmp_path)],
        input=json.dumps(cases),
        env={**os.environ, "PYTHONPATH": ""},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    told = [line.split() for line in result.stdout.splitlines()]
    ours = [old_number(case, T + 1e6) for case in cases]
    for (goodput, disruptions), model in zip(told, ours, strict=True):
        if goodput == "None":
            assert model.goodput is None
        else:
            assert model.goodput == pytest.approx(float(goodput), abs=1e-6)
            assert model.disruptions == int(disruptions)
