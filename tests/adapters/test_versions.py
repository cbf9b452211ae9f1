"""A framework that is older or newer than what was tried is told in a sentence."""

from __future__ import annotations

import pytest

from holdfast.adapters.versions import check_version


@pytest.mark.parametrize("found", ["3.10.0", "3.12.0", "3.15.1", "3.15.0.dev3"])
def test_one_that_was_tried_is_not_spoken_of(
    found: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check_version("Keras", found, ("3.10", "3.15"))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("found", "state"), [("3.9.4", "older"), ("3.16.0", "newer"), ("4.0", "newer")]
)
def test_another_one_is(found: str, state: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert not check_version("Keras", found, ("3.10", "3.15"))
    said = capsys.readouterr().err
    assert f"Keras {found} is {state} than what" in said
    assert "(3.10 to 3.15)" in said


def test_a_single_version_is_named_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert not check_version("MaxText", "0.3.0", ("0.2.5", "0.2.5"))
    assert "(0.2.5)" in capsys.readouterr().err
