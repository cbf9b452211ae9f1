"""Tables of steps: columns by name, units, times of all kinds, samples, attempts, rubbish."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from converting import account_of, converted, steps

from holdfast.convert import table
from holdfast.convert.asked import ConvertOptions, TableColumn
from holdfast.core.ledger.facts import AttemptFact
from holdfast.errors import ConfigurationError

S = 10**9
HOUR = [f"2026-03-17T{10 + n // 60:02d}:{n % 60:02d}:00" for n in range(120)]


def goodput_of(tmp_path: Path, text: str, asked: ConvertOptions | None = None) -> float:
    return float(account_of(converted(tmp_path, "table", text, asked))["productive_s"])


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("step,time\n" + "".join(f"{n},{1000 + 60 * n}\n" for n in range(1, 11)), {}),
        ("step;timestamp\n" + "".join(f"{n};{HOUR[n]}Z\n" for n in range(1, 11)), {}),
        ("a\tb\n" + "".join(f"{n}\t{HOUR[n]}\n" for n in range(1, 11)), {"step": "a", "time": "b"}),
        ("step,seconds\r\n" + "".join(f"{n},60\r\n" for n in range(1, 11)), {}),
        ("step,ms\n" + "".join(f"{n},60000\n" for n in range(1, 11)), {"seconds": "ms:ms"}),
        ("step,elapsed\n" + "".join(f"{n},{60 * n}\n" for n in range(1, 11)), {}),
        ("step,time\n" + "".join(f"{n},{HOUR[n]}Z\n" for n in range(2, 21, 2)), {"time": "time"}),
        ("step,t\n" + "".join(f"{n},{6e4 * n}\n" for n in range(1, 11)), {"time": "t:ms"}),
        ("".join(json.dumps({"step": n, "_timestamp": 60 * n}) + "\n" for n in range(1, 11)), {}),
        (json.dumps([{"step": n, "step_time": 60.0, "loss": None} for n in range(1, 11)]), {}),
        (json.dumps([{"step": n, "step_time": 60.0} for n in range(1, 11)], indent=2), {}),
    ],
)
def test_ten_minutes_in_many_spellings(text: str, columns: dict[str, str], tmp_path: Path) -> None:
    units = {"ms": 10**6, "": 0}
    mapped = {
        what: TableColumn(name.partition(":")[0], units[name.partition(":")[2]])
        for what, name in columns.items()
    }
    minutes = 20 if "2026-03-17T10:20" in text else 10
    assert goodput_of(tmp_path, text, ConvertOptions(columns=mapped)) == pytest.approx(
        60.0 * minutes
    )


def test_a_list_on_one_line_may_be_long(tmp_path: Path) -> None:
    """As json.dump writes it; of other lines what is over a mebibyte is left out, and named."""
    rows = [{"step": n, "time": 10 * n, "words": "x" * 3000} for n in range(1, 1001)]
    assert goodput_of(tmp_path, json.dumps(rows)) == 10_000.0
    rows[3]["words"] = "x" * (2 << 20)
    done = converted(tmp_path, "table", "".join(json.dumps(row) + "\n" for row in rows[:6]))
    assert any("log:4: the line is longer than 1,048,576 bytes" in note for note in done.notes)
    assert [r.last for r in steps(done.facts)] == [1, 2, 3, 5, 6]


def test_a_sampled_log_has_rows_of_equal_steps(tmp_path: Path) -> None:
    text = "step,time\n" + "".join(f"{n},{3 * n}\n" for n in range(10, 101, 10))
    rows = steps(converted(tmp_path, "table", text).facts)
    assert [(r.first, r.last) for r in rows] == [(n - 9, n) for n in range(10, 101, 10)]
    assert goodput_of(tmp_path, text) == 300.0


def test_durations_of_sampled_steps_are_those_of_each(tmp_path: Path) -> None:
    text = "step,seconds\n" + "".join(f"{n},2\n" for n in range(10, 101, 10))
    assert goodput_of(tmp_path, text) == 200.0
    asked = ConvertOptions(
        columns={"row_seconds": TableColumn("seconds"), "seconds": TableColumn("none")}
    )
    with pytest.raises(ConfigurationError, match="no such column"):
        goodput_of(tmp_path, text, asked)
    whole = text.replace("seconds", "all")
    assert (
        goodput_of(tmp_path, whole, ConvertOptions(columns={"row_seconds": TableColumn("all")}))
        == 20.0
    )


@pytest.mark.parametrize("column", ["seconds", "loss"])
def test_the_first_line_of_an_attempt_stands_for_as_many_steps_as_others(
    column: str, tmp_path: Path
) -> None:
    """Three attempts go back from step 500 to 300; of the second only one line is left."""
    rows = [(n, 0) for n in range(100, 501, 100)] + [(400, 1)]
    rows += [(n, 2) for n in range(400, 801, 100)]
    lines = [f"{step},{1000 * n},10,{a}\n" for n, (step, a) in enumerate(rows, 1)]
    account = account_of(
        converted(tmp_path, "table", f"step,time,{column},attempt\n" + "".join(lines))
    )
    found = (account["steps_kept"], account["lost_steps"], account["elapsed_s"])
    assert found == (800, 300, 11_000.0)


def test_a_first_line_between_the_others_stands_for_one_step(tmp_path: Path) -> None:
    """Many log the first step of each process, and it compiles."""
    text = "step,seconds,attempt\n" + "".join(f"{n},2,a\n" for n in range(10, 51, 10))
    text += "31,60,b\n" + "".join(f"{n},2,b\n" for n in range(40, 101, 10)) + "91,60,c\n"
    account = account_of(done := converted(tmp_path, "table", text))
    assert [(r.first, r.last) for r in steps(done.facts) if r.attempt][:2] == [(31, 31), (32, 40)]
    assert (account["lost_steps"], account["elapsed_s"]) == (30, 100 + 60 + 138 + 60)


def test_what_was_held_up_is_no_step(tmp_path: Path) -> None:
    times = [*range(10, 110, 10), *range(310, 410, 10)]
    text = "step,time\n" + "".join(f"{n},{t}\n" for n, t in enumerate(times, 1))
    done = converted(tmp_path, "table", text)
    account = account_of(done)
    assert (account["productive_s"], account["badput_s"]) == (200.0, {"other": 200.0})
    assert any("log:12: took over 3 times" in note for note in done.notes)
    assert goodput_of(tmp_path, text, ConvertOptions(pause=30.0)) == 400.0


@pytest.mark.parametrize("took", [60, 1200])
def test_a_validation_has_a_row_of_the_step_before(took: int, tmp_path: Path) -> None:
    """As in Lightning's metrics.csv: it is no restart, and what it took is no step."""
    text, time = "epoch,step,time,train_loss,val_loss,val_accuracy\n", 1000
    for step in range(10, 451, 10):
        time += 20
        text += f"0,{step},{time},0.5,,\n"
        if step % 100 == 0:
            time += took
            text += f"0,{step},{time - 1},,0.6,\n0,{step},{time},,,0.7\n"
    done = converted(tmp_path, "table", text)
    account = account_of(done)
    assert (account["steps_kept"], account["productive_s"]) == (450, 900.0)
    assert (account["disruptions"], account["badput_s"]) == ([], {"custom:eval": 4.0 * took})
    assert any("because of an evaluation" in note for note in done.notes)


def test_a_step_that_is_told_again_is_no_restart(tmp_path: Path) -> None:
    """Micro-batches have a line each, with one step, and some are slow; silence is a restart."""
    parts = ((n, part) for n in range(100) for part in (0, 10, 25, 35))
    rows = [(n, 1000 + 40 * n + part) for n, part in parts]
    text = "step,time,loss\n" + "".join(f"{step},{time},0.5\n" for step, time in rows)
    account = account_of(converted(tmp_path, "table", text))
    assert (account["disruptions"], account["lost_steps"]) == ([], 0)
    assert account["goodput"] > 0.99
    text += "".join(f"{n},{6000 + 40 * n},0.5\n" for n in range(99, 200))
    account = account_of(converted(tmp_path, "table", text))
    assert len(account["disruptions"]) == 1


def test_attempts_and_ranks_have_columns(tmp_path: Path) -> None:
    text = "step,time,attempt,rank\n"
    for attempt, first, start in (("a", 1, 0), ("b", 6, 100)):
        for n in range(first, first + 10):
            for rank in (0, 1):
                text += f"{n},{start + n + rank / 10},{attempt},{rank}\n"
    done = converted(tmp_path, "table", text)
    assert len([f for f in done.facts if isinstance(f, AttemptFact)]) == 2
    assert (account_of(done)["steps_kept"], account_of(done)["lost_steps"]) == (15, 5)


def test_elapsed_times_of_attempts_follow_one_another(tmp_path: Path) -> None:
    """The second attempt says that it is further than the first was: it is another all the same."""
    text = "step,elapsed,attempt\n1,10,a\n2,20,a\n2,30,b\n3,40,b\n"
    account = account_of(done := converted(tmp_path, "table", text))
    assert len([f for f in done.facts if isinstance(f, AttemptFact)]) == 2
    assert (account["elapsed_s"], account["steps_kept"], account["lost_steps"]) == (60.0, 3, 1)


def test_several_steps_in_a_second_by_a_clock_of_seconds(tmp_path: Path) -> None:
    """What they took is no pause: they are one row of equal steps."""
    text = "step,time\n" + "".join(f"{n},{1000 + n // 3}\n" for n in range(1, 31))
    assert goodput_of(tmp_path, text) == pytest.approx(10.0, abs=0.5)


def test_steps_from_0(tmp_path: Path) -> None:
    text = "step,seconds\n0,1\n1,1\n2,1\n"
    assert [r.last for r in steps(converted(tmp_path, "table", text).facts)] == [1, 2, 3]


def test_rows_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    text = "# a comment\nstep,time\n1,10\nx,20\n3,30,4\n\n4,40\n5,never\n6,60\n-7,70\n8,8"
    done = converted(tmp_path, "table", text)
    notes = "\n".join(done.notes)
    for words in ("log:4, ", "log:5: not the 2 fields", "log:8: its time (time)"):
        assert words in notes
    assert [r.last for r in steps(done.facts)] == [1, 4, 6]


def test_what_comes_before_the_first_step_and_between_them_is_left_out(tmp_path: Path) -> None:
    """What a run was made of, a line that breaks off, and another program's line."""
    rows = [json.dumps({"step": n, "time": n}) for n in range(1, 7)]
    text = "\n".join(['{"ste', '{"config": {"lr": 1}}', *rows[:3], "a warning", "", *rows[3:]])
    done = converted(tmp_path, "table", text)
    assert [r.last for r in steps(done.facts)] == [1, 2, 3, 4, 5, 6]
    notes = "\n".join(done.notes)
    assert "log:1, " in notes
    assert "log:6: not JSON" in notes
    assert "log:2: it has no step and time: left out" in notes


def test_names_are_not_looked_for_in_all_of_a_long_file(tmp_path: Path) -> None:
    read = []

    def endless() -> Iterator[tuple[int, Mapping[str, Any]]]:
        while True:
            read.append(1)
            yield len(read), {"a": 1}

    with (
        mock.patch.object(table, "rows", return_value=endless()),
        pytest.raises(ConfigurationError, match="names no column of steps; it has a"),
    ):
        converted(tmp_path, "table", "")
    assert len(read) == table.LOOK_AT


def test_the_first_step_is_the_runs_in_later_files_too(tmp_path: Path) -> None:
    """With --file-times as without: files are one table."""
    for name, first in (("a", 0), ("b", 5)):
        text = "step,seconds\n" + "".join(f"{first + n},1\n" for n in range(5))
        (tmp_path / name).write_text(text)
        os.utime(tmp_path / name, (1000 + first, 1000 + first))
    for file_times in (False, True):
        done = converted(
            [tmp_path / "a", tmp_path / "b"], "table", asked=ConvertOptions(file_times=file_times)
        )
        assert [r.last for r in steps(done.facts)] == list(range(1, 11))


def test_milliseconds_must_be_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"give the unit, as in --map time=time:ms"):
        converted(tmp_path, "table", "step,time\n1,1773741600000\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no step was found"),
        ("a,b\n1,2\n", "names no column of steps; it has a, b"),
        ("step,loss\n1,2\n", "no column of times or durations"),
        ('{"step": 1, "time": 1}{', "no step was found.*breaks off"),
    ],
)
def test_what_is_no_table_of_steps(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=words):
        converted(tmp_path, "table", text)
