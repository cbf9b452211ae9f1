"""The ladder's arithmetic, when it refuses, and what is drawn."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[2] / "bench" / "program"))

import drawing
import ladder
import startup

sys.path.pop()

PEAKS = {"float32": 100.0, "int8": 400.0}


def row(step_s: float, loss: float = 2.0, flops: int = 30) -> dict[str, Any]:
    return {
        "step_s": [9.0, 9.0, step_s, step_s, 8.0],  # the first are not timed
        "losses": [5.0] * 80 + [loss] * ladder.TAIL,
        "held_out": loss,
        "kind": "int8",
        "tokens": 64,
        "flops": flops,
        "dense_flops": 40,
        "parameters": 10,
        "devices": 2,
        "device": "a kind",
        "planned_bytes": 1 << 20,
    }


def test_a_rung_is_told_by_its_own_peak_and_by_plains() -> None:
    told = ladder.told_of([row(0.6), row(0.5), row(3.0)], PEAKS)
    assert (told["tokens_per_s"], told["rounds"]) == (128, 3)
    assert told["mfu"] == pytest.approx(30 / (0.5 * 2 * 400))
    assert told["effective_mfu"] == pytest.approx(40 / (0.5 * 2 * 100))
    assert told["loss"] == 2.0


def test_a_round_that_failed_is_no_verdict_on_a_rung_that_has_others() -> None:
    failed = {"failed": "out of memory"}
    told = ladder.told_of([failed, row(0.5), failed], PEAKS)
    assert (told["tokens_per_s"], told["rounds"]) == (128, 1)
    assert ladder.told_of([failed, failed], PEAKS) == failed


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ({"--has": {"device": "cpu", "has": False}}, "cpu is not known to have units for it"),
        ({"--has": {"failed": "no JAX"}}, "no JAX"),
        (
            {"--has": {"device": "H100", "has": True}, "--peak": {"failed": "no kernel"}},
            "its peak could not be measured (no kernel)",
        ),
        ({"--has": {"device": "H100", "has": True}, "--peak": {"flops_per_s": 7.0}}, ""),
    ],
)
def test_fp8_is_a_rung_where_the_device_has_it(
    monkeypatch: pytest.MonkeyPatch, answers: dict[str, Any], why: str
) -> None:
    peaks = dict(PEAKS)
    monkeypatch.setattr(ladder, "measured", lambda *words: answers[words[0]])
    assert ladder.without_fp8(peaks) == why
    assert peaks.get("fp8") == (None if why else 7.0)


def test_standbys_get_the_time_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    words = SimpleNamespace(owner_pid=7)
    page = SimpleNamespace(snapshot=lambda: words, detach=lambda: None)
    monkeypatch.setattr(startup, "trained", lambda *_: page)
    monkeypatch.setattr(startup.os, "kill", lambda *_: None)
    monkeypatch.setattr(startup.time, "sleep", slept.append)
    for settle_s in (5.0, 0.0):
        startup.struck(Path(), None, settle_s, is_hot=False)  # type: ignore[arg-type]
    assert slept == [5.0, 0.0]


def ladders(together: Any) -> ladder.Ladders:
    rows = {"plain": [row(1.0)], "together": [together]}
    return ladder.told_ladders({"peaks": PEAKS, "ladders": {"128": rows}})


def test_a_loss_that_is_worse_is_refused() -> None:
    ladder.refuse_worse(ladders(row(0.5, 2.02)), most=0.03)
    ladder.refuse_worse(ladders(row(0.5, 1.0)), most=0.03)
    with pytest.raises(SystemExit, match=r"together: loss is \+0.0400 of plain's"):
        ladder.refuse_worse(ladders(row(0.5, 2.04)), most=0.03)
    failed = ladders({"failed": "out of memory"})
    assert "failed: out of memory" in ladder.table(PEAKS, failed)
    with pytest.raises(SystemExit, match="together: loss is"):
        ladder.refuse_worse(failed, most=0.03)


def test_the_ladder_for_a_gpu_has_a_billion_parameters() -> None:
    words = ladder.words_of(ladder.SIZES["gpu"], 16384, 2, 20, "together")
    of = dict(zip(words[::2], words[1::2], strict=True))
    layers, width, vocab = (int(of[f"--{name}"]) for name in ("layers", "width", "vocab"))
    assert 1.0e9 < layers * 12 * width**2 + vocab * width < 1.2e9
    assert of["--context"] == "16384"
    assert of["--remat"] == "names", "the last word counts"


def test_every_rung_is_drawn_with_its_gain() -> None:
    svg = drawing.program(ladders(row(0.5)))
    assert "plain" in svg
    assert "40.0% · 2.00 ×" in svg


def test_start_up_is_drawn_by_kind() -> None:
    svg = drawing.startup({"first start": [{"startup": 9.0}, {"startup": 1.5, "compile": 3.0}]})
    assert "4.50 s" in svg
    assert svg.count(">compile<") == 2, "in the bar and in the legend"
