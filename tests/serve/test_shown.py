"""A long list is shown by the page, in the order asked for, and searched as a whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from made_runs import Made, make_run

from holdfast.core.ledger.summary import RunSummary, Spent
from holdfast.journal.store import RunStore
from holdfast.serve import runs_look as looks
from holdfast.serve.runs_look import RunsLook
from holdfast.serve.shown import PAGE_ROWS, Shown

S = 1_000_000_000


def run(name: str, state: str = "done", **facts: int) -> RunSummary:
    return RunSummary(name, "1", state, **facts)  # type: ignore[arg-type]


RUNS = [
    run("a", step=7, seen_unix_ns=1),
    run("b", "failed", step=30, seen_unix_ns=9),
    run("c", "running", seen_unix_ns=5),
    RunSummary("d", "1", "done", step=7, within={"all": Spent({"step": 3, "lost": 1})}),
]


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ({}, "cbad"),  # what is under way, then the newest
        ({"by": "run"}, "abcd"),
        ({"by": "run", "down": "1"}, "dcba"),
        ({"by": "step"}, "adbc"),  # without a step: the last, whichever way
        ({"by": "step", "down": "1"}, "badc"),
        ({"by": "goodput", "down": "1"}, "dabc"),
        ({"by": "state"}, "cbad"),
        ({"q": "DONE"}, "ad"),
        ({"q": "done a", "by": "rubbish", "page": "-3"}, "a"),
    ],
)
def test_which_and_in_which_order(asked: dict[str, str], names: str) -> None:
    assert "".join(one.name for one in Shown.of(asked).chosen(RUNS)) == names


def test_an_address_says_it_all() -> None:
    asked = {"q": "lm & co", "by": "step", "down": "1", "page": "3"}
    shown = Shown.of(asked)
    assert shown.address == "?q=lm+%26+co&by=step&down=1&page=3"
    assert Shown.of({"page": "9" * 40, "by": "__class__", "down": "1"}) == Shown()
    assert Shown().address == ""
    assert (shown.sorted_by("step").is_down, shown.sorted_by("run").is_down) == (False, False)
    assert shown.sorted_by("run").page == 1


def test_one_page_of_many(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abcde":
        make_run(RunStore(store), name, [Made(2)], requested_ns=S)
    monkeypatch.setattr(looks, "PAGE_ROWS", 2)
    look = RunsLook(RunStore(store), cache=None, scratch=None)
    seen = {}
    for page in (1, 2, 3, 4):
        parts = look(Shown(by="run", page=page))
        seen[page] = json.loads(parts["order"])
        rows = [name for name in parts if name.startswith("row:")]
        assert rows == [f"row:{name}" for name in seen[page]]
        assert "5 runs" in parts["counts"]
        assert ('rel="next"' in parts["pages"]) == (page < 3)
        assert ('rel="prev"' in parts["pages"]) == (page > 1)
    assert seen == {1: ["a", "b"], 2: ["c", "d"], 3: ["e"], 4: ["e"]}  # the last, beyond it
    assert "3 to 4 of 5" in look(Shown(by="run", page=2))["pages"]
    found = look(Shown(words="c"))
    assert json.loads(found["order"]) == ["c"]
    assert "1 to 1 of 1 that match" in found["pages"]
    assert PAGE_ROWS == 100
