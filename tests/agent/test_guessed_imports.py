"""What a script imports, by its source."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.agent.guessed_imports import RESTORE, guess
from holdfast.standby.learned import Libraries, read

PYTHON = "python3"

SURE_AND_UNSURE = """
import os, json
from typing import TYPE_CHECKING
import numpy as np
from jax import numpy as jnp
if TYPE_CHECKING:
    import never_one
try:
    import maybe.part
except ImportError:
    import never_two
with open("x"):
    import in_with
def later():
    import never_three
from __future__ import annotations
"""


def guessed(folder: Path, *words: str) -> list[str]:
    found = guess([PYTHON, *words], str(folder))
    json.dumps(found)
    names = found["guessed"]
    assert isinstance(names, list)
    return names


def test_what_is_sure_is_named_in_its_order(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SURE_AND_UNSURE)
    expected = ["os", "json", "typing", "numpy", "jax", "maybe.part", "in_with"]
    assert guessed(tmp_path, "train.py", "--lr", "3") == expected


def test_modules_beside_the_script_are_read_and_not_named(tmp_path: Path) -> None:
    package = tmp_path / "model" / "parts"
    package.mkdir(parents=True)
    (tmp_path / "model" / "__init__.py").write_text("from . import layers\nimport one")
    (tmp_path / "model" / "layers.py").write_text("from .parts.deep import x\nimport two")
    (package / "__init__.py").write_text("from .. import layers\nfrom ... import nothing")
    (package / "deep.py").write_text("import three\nfrom ..layers import thing")
    (tmp_path / "train.py").write_text("import model.parts.deep\nimport data\nimport four")
    (tmp_path / "data.py").write_text("import data\nfrom train import main\nimport five")
    assert set(guessed(tmp_path, "train.py")) >= {"three", "four", "five", "two"}
    assert not {"model", "data", "train"} & set(guessed(tmp_path, "train.py"))


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("-m", "pack"), ["of_main"]),
        (("-m", "pack.train"), ["of_train"]),
        (("-u", "-c", "import a.b, c"), ["a.b", "c"]),
        (("nowhere.py",), []),
        (("-m", "nowhere"), []),
        (("-c", "import ("), []),
        (("-E", "train.py"), []),
        ((), []),
    ],
)
def test_each_form_of_command(tmp_path: Path, words: tuple[str, ...], names: list[str]) -> None:
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__main__.py").write_text("import of_main")
    (tmp_path / "pack" / "train.py").write_text("import of_train")
    assert guessed(tmp_path, *words) == names


def test_what_comes_late_is_named_too(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import holdfast, numpy.linalg, torch")
    expected = ["holdfast", "numpy.linalg", "torch", "torch._dynamo", RESTORE]
    assert guessed(tmp_path, "train.py") == expected


def test_a_file_that_is_no_text_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_bytes(b"\xff\xfe import os")
    assert guessed(tmp_path, "train.py") == []


def test_a_standby_takes_what_is_a_librarys(tmp_path: Path) -> None:
    """Whatever is guessed: nothing else is imported ahead."""
    document = {"format": 1, "guessed": ["json.tool", "sys", "nowhere", "numpy", "__main__", ""]}
    (tmp_path / "imports.json").write_text(json.dumps(document))
    assert read(str(tmp_path / "imports.json"), Libraries()) == ["json.tool", "sys", "numpy"]
