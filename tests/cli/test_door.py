"""One door to the terminal: whatever stands in a store, no command lets it be obeyed."""

from __future__ import annotations

import ast
import io
import json
import os
import sys
import unicodedata
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.cli import screen as screens
from holdfast.cli.door import console, doors
from holdfast.cli.main import COMMANDS, main
from holdfast.core.hosts.engine import Submission
from holdfast.journal import lease
from holdfast.journal.attempts import attempts
from holdfast.journal.control import request
from holdfast.journal.holder import RunHolder
from holdfast.journal.incidents import story_of, write_incident
from holdfast.journal.store import RunStore

sys.path.insert(0, str(Path(__file__).parents[1] / "runs"))  # --import-mode=importlib leaves it out
from made_runs import Made, make_run

sys.path.pop(0)
S = 1_000_000_000
POISON = "\x1b]0;owned\x07\x1b[2J\x9b2J\x08\u202egone"
FURTHER = "\nholdfast: run 'lm': done"
SECRET = "hf_" + "s3cr3t" * 5


@pytest.fixture
def poisoned(store: Path, tmp_path: Path) -> Path:
    """A run in whose every word there is something that a terminal obeys."""
    folder, _ = make_run(
        RunStore(store), "lm", [Made(3, cause="failed"), Made(3, cause="killed")], requested_ns=S
    )
    run_json = folder.path / "run.json"
    said = json.loads(run_json.read_text())
    said["command"] = ["python", f"train{POISON}.py", "--api-key", "topsecret", POISON]
    run_json.write_text(json.dumps(said))
    for record in attempts(folder).records:
        end = folder.attempt_dir(record.attempt) / "end.json"
        said = json.loads(end.read_text())
        said |= {"words": f"it failed {POISON}{FURTHER}", "cause": f"bad{POISON}"}
        end.write_text(json.dumps(said))
        story = story_of(
            record.attempt,
            "failed",
            f"ValueError: {POISON} {SECRET}{FURTHER}",
            exits=(1,),
            rank=0,
            last_lines=(f"line {POISON}", f"WANDB_API_KEY={SECRET}"),
            traceback=f"Traceback\n  {POISON}\nValueError: {POISON}",
            stacks=("rank-00000.stacks.txt",),
        )
        write_incident(folder, record.attempt, story)
        (folder.incidents_dir(record.attempt) / "rank-00000.stacks.txt").write_text(POISON)
        log = folder.logs_dir(record.attempt) / "rank-00000.log"
        log.parent.mkdir(exist_ok=True)
        log.write_text(f"\x1b[31mred\x1b[0m {POISON}\n{POISON}\n")
    holder = replace(RunHolder.current(), host=f"host{POISON}", boot_id="another")
    claim = {"epoch": 1, **holder.to_json(), "user": POISON}
    (folder.lease_dir / "000001.json").write_text(json.dumps(claim))
    row = {"index": 0, "state": POISON, "address": f"{POISON}{FURTHER}"}
    row |= {"trains_as": None, "heard_unix_ns": 1}
    (folder.lease_dir / "000001.hosts").write_text(json.dumps({"hosts": [row]}))
    order = Submission(POISON, POISON, POISON, POISON, 1, 0, (POISON,), options=((POISON, POISON),))
    said = {"submission": order.to_json(), "job": POISON, "words": POISON, "submitted_unix_ns": 1}
    (folder.path / "engine.json").write_text(json.dumps(said))
    folder.pins_path.write_text(json.dumps({"pins": [], "tags": {POISON: "0000-000000000001"}}))
    request(folder, "rollback", to=0, skip_batches=0)
    for name in (f"0000-000000000001{POISON}", "0000-000000000002"):
        (folder.ckpt_dir / name).mkdir()
        (folder.ckpt_dir / name / "manifest.json").write_text(f'{{"{POISON}"')
    damaged = store / "damaged"
    damaged.mkdir()
    (damaged / "run.json").write_text(json.dumps({"format": 1, "name": POISON}))
    (store / f"odd{POISON}").mkdir()
    (store / f"odd{POISON}" / "run.json").write_text("{}")
    history = tmp_path / "run.history"
    history.write_text(json.dumps({"fact": POISON}) + "\n")
    return store


# What each command is tried with. Those without a line say nothing that a store holds, or are
# tried on the way that they say it: the supervisor's screens below, pages in tests/report.
TRIED: dict[str, list[list[str]]] = {
    "ls": [["ls"], ["ls", "--json"]],
    "report": [
        ["report", "lm"],
        ["report", "lm", "--every-story"],
        ["report", "lm", "--json"],
        ["report", "--fleet"],
        ["report", "--fleet", "--every-run"],
        ["report", f"no{POISON}"],
        ["report", "damaged"],
        ["report", "--history", "run.history"],
    ],
    "logs": [["logs", "lm"], ["logs", "lm", "--attempt", "0", "--tail", "1"]],
    "ckpt": [["ckpt", "ls", "lm"], ["ckpt", "verify", "lm"], ["ckpt", "pin", "lm", f"9{POISON}"]],
    "stop": [["stop", "lm"]],
    "save": [["save", "lm"]],
    "again": [["again", "lm"], ["again", f"no{POISON}"]],
    "preload": [["preload", "lm"], ["preload", f"no{POISON}"]],
    "release": [["release", "lm"], ["release", "lm", "--accept-stored"]],
    "profile": [["profile", "lm"], ["profile", "lm", "--last"], ["profile", f"no{POISON}"]],
    "rollback": [["rollback", "lm", "--to", f"x{POISON}"]],
    "mv": [["mv", "lm", f"x{POISON}"], ["mv", "damaged", "x"], ["mv", "lm", "x"]],
    "rm": [["rm", f"x{POISON}", "--yes"], ["rm", "damaged", "--yes"], ["rm", "lm", "--yes"]],
    "hosts": [["hosts", "lm"], ["hosts", "lm", "--json"], ["hosts", f"no{POISON}"]],
    "health": [["health", "lm"]],
    "recover": [["recover", "lm"]],
    "export": [["export", "lm"], ["export", "lm", "--prometheus", "--once"]],
    "convert": [["convert", "run.history"]],
    "plan": [["plan", "--from-run", "lm"]],
    "simulate": [["simulate", "--from-run", "lm", "--replications", "1", "--days", "0.1"]],
    "replay": [["replay", "lm"], ["replay", "lm", "--trace"], ["replay", f"no{POISON}"]],
    "config": [["config"]],
    "run": [["run", "--name", POISON, "--", "true"]],
}
ELSEWHERE = {"serve", "submit", "up", "rehearse", "doctor", "calibrate", "agent"}


def test_every_command_is_thought_of() -> None:
    assert set(TRIED) | ELSEWHERE == set(COMMANDS)


@pytest.mark.parametrize("words", [words for lines in TRIED.values() for words in lines], ids=ascii)
def test_no_command_lets_it_through(
    words: list[str],
    poisoned: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HOLDFAST_STORE", str(poisoned))
    monkeypatch.setenv("HOLDFAST_MIRROR", str(tmp_path / "mirror"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(lease, "SILENT_AFTER_S", 0.0)  # the holder, of another host, is given up
    before = sys.stdout, sys.stderr
    with pytest.raises(SystemExit):
        main(words)
    assert (sys.stdout, sys.stderr) == before
    for said in capsys.readouterr():
        obeyed = said.replace("\x1b[31m", "").replace("\x1b[0m", "") if words[0] == "logs" else said
        assert [c for c in obeyed if unicodedata.category(c) == "Cc" and c not in "\n\t"] == []
        assert "\u202e" not in obeyed
        assert not [line for line in said.splitlines() if line == FURTHER.strip()]
        assert "topsecret" not in said
        assert SECRET not in said
    if "--json" in words:
        json.loads(capsys.readouterr().out or "{}")


def test_logs_as_they_are_for_who_asks(
    poisoned: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOLDFAST_STORE", str(poisoned))
    with pytest.raises(SystemExit):
        main(["logs", "lm", "--raw"])
    assert f"\x1b[31mred\x1b[0m {POISON}\n" in capsys.readouterr().out


def test_the_supervisor_s_lines_and_those_of_ranks(capfd: pytest.CaptureFixture[str]) -> None:
    screen = screens.PlainScreen("lm", "info", ranks=2, status=False)
    screen.say("error", f"it failed {POISON}{FURTHER}")
    screen.line(0, f"\x1b[31mred\x1b[0m {POISON}")
    screen.close()
    out, err = capfd.readouterr()
    assert out.startswith("[0] \x1b[31mred\x1b[0m \\x1b]0;owned\\x07")
    assert err.startswith("holdfast: !! it failed \\x1b]0;owned\\x07\\x1b[2J")
    assert FURTHER not in err


def test_a_console_s_colours_are_its_own() -> None:
    from rich.table import Table
    from rich.text import Text

    drawn = io.StringIO()
    shown = console(file=drawn)
    shown._color_system, shown._force_terminal = None, False
    table = Table(title=POISON)
    table.add_column(POISON)
    table.add_row(f"[bold]{POISON}[/]")
    table.add_row(Text(POISON, "red"))
    shown.print(table, POISON, Text.from_ansi(f"\x1b]8;;http://x\x1b\\{POISON}"))
    assert "[bold]" in drawn.getvalue()
    assert not [c for c in drawn.getvalue() if unicodedata.category(c) == "Cc" and c != "\n"]


def test_what_is_printed_by_any_means_goes_through() -> None:
    import click

    behind = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="strict", write_through=True)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "stdout", behind)
        with doors():
            print(f"a{POISON}–")
            click.echo(f"b{POISON}")
            click.secho(f"c{POISON}", fg="red", color=True)
            sys.stdout.writelines([f"d{POISON}\n"])
    assert isinstance(behind.buffer, io.BytesIO)
    said = behind.buffer.getvalue().decode("ascii")
    assert [line[0] for line in said.splitlines()] == ["a", "b", "c", "d"]
    assert said.count("\\x1b]0;owned") == 4
    assert "\x1b" not in said


@pytest.mark.parametrize(
    ("words", "code"), [(["ls"], 0), (["config"], 0), (["nosuch"], 78), (["rm", "lm"], 78)]
)
def test_closed_standard_streams_are_no_error(
    words: list[str], code: int, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python has None for them (`holdfast ls <&- >&- 2>&-`)."""
    monkeypatch.setenv("HOLDFAST_STORE", str(store))
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == code


TABLES = [["plan", "--mtbf", "3h"], ["report", "lm"], ["report", "--fleet"]]


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("words", [["config"], ["config", "--json"], ["--help"], *TABLES])
def test_an_output_that_cannot_be_written_is_one_sentence(
    words: list[str],
    store: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As on a disk that is full (`holdfast config >list`)."""
    monkeypatch.setenv("HOLDFAST_STORE", str(store))
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(SystemExit) as ended:
            main(words)
    assert ended.value.code == 69
    assert capsys.readouterr().err == "holdfast: standard output: No space left on device\n"


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("words", [["config"], *TABLES])
def test_a_reader_that_goes_away_is_told_by_one_exit_code(
    words: list[str], store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of SIGPIPE, whatever prints (`holdfast report lm | true`)."""
    monkeypatch.setenv("HOLDFAST_STORE", str(store))
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", encoding="utf-8") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        with pytest.raises(SystemExit) as ended:
            main(words)
    assert ended.value.code == 141


def test_nobody_prints_around_the_door() -> None:
    """Consoles and raw streams: the door, the threads that print for long, and pictures."""
    allowed = {"cli/agent.py", "cli/door.py", "cli/screen.py", "report/picture.py"}
    source = Path(sys.modules["holdfast.cli.main"].__file__ or "").parents[1]
    found = set()
    for path in source.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            called = node.func if isinstance(node, ast.Call) else node
            name = getattr(called, "id", "") or getattr(called, "attr", "")
            makes = isinstance(node, ast.Call) and name in ("Console", "RawText")
            if makes or name in ("__stdout__", "__stderr__"):
                found.add(path.relative_to(source).as_posix())
    assert found | {"cli/door.py"} == allowed
