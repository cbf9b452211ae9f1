"""The names of a run's checkpoints: one for each step of each attempt, and nobody else's."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.adapters.run_names import RunNames


def names(run: str, attempt: int, suffix: str = "") -> RunNames:
    made: Any = SimpleNamespace(name=run, attempt=attempt)
    return RunNames(made, suffix)


@pytest.mark.parametrize("suffix", ["", ".ckpt"])
@pytest.mark.parametrize("run", ["lm", "lm[1]", "a.b"])
def test_a_run_knows_its_own(run: str, suffix: str, tmp_path: Path) -> None:
    first, later = names(run, 0, suffix), names(run, 3, suffix)
    places = [first.place(tmp_path, 20), later.place(tmp_path, 20), later.place(tmp_path, 21)]
    assert len({*places}) == 3, "a step that is saved again leaves alone what was saved before"
    assert first.own == later.own
    for place in places:
        place.touch()
    others = (f"{run}.step-000000020-best{suffix}", f"{run}2.step-000000020.a0000{suffix}", "best")
    for other in others:
        (tmp_path / other).touch()
    assert {*tmp_path.glob(first.own)} == {*places}
    assert not fnmatch(others[0], first.own)
