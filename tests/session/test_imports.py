"""What a rank leaves for the next attempt's standby: the names of what that is to import."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from holdfast.session.imports import RESTORE, _write


def told(path: Path, names: list[str]) -> dict[str, str]:
    _write(path, [(name, sys.modules[name]) for name in names])
    return dict(json.loads(path.read_bytes())["modules"])


@pytest.mark.parametrize("is_there", [False, True])
def test_the_next_attempt_restores_even_where_this_one_did_not(
    tmp_path: Path, *, is_there: bool
) -> None:
    import holdfast.snapshot.restore

    names = ["json", "numpy", *([RESTORE] if is_there else [])]
    modules = told(tmp_path / "imports", names)
    assert list(modules) == ["json", "numpy", RESTORE]
    assert modules[RESTORE] == holdfast.snapshot.restore.__file__


def test_a_script_without_numpy_has_none_imported_for_it(tmp_path: Path) -> None:
    assert list(told(tmp_path / "imports", ["json"])) == ["json"]
