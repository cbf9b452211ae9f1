"""Numbers, rules and dashboard against a real Prometheus: `make prometheus`; else skipped."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import namespace
import pytest

INSIDE = Path(__file__).with_name("inside")
ROOT = Path(__file__).parents[2]
RULES = files("holdfast.export").joinpath("files", "rules.yml")


def folder_of_binaries() -> Path | None:
    """Where `make prometheus` has put them, or the path has."""
    for place in (os.environ.get("PROMETHEUS_FOLDER"), ROOT / ".venv" / "prometheus"):
        if place and (Path(place) / "promtool").exists():
            return Path(place).absolute()
    found = shutil.which("promtool")
    return Path(found).parent if found else None


BINARIES = folder_of_binaries()
pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(BINARIES is None, reason="no Prometheus here: make prometheus"),
]


def promtool(*words: str, cwd: Path | None = None) -> str:
    assert BINARIES is not None
    done = subprocess.run([BINARIES / "promtool", *words], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_likes_the_rules() -> None:
    assert "SUCCESS" in promtool("check", "rules", str(RULES))


def test_alerts_fire_when_they_should_and_not_else(tmp_path: Path) -> None:
    shutil.copy(str(RULES), tmp_path / "rules.yml")
    shutil.copy(Path(__file__).with_name("rules_test.yml"), tmp_path)
    assert "SUCCESS" in promtool("test", "rules", "rules_test.yml", cwd=tmp_path)


def test_promtool_likes_the_metrics(store: Path) -> None:
    from click.testing import CliRunner

    from holdfast.cli.export import export

    text = CliRunner().invoke(export, ["--prometheus", "--once"]).stdout
    done = subprocess.run(
        [str(BINARIES / "promtool"), "check", "metrics"],  # type: ignore[operator]
        input=text, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    namespace.skip_without()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROMETHEUS_FOLDER", str(BINARIES))
        return namespace.run(INSIDE, tmp_path_factory.mktemp("inside"))


@pytest.mark.skipif("PROMETHEUS_FOLDER" not in os.environ, reason="make prometheus runs a server")
@pytest.mark.parametrize(("path", "name"), namespace.parameters(INSIDE))
def test_with_a_server(path: Path, name: str, outcomes: dict[str, str]) -> None:
    outcome = outcomes.get(f"{path.stem}-{name}", "it did not run")
    assert outcome == "", outcome


def test_the_dashboard_is_json() -> None:
    assert json.loads(RULES.parent.joinpath("dashboard.json").read_text())["uid"] == "holdfast"
