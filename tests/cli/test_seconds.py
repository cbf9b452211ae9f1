"""Options that are seconds: what is none of them is refused before anything begins."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from holdfast.cli.recover import recover
from holdfast.cli.rehearse import rehearse


@pytest.mark.parametrize("value", ["nan", "inf", "-1", "1e300", "soon"])
@pytest.mark.parametrize(
    "words",
    [
        (recover, "r", "--every"),
        (recover, "r", "--limit"),
        (recover, "r", "--maintenance-limit"),
        (rehearse, "maintenance", "true", "--in"),
        (rehearse, "kill", "true", "--limit"),
        (rehearse, "machine", "r", "--every"),
    ],
)
def test_what_is_no_number_of_seconds(words, value):
    command, *before, option = words
    result = CliRunner().invoke(command, [*before[:-1], option, value, before[-1]])
    assert result.exit_code == 2
    assert f"Invalid value for '{option}'" in result.output
