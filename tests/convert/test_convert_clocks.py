"""Clocks of logs: set back, behind another host's, without a year, and in summer time."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from converting import account_of, converted, line_of, stamp, steps

from holdfast.convert.asked import ConvertOptions

S = 10**9


def test_a_clock_that_goes_back(tmp_path: Path) -> None:
    log = "".join(line_of(n, 1.0, 100.0 + n) for n in range(10))
    log += "".join(line_of(n, 1.0, n - 3500.0) for n in range(10, 20))
    done = converted(tmp_path, "maxtext", log)
    assert account_of(done)["productive_s"] == pytest.approx(20.0, abs=1.1)
    assert any("clock was set back" in note for note in done.notes)


@pytest.mark.parametrize("has_banner", [True, False])
def test_an_attempt_on_a_host_whose_clock_is_behind(has_banner: bool, tmp_path: Path) -> None:
    """It counts from the end of the one before: what it read, saved and trained, too."""
    log = "".join(line_of(n, 10.0, 10.0 * (n + 1)) for n in range(300))
    started = -300.0 if has_banner else -310.0
    if has_banner:
        log += stamp(-310.0) + " System Information: Jax Version: 0.9.1\n"
        log += stamp(-305.0) + " restoring from this run's directory step 199\n"
        log += stamp(-300.0) + " Finished restoring\n"
    log += "".join(line_of(n, 10.0, started + 10.0 * (n - 199)) for n in range(200, 500))
    log += stamp(started + 3007.0) + " Finished blocking save in 7.00 seconds.\n"
    done = converted(tmp_path, "maxtext", log)
    account = account_of(done)
    assert (account["elapsed_s"], account["productive_s"]) == (6007.0 + 10 * has_banner, 5000.0)
    restore = {"startup": 5.0, "restore": 5.0} if has_banner else {}
    assert account["badput_s"] == {"lost": 1000.0, "save": 7.0} | restore
    assert any("the clock of its host is behind" in note for note in done.notes)


def test_years_are_not_in_the_log(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    log = "I1231 23:59:59.0 1 m.py:1] completed step: 0, seconds: 1.0, loss\n"
    log += "I0101 00:00:01.0 1 m.py:1] completed step: 1, seconds: 1.0, loss\n"
    path.write_text(log)
    os.utime(path, (1767225700, 1767225700))  # 1 January 2026
    rows = steps(converted(path, "maxtext").facts)
    assert [r.end_ns for r in rows] == [1767225599 * S, 1767225601 * S]


def test_a_late_line_of_the_old_year_makes_no_year_more(tmp_path: Path) -> None:
    """Threads write a little out of order; what is assumed is said of both years."""
    path = tmp_path / "a.log"
    line = "I{} 1 m.py:1] completed step: {}, seconds: 10.0, loss\n"
    log = line.format("1231 23:59:50.0", 0) + line.format("0101 00:00:00.0", 1)
    log += "I1231 23:59:59.9 2 m.py:1] a thread's word\n" + line.format("0101 00:00:10.0", 2)
    path.write_text(log)
    os.utime(path, (1767225700, 1767225700))  # 1 January 2026
    done = converted(path, "maxtext")
    assert account_of(done)["elapsed_s"] == 30.0
    assert any("2025 to 2026 is assumed" in note for note in done.notes)
    asked = ConvertOptions(start_ns=1767225599 * S)  # the process started just before the new year
    path.write_text(line.format("0101 00:00:10.0", 1))
    (row,) = steps(converted(path, "maxtext", asked=asked).facts)
    assert row.end_ns == 1767225610 * S


def test_the_hour_that_comes_twice_in_autumn(tmp_path: Path) -> None:
    """Local times without a zone, and each line with another just late, or half an hour of none."""
    zone = ZoneInfo("Europe/Berlin")
    for minutes in (1, 40):
        log = ""
        for n in range(360 // minutes):
            end = datetime(2024, 10, 26, 22, tzinfo=UTC) + timedelta(minutes=minutes * (n + 1))
            late = (end - timedelta(seconds=5)).astimezone(zone)
            log += f"{end.astimezone(zone):%Y-%m-%d %H:%M:%S} completed step: {n}, "
            log += f"seconds: {60 * minutes}.0, loss\n{late:%Y-%m-%d %H:%M:%S} a thread's word\n"
        done = converted(tmp_path, "maxtext", log, ConvertOptions(zone=zone))
        account = account_of(done)
        assert (account["elapsed_s"], account["goodput"]) == (6 * 3600.0, 1.0)
