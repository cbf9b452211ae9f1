"""Exported entries of a finished job: its account, the old number, and why that was wrong."""

from __future__ import annotations

import datetime
import importlib
import json
import random
import sys
import types
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from goodput_logs import ListLog

from holdfast.compat.ml_goodput_measurement import keys, kinds, reaccount
from holdfast.compat.ml_goodput_measurement.books import JobAnswer
from holdfast.compat.ml_goodput_measurement.goodput import GoodputCalculator
from holdfast.compat.ml_goodput_measurement.local import LocalLog
from holdfast.compat.ml_goodput_measurement.old_number import _row_of_steps, old_number
from holdfast.compat.ml_goodput_measurement.story import JobStory
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


def test_a_log_may_tell_its_times_in_any_zone(tmp_path: Path) -> None:
    entries = [logged(entry) for entry in PLANNED]
    for entry in entries:
        at = datetime.datetime.fromisoformat(entry["timestamp"])
        zone = datetime.timezone(datetime.timedelta(hours=2))
        entry["receiveTimestamp"] = at.astimezone(zone).isoformat()
    found = reaccount.reaccount(write(tmp_path, entries))
    assert found.now.goodput == pytest.approx(62.5)
    assert not [one for one in found.reasons if "clock" in one.words]


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


def behind(entries: list[dict[str, Any]], seconds: float) -> list[dict[str, Any]]:
    """As a host writes them whose clock is that much behind."""
    return [
        {name: value - seconds if name.endswith("_time") else value for name, value in one.items()}
        for one in entries
    ]


def asked(*batches: list[dict[str, Any]]) -> tuple[JobAnswer, JobStory]:
    story = JobStory("j")
    for batch in batches:
        story.feed(batch)
    return story.ask(int((T + 1e6) * 1e9)), story


def test_a_clock_that_is_behind_is_told_where_nothing_can_mend_it(tmp_path: Path) -> None:
    """60 s down, which no entry tells of: 92.6 % is right, and nobody can know it."""
    first = [start(0), *steps(0, 50, 0)]
    second = [start(560), *steps(50, 99, 580), end(1080)]
    found = reaccount.reaccount(write(tmp_path, [*first, *second]))
    assert found.now.goodput == pytest.approx(1000 / 1080 * 100)
    assert not any("clock" in one.words for one in found.reasons)
    found = reaccount.reaccount(write(tmp_path, [*first, *behind(second, 300)]))
    assert found.now.goodput == pytest.approx(1000 / 1020 * 100)
    (said,) = [one.words for one in found.reasons if "clock" in one.words]
    assert said.startswith("attempt 1 began 240 s before the last entry of the attempt before it: ")
    assert said.endswith("so goodput may be too high")


def test_the_calculator_warns_once_of_times_that_contradict_their_order(caplog) -> None:
    log = ListLog()
    log.entries = [start(0), *steps(0, 50, 0), *behind([start(560), *steps(50, 99, 580)], 300)]
    log.entries.append(end(1080 - 300))
    calculator = GoodputCalculator("j", "log", log)
    for _ in range(2):
        calculator.get_job_goodput()
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "goodput of job j: attempt 1 began 240 s before" in record.getMessage()


@pytest.mark.parametrize("each", [1, 1000])
def test_a_clock_that_goes_back_within_an_attempt_is_told(each: int) -> None:
    entries = [start(0), *steps(0, 20, 0), *steps(21, 40, 150), end(360)]
    _, story = asked(*(entries[at : at + each] for at in range(0, len(entries), each)))
    (said,) = story.contradictions.values()
    assert said.startswith("a clock went back by 50 s in attempt 0: ")
    _, story = asked([start(0), *steps(0, 20, 0), *steps(21, 40, 199), end(400)])
    assert story.contradictions == {}  # by a second: clocks are set all the time


@pytest.mark.parametrize("skew", [0, 300])
@pytest.mark.parametrize("each", [1, 4, 1000])
def test_attempts_of_one_step_count_as_long_as_the_steps_that_came_later(
    skew: float, each: int
) -> None:
    """Each went on right behind the one before it, so that one's step was done."""
    entries = [start(0), *steps(0, 0, 20)]
    entries += behind([start(65), *steps(1, 1, 85)], skew)
    entries += [start(125), *steps(2, 4, 145), end(175)]
    answer, story = asked(*(entries[at : at + each] for at in range(0, len(entries), each)))
    assert (answer.productive_s, answer.elapsed_s) == (50, 175)
    assert (answer.max_productive_step, answer.disruptions) == (4, 2)
    assert story.name == "j"


def test_an_attempt_that_is_moved_takes_its_events_along() -> None:
    init = {**JOB, keys.TPU_INIT_START: T + 566}, {**JOB, keys.TPU_INIT_END: T + 576}
    late = behind([start(565), *init, *steps(51, 99, 580), end(1070)], 300)
    answer, _ = asked([start(0), *steps(0, 50, 0)], late)
    assert answer.productive_s == pytest.approx(1000)
    assert answer.elapsed_s == pytest.approx(510 + 505)
    assert answer.by_kind[kinds.TPU_INIT] == pytest.approx(10)


def kept(job: str, entries: list[dict[str, Any]]) -> JobAnswer:
    """What a store says of a job that recorders told afterwards, one an attempt."""
    log = LocalLog(job)
    for entry in entries:
        if keys.JOB_START in entry:
            log.close()
            log = LocalLog(job)
        log.write_cloud_logging_entry({**entry, keys.JOB_NAME: job})
    log.close()
    return LocalLog(job).books().ask(int((T + 1e6) * 1e9))


def test_a_recorder_keeps_the_order_of_attempts_and_says_where_times_contradict_it(
    tmp_path: Path, monkeypatch, caplog
) -> None:
    monkeypatch.setenv("HOLDFAST_STORE", str(tmp_path / "store"))
    first, second = [start(0), *steps(0, 50, 0)], [start(560), *steps(50, 99, 580), end(1080)]
    answer = kept("right", [*first, *second])
    assert answer.goodput == pytest.approx(1000 / 1080 * 100)
    assert caplog.messages == []
    answer = kept("behind", [*first, *behind(second, 300)])
    assert answer.goodput == pytest.approx(1000 / 1020 * 100)
    assert "attempt 1 began 240 s before the last entry" in caplog.messages[0]


@pytest.mark.parametrize("lone", ["first", "second"])
def test_a_lone_step_that_somebody_resumed_from_took_as_long_as_others(
    tmp_path: Path, monkeypatch, lone: str
) -> None:
    """Two attempts of one step each, before or behind one that tells how long steps take."""
    monkeypatch.setenv("HOLDFAST_STORE", str(tmp_path / "store"))
    ones = [start(0), *steps(0, 0, 20), start(65), *steps(1, 1, 85)]
    entries = [*ones, start(125), *steps(2, 11, 145), end(245)]
    if lone == "second":
        entries = [start(0), *steps(0, 9, 20), start(165), *steps(10, 10, 185)]
        entries += [start(230), *steps(11, 11, 250), end(260)]
    answer = kept("lone", entries)
    assert answer.productive_s == pytest.approx(120)
    assert answer.max_productive_step == 11


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


@pytest.mark.parametrize("now", ["inf", "-inf", "nan", "-1", "1e300"])
def test_a_now_that_is_no_moment_is_one_sentence(now: str, tmp_path: Path, capsys) -> None:
    assert reaccount.command([str(write(tmp_path, PLANNED)), f"--now={now}"]) == 78
    assert capsys.readouterr().err.endswith("is no moment: give unix seconds, such as 1704000000\n")


def test_the_old_number_looks_at_each_step_and_each_event_once() -> None:
    """A job of a million steps, looked at anew for each of them, took days."""
    looks = []

    class Rows(dict[int, float]):
        def __iter__(self) -> Iterator[int]:
            looks.append(len(self))
            return super().__iter__()

    class Events(list[tuple[float, float]]):
        def __getitem__(self, at: Any) -> Any:
            found = super().__getitem__(at)
            looks.append(len(found) if isinstance(at, slice) else 1)
            return found

    events = Events((10.0 * n + 4, 10.0 * n + 5) for n in range(500))
    rows = Rows((n, 10.0 * n) for n in range(501))
    assert _row_of_steps(rows, 500, events) == pytest.approx(500 * 9)
    assert sum(looks) <= 501 + 500 + 2 * 500 * 20  # the last: to find the first of a step's


def test_the_command(tmp_path: Path, capsys) -> None:
    path = str(write(tmp_path, PLANNED))
    assert reaccount.command([path]) == 0
    assert "62.5 % goodput; ml-goodput-measurement said 100.0 %" in capsys.readouterr().out
    assert reaccount.command([path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["old"]["disruptions"] == 0
    assert reaccount.command([str(tmp_path / "none")]) == 78


# What the library imports: clients of clouds that nothing here calls, and statistics of steps.
STAND_INS = (
    "google", "google.cloud", "google.cloud.logging", "google.cloud.storage",
    "requests", "scipy", "urllib3", "urllib3.util",
)  # fmt: skip


@pytest.fixture
def theirs(monkeypatch) -> Iterator[Any]:
    """The library's own module `goodput`."""
    named = {name: types.ModuleType(name) for name in STAND_INS}
    named["scipy"].stats = None
    named["urllib3.util"].retry = types.SimpleNamespace(Retry=None)
    named["google.cloud"].logging = named["google.cloud.logging"]
    named["google.cloud"].storage = named["google.cloud.storage"]
    named["google.cloud.logging"].Client = object
    # Its package imports everything at once; the one module that counts does not need the rest.
    package = types.ModuleType("ml_goodput_measurement")
    package.__path__ = list(find_spec("ml_goodput_measurement").submodule_search_locations)
    named["ml_goodput_measurement"] = package
    for name, module in named.items():
        monkeypatch.setitem(sys.modules, name, module)
    yield importlib.import_module("ml_goodput_measurement.src.goodput")
    for name in [name for name in sys.modules if name.startswith("ml_goodput_measurement.")]:
        del sys.modules[name]


def said(theirs: Any, entries: list[dict[str, Any]], folder: Path) -> tuple[float | None, int]:
    """Its goodput (None: an error), and its count of disruptions."""
    log = types.SimpleNamespace(
        read_cloud_logging_entries=lambda *_, **__: (entries, (datetime.datetime.min, "x"))
    )
    calculator = theirs.GoodputCalculator("j", "l", log, cache_dir=str(folder))
    try:
        goodput = calculator.get_job_goodput()[0]
    except ValueError:
        goodput = None
    return goodput, calculator._number_of_interruptions


def test_the_model_says_what_the_library_says(theirs: Any, tmp_path: Path) -> None:
    fallen = [start(0), *steps(0, 99, 0), start(1050), *steps(90, 94, 1060), start(1150)]
    fallen += [*steps(50, 99, 1200), end(1700)]
    early = [*PLANNED[:51], start(900), *steps(40, 60, 300), end(400)]
    cases = [PLANNED, fallen, early, [*steps(0, 20, 0)], [start(0), *steps(0, 20, 5), end(300)]]
    cases += [a_job(random.Random(seed)) for seed in range(200)]
    for number, case in enumerate(cases):
        goodput, disruptions = said(theirs, case, tmp_path / str(number))
        model = old_number(case, T + 1e6)
        assert model.goodput == pytest.approx(goodput, abs=1e-6), number
        assert goodput is None or model.disruptions == disruptions, number


def a_job(luck: random.Random) -> list[dict[str, Any]]:
    """A few attempts with saves of several hosts, events in and across steps, clocks that jump."""
    at, step = 0.0, 0
    entries: list[dict[str, Any]] = []
    for _ in range(luck.randint(1, 4)):
        entries.append(start(at))
        at += luck.choice([0, 5, 30])
        for _ in range(luck.choice([0, 1, luck.randint(2, 12)])):
            entries += steps(step, step, at)
            if luck.random() < 0.3:
                entries += an_event(luck.choice("ab"), at + luck.choice([-20, 0, 1]), at + 4)
            at += luck.choice([10, 10, 10, 11, 40, -5])
            if luck.random() < 0.3:
                entries += a_save(luck, luck.choice([step, str(step)]))
            step += luck.choice([1, 1, 1, 1, 2])
        step = max(0, step - luck.choice([0, 1, 2, 5]))
        at += luck.choice([0, 10, 300])
    return [*entries, end(at)]


def an_event(name: str, since: float, until: float) -> list[dict[str, Any]]:
    return [
        {**JOB, keys.CUSTOM_TYPE: name, keys.CUSTOM_START: T + since},
        {**JOB, keys.CUSTOM_TYPE: name, keys.CUSTOM_END: T + until},
    ]


def a_save(luck: random.Random, step: int | str) -> list[dict[str, Any]]:
    """Entries of some hosts, to a bucket, to local disks, or to both."""
    places = luck.choice([["gs://bucket"], ["/local"], ["gs://bucket", "/local"]])
    return [
        {
            **JOB,
            keys.EVENT_TYPE: "save",
            "step": step,
            "directory": place,
            keys.SAVE_SECONDS: luck.choice([0.5, 2.0, 3.25]),
            "checkpointer_blocking_duration_secs": 1.0,
            "wait_for_prev_duration_secs": 0.0,
            "get_old_steps_duration_secs": 0.0,
        }
        for place in places
        for _ in range(luck.randint(1, 3))
    ]
