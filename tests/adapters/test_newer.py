"""A framework's checkpoint that is newer than the run's own is spoken of, and no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.adapters.newer import say_newest

OWN = "r.step-[0-9][0-9][0-9]"


@pytest.mark.parametrize(
    ("names", "told"),
    [
        ((), None),
        (("r.step-005", "r.step-010"), None),
        (("r.step-009", "r.step-012", "r.step-011"), "r.step-012"),
        (("other.step-099", "r.step-012.ckpt", "r.step-003"), None),
    ],
)
def test_the_newest_is_told(
    names: tuple[str, ...], told: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in names:
        (tmp_path / name).mkdir()
    say_newest("r", tmp_path, OWN, 10)
    said = capsys.readouterr().err
    if told is None:
        assert said == ""
    else:
        assert f"{tmp_path / told} is newer than what run 'r' goes on from (step 10)" in said
