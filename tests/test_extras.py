"""What is said when an extra is not installed: a command to paste, for an extra that there is."""

from __future__ import annotations

import importlib.util
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from holdfast.distribution import NAME, stranger
from holdfast.errors import needs_extra

ROOT = Path(__file__).parents[1]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
SOURCES = [path.read_text() for path in sorted((ROOT / "src").rglob("*.py"))]


def test_the_sentence_holds_a_command_for_the_interpreter_that_lacks_it() -> None:
    said = needs_extra("pages need", "dashboard")
    command = f"{sys.executable} -m pip install 'holdfast-ml[dashboard]'"
    assert said == f"pages need an extra that is not installed: {command}"


def test_every_extra_that_is_named_exists() -> None:
    named = {extra for text in SOURCES for extra in re.findall(r"needs_extra\(.*, \"(.*?)\"", text)}
    assert len(named) > 5
    assert named <= EXTRAS.keys()


# What the library's own words call it: none is left that would install another project.
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "CHANGELOG.md"]


def test_no_hint_installs_another_project() -> None:
    texts = [*SOURCES, *(path.read_text() for path in PAGES)]
    hints = [hint for text in texts for hint in re.findall(r"\bholdfast[\w-]*\[[a-z]", text)]
    assert len(hints) > 20
    assert {hint[:-2] for hint in hints} == {NAME}


def test_all_is_every_extra_but_the_frameworks_and_ray() -> None:
    (need,) = EXTRAS["all"]
    named = set(re.fullmatch(rf"{NAME}\[(.*)\]", need)[1].split(","))
    needs = {one for name in named for one in EXTRAS[name]}
    others = EXTRAS.keys() - named - {"all", "jax", "torch", "ray"}
    assert {one for name in others for one in EXTRAS[name]} <= needs


def test_developers_needs_are_no_extras() -> None:
    assert not {"test", "bench", "race", "browser", "fuzz"} & EXTRAS.keys()


@pytest.fixture
def hatch(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    pytest.importorskip("hatchling")
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.delenv("HOLDFAST_HOME_PAGE", raising=False)
    return module


def metadata_of(hatch: ModuleType) -> tuple[str, dict[str, str]]:
    """What a wheel would say: its README, and its addresses."""
    metadata: dict = {}
    hatch.CustomMetadataHook(str(ROOT), {}).update(metadata)
    return metadata["readme"]["text"], metadata["urls"]


def test_a_wheel_built_for_an_address_has_it_in_every_link(
    hatch: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_HOME_PAGE", "https://code.example/team/holdfast/")
    text, urls = metadata_of(hatch)
    assert urls["Homepage"] == "https://code.example/team/holdfast"
    assert "https://code.example/team/holdfast/raw/HEAD/docs/images/report.svg)" in text
    links = re.findall(r"\]\(([^)]*)\)", text)
    assert len(links) > 10
    assert [link for link in links if not link.startswith(("https://", "#"))] == []


def test_without_an_address_a_wheel_has_no_broken_link(hatch: ModuleType) -> None:
    text, urls = metadata_of(hatch)
    assert urls == {} or hatch.HOME_PAGE
    links = re.findall(r"\]\(([^)]*)\)", text)
    assert [link for link in links if not link.startswith(("https://", "#"))] == []


def test_a_strangers_package_in_the_same_folder_is_noticed(tmp_path: Path) -> None:
    assert stranger(tmp_path) == ""
    (tmp_path / "holdfast_ml-0.1.0.dist-info").mkdir()
    assert stranger(tmp_path) == ""
    (tmp_path / "holdfast-2.3.dist-info").mkdir()
    said = stranger(tmp_path)
    assert "holds holdfast-2.3, another project" in said
    assert "pip uninstall holdfast holdfast-ml" in said
    assert "pip install holdfast-ml" in said
