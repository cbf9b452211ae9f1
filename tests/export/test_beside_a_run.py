"""Exporters beside real runs, in a network namespace with only a loopback; see `inside/`."""

from __future__ import annotations

from pathlib import Path

import namespace
import pytest

pytestmark = pytest.mark.real

INSIDE = Path(__file__).with_name("inside")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    namespace.skip_without()
    return namespace.run(INSIDE, tmp_path_factory.mktemp("inside"))


@pytest.mark.parametrize(("path", "name"), namespace.parameters(INSIDE))
def test_beside_a_run(path: Path, name: str, outcomes: dict[str, str]) -> None:
    outcome = outcomes.get(f"{path.stem}-{name}", "it did not run")
    assert outcome == "", outcome
