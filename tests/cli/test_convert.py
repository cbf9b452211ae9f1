"""`holdfast convert`: from a log to the report's numbers, and what is said on the way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.cli.main import main

LOG = "".join(
    f"completed step: {n}, seconds: 2.000, TFLOP/s/device: 1, loss: 1\n" for n in range(9)
)


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as exit_:
        main([*map(str, arguments)])
    assert isinstance(exit_.value.code, int)
    return exit_.value.code, *capsys.readouterr()


def test_from_a_log_to_a_report_and_a_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, history = tmp_path / "train.log", tmp_path / "run.jsonl"
    log.write_text(LOG + LOG)
    code, out, err = run(
        capsys, "convert", log, "--out", history, "--start", "2026-03-17T11:00:00+01:00"
    )
    assert (code, out) == (0, "")
    assert "holdfast: assumed: MaxText counts steps from 0" in err
    assert "train.log:10: the steps fall back: counted as a restart" in err
    code, out, err = run(capsys, "report", "--history", history, "--json")
    assert (code, err) == (0, "")
    account = json.loads(out)
    assert (account["start_s"], account["elapsed_s"]) == (1773741600.0, 36.0)
    assert (account["goodput"], account["lost_steps"]) == (0.5, 9)
    shown = run(capsys, "report", "--history", history)[1]
    assert "counted as a restart" in " ".join(shown.split())
    assert run(capsys, "plan", "--from-run", history, "--json")[0] == 0


def test_the_history_goes_to_standard_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a").write_text("step,dur\n1,5\n2,5\n")
    code, out, _ = run(
        capsys, "convert", tmp_path / "a", "--from", "table", "--map", "step=step,seconds=dur:ms",
        "--name", "mine", "--chips", 8,
    )  # fmt: skip
    last = json.loads(out.splitlines()[-1])
    assert (code, last["name"], last["chips"], last["ended"]) == (0, "mine", 8, 0.01)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["{gone}"], "there is no log"),
        (["{rubbish}"], "is not recognized; name it with --from (maxtext, "),
        (["{empty}"], "is empty: there is nothing to convert in it"),
        (["{folder}"], "holds no log of a known kind: there is nothing to convert in it"),
        (
            ["{rubbish}", "--from", "maxtext"],
            "no step was found; it was read as MaxText's log",
        ),
        (["{log}", "--gap", "-1"], "--gap -1.0: give a positive number"),
        (["{log}", "--pause", "nan"], "--pause nan: give a positive number"),
        (["{log}", "--start", "soon"], "--start soon: give a time like"),
        (["{log}", "--out", "{out}", "--requested", "9"], "--requested is later than the first"),
        (["{log}", "--out", "{out}", "--end", "1"], "--end is earlier than the last"),
        (["{log}", "--start", "9999-12-31T23:59:59Z"], "--start 9999-12-31T23:59:59Z: give a time"),
        (["{log}", "--end", "0001-01-01T00:00:00+14:00"], "--end 0001-01-01T00:00:00+14:00: give"),
        (["{log}", "--timezone", "+²"], "--timezone +²: give a zone like"),
        (["{log}", "--timezone", "+02:99"], "--timezone +02:99: give a zone like"),
        (["{blanks}"], "is not recognized"),
        (["{returns}"], "is not recognized"),  # at once: its beginning is looked at in one pass
        (["{log}", "--timezone", "Mars"], "--timezone Mars: give a zone like"),
        (["{log}", "--map", "step"], "--map step: give NAME=COLUMN"),
        (["{log}", "--map", "loss=loss"], "--map loss=loss: give NAME=COLUMN"),
        (["{folder}", "--from", "maxtext"], "cannot be read"),
    ],
)
def test_what_cannot_be_meant_is_said_in_one_sentence(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "log").write_text(LOG)
    (tmp_path / "rubbish").write_bytes(b"\0\xff\n" * 100)
    (tmp_path / "blanks").write_text(" " * (1 << 18))
    (tmp_path / "returns").write_text("\r" * (1 << 18))
    (tmp_path / "empty").touch()
    names = {"{folder}": tmp_path} | {
        f"{{{n}}}": tmp_path / n
        for n in ("log", "rubbish", "blanks", "returns", "empty", "gone", "out")
    }
    code, out, err = run(capsys, "convert", *[names.get(a, a) for a in arguments])
    assert (code, out) == (78, "")
    assert words in err
    assert err.count("\n") == 1


def test_what_was_there_stays_when_a_log_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, log = tmp_path / "run.jsonl", tmp_path / "log"
    out.write_text("mine")
    log.write_text("completed step: 0, sec")
    assert run(capsys, "convert", log, "--from", "maxtext", "--out", out)[0] == 78
    assert (out.read_text(), len(list(tmp_path.iterdir()))) == ("mine", 2)
