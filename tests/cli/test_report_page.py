"""`holdfast report --html`, `--svg` and `--png`, of a history; of real runs see test_report_run."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.cli.main import main

HISTORY = """\
{"event": "run", "name": "a/<b>", "requested": 0, "ended": 100, "chips": 8}
{"event": "attempt", "attempt": 0, "start": 0, "end": 50, "cause": "killed"}
{"event": "steps", "attempt": 0, "first": 1, "last": 40, "start": 5, "end": 45}
{"event": "attempt", "attempt": 1, "start": 55, "end": 100, "cause": "done"}
{"event": "restore", "attempt": 1, "start": 56, "end": 58, "step": 30, "source": 0}
{"event": "steps", "attempt": 1, "first": 31, "last": 70, "start": 60, "end": 100}
"""


@pytest.fixture
def history(tmp_path: Path) -> Path:
    path = tmp_path / "h.jsonl"
    path.write_text(HISTORY)
    return path


def report(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as exit_:
        main(["report", *map(str, words)])
    assert isinstance(exit_.value.code, int)
    return exit_.value.code, *capsys.readouterr()


def test_a_page_and_pictures(history, capsys, tmp_path):
    page, svg, png = (tmp_path / f"out.{kind}" for kind in ("html", "svg", "png"))
    words = ("--history", history, "--html", page, "--svg", svg, "--png", png)
    assert report(capsys, *words, "--price-per-chip-hour", "3.5") == (0, "", "")
    text = page.read_text()
    assert "a/&lt;b&gt;" in text
    assert "a/<b>" not in text
    assert ">70.0 %<" in text
    assert "0.23 in money" in text
    assert png.read_bytes().startswith(b"\x89PNG")
    assert "<svg" in svg.read_text()


def test_a_page_and_the_numbers_at_once(history, capsys, tmp_path):
    words = ("--history", history, "--html", tmp_path / "p.html", "--json")
    code, out, _ = report(capsys, *words)
    assert (code, '"goodput": 0.7' in out) == (0, True)


def test_as_it_stood_before(history, capsys, tmp_path):
    words = ("--history", history, "--now", "40", "--html", tmp_path / "p.html")
    assert report(capsys, *words)[0] == 0
    assert "killed" not in (tmp_path / "p.html").read_text().split("<style>")[0]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--window", "5", "--html", "x.html"), "a page shows the whole run"),
        (("--without-stopped", "--html", "x.html"), "and --without-stopped"),
        (("--price-per-chip-hour", "cheap"), "--price-per-chip-hour cheap: give a number"),
        (("--price-per-chip-hour", "-1"), "--price-per-chip-hour -1: give a number"),
        (("--html", "/nowhere/at/all.html"), "choose another place"),
    ],
)
def test_what_cannot_be_meant(history, capsys, words, complaint):
    code, out, err = report(capsys, "--history", history, *words)
    assert code in (69, 78)
    assert (out, err.count("\n")) == ("", 1)
    assert complaint in err
