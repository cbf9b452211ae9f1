"""Committed pictures are what their scripts draw; that of the goodput page shows its run."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["goodput", "succession"])
def test_the_committed_picture_is_what_the_script_draws(name: str) -> None:
    drawn = load(DOCS / "images" / f"{name}.py").picture()
    assert (DOCS / "images" / f"{name}.svg").read_text() == drawn


@pytest.mark.real
def test_the_ledger_agrees_with_the_picture(tmp_path: Path) -> None:
    page = (DOCS / "explanation" / "goodput.md").read_text()
    history = re.search(r"```json\n(.*?)```", page, re.DOTALL)
    assert history is not None
    (tmp_path / "run.jsonl").write_text(history[1])
    command = [sys.executable, "-m", "holdfast.cli.main", "report", "--json", "--history"]
    out = subprocess.run([*command, tmp_path / "run.jsonl"], capture_output=True, check=True)
    result = json.loads(out.stdout)
    drawn: Counter[str] = Counter()
    for piece in load(DOCS / "images" / "goodput.py").TIMELINE:
        drawn[piece.kind] += piece.seconds
    said = Counter({"step": result["productive_s"]})
    for kind, seconds in result["badput_s"].items():
        said[kind.partition(":")[0]] += seconds
    assert drawn == said
    assert (result["goodput"], result["lost_steps"]) == (0.7, 15)
