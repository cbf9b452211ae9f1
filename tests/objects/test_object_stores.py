"""Object stores, tested in a network namespace of their own (`namespace`): cases in `inside/`."""

from __future__ import annotations

from pathlib import Path

import namespace
import pytest

INSIDE = Path(__file__).with_name("inside")

pytest.importorskip("obstore")
pytest.importorskip("moto")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, dict[str, str]]:
    namespace.skip_without()
    return {
        path: namespace.run(path, tmp_path_factory.mktemp(path.stem))
        for path in sorted(INSIDE.glob("cases_*.py"))
    }


@pytest.mark.parametrize(("path", "name"), namespace.parameters(INSIDE))
def test_in_a_namespace(path: Path, name: str, outcomes: dict[Path, dict[str, str]]) -> None:
    outcome = outcomes[path].get(name, "it did not run")
    assert outcome == "", outcome
