"""`holdfast report --history`: from a file to the numbers, and what is said of a bad one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.main import main

TRUTH = Path(__file__).parents[1] / "truth"
CASES = sorted(path.name.removesuffix(".jsonl") for path in TRUTH.glob("*.jsonl"))
RUN = '{"event": "run", "name": "r", "requested": 0.0, "ended": 40.0, "chips": 8}\n'
ATTEMPT = '{"event": "attempt", "attempt": 0, "start": 0.0, "end": 40.0, "cause": "done"}\n'
STEPS = '{"event": "steps", "attempt": 0, "first": 1, "last": 3, "start": 10.0, "end": 40.0}\n'


def report(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as exit_:
        main(["report", *map(str, arguments)])
    assert isinstance(exit_.value.code, int)
    return exit_.value.code, *capsys.readouterr()


def close(found: Any, wanted: Any, where: str = "") -> None:
    """`found` has all that is wanted, numbers within a millionth."""
    if isinstance(wanted, dict):
        for key, value in wanted.items():
            assert key in found, f"{where}.{key}"
            close(found[key], value, f"{where}.{key}")
    elif isinstance(wanted, list):
        assert len(found) == len(wanted), where
        for i, value in enumerate(wanted):
            close(found[i], value, f"{where}[{i}]")
    else:
        assert found == (pytest.approx(wanted, abs=1e-6) if wanted is not None else None), where


@pytest.mark.parametrize("case", CASES)
def test_the_right_answers(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = json.loads((TRUTH / f"{case}.expected.json").read_text())
    now = [] if wanted.get("now") is None else ["--now", wanted.pop("now")]
    code, out, err = report(capsys, "--history", TRUTH / f"{case}.jsonl", "--json", *now)
    assert (code, err) == (0, "")
    close(json.loads(out), wanted)


def test_the_cases_are_there() -> None:
    assert len(CASES) >= 10


@pytest.mark.real
def test_from_standard_input() -> None:
    command = [sys.executable, "-m", "holdfast.cli.main", "report", "--history", "-", "--json"]
    done = subprocess.run(command, input=RUN + ATTEMPT + STEPS, capture_output=True, text=True)
    assert (done.returncode, json.loads(done.stdout)["goodput"]) == (0, 0.75)


def test_a_window_and_another_now(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "h.jsonl"
    file.write_text(RUN + ATTEMPT + STEPS)
    _, out, _ = report(capsys, "--history", file, "--json", "--window", 20)
    close(json.loads(out), {"elapsed_s": 20, "goodput": 1, "steps_kept": 2})
    _, out, _ = report(capsys, "--history", file, "--json", "--now", 20)
    close(json.loads(out), {"elapsed_s": 20, "goodput": 0.5, "steps_kept": 1})
    code, out, _ = report(capsys, "--history", file, "--window", "20")
    assert code == 0
    assert "2 steps kept" in out


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (RUN + "{", 2),
        (RUN + ATTEMPT + STEPS.replace("40.0", "5.0"), 3),
        (RUN + ATTEMPT + STEPS.replace("40.0", "NaN"), 3),
        (RUN + ATTEMPT + STEPS.replace('"attempt": 0', '"attempt": 7'), 3),
        (RUN + ATTEMPT + ATTEMPT.replace('"attempt": 0', '"attempt": 1'), 3),
        (RUN + '{"event": "party", "at": 3}\n', 2),
        (RUN + RUN, 2),
    ],
)
def test_an_impossible_line_is_named(
    text: str, line: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "h.jsonl"
    file.write_text(text)
    code, out, err = report(capsys, "--history", file)
    assert (code, out) == (78, "")
    assert f"line {line}:" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 78, "name a run, or a file with --history, or give --fleet for all runs"),
        (["x", "--history", "{file}"], 78, "name a run, or a file with --history"),
        (["--history", "{file}", "--window", "-3"], 78, "less than zero"),
        (["--history", "{file}", "--window", "nan"], 78, "not a duration"),
        (["--history", "{file}", "--last", "7x"], 78, ": 7x: there is no unit 'x'"),
        (["--history", "{file}", "--now", "soon"], 78, "seconds on the history's clock"),
        (["--history", "{file}.gone"], 78, "there is no history file"),
        (["--history", "{folder}"], 78, "directory"),
        (["--history", "/dev/null"], 78, "/dev/null is not a history: line 1: "),
        (["--history", "{file}", "--picture", "{folder}/no/x.svg"], 69, "the picture cannot be"),
    ],
)
def test_what_cannot_be_meant_is_said_in_one_sentence(
    arguments: list[str],
    code: int,
    words: str,
    store: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "h.jsonl"
    file.write_text(RUN + ATTEMPT + STEPS)
    given = [a.replace("{file}", str(file)).replace("{folder}", str(tmp_path)) for a in arguments]
    found, out, err = report(capsys, *given)
    assert (found, out) == (code, "")
    assert words in err
    assert err.count("\n") == 1


def test_bytes_that_are_no_text_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "h.jsonl"
    file.write_bytes((RUN + ATTEMPT).encode() + b'{"event": "run\xff"}\n')
    code, _, err = report(capsys, "--history", file)
    assert code == 78
    assert "line 3: byte 0xff is not UTF-8" in err


def test_the_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "h.jsonl"
    file.write_text(RUN + ATTEMPT + STEPS)
    assert report(capsys, "--history", file, "--picture", tmp_path / "r.svg")[0] == 0
    assert "75.0 %" in (tmp_path / "r.svg").read_text()
