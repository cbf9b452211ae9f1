"""The reference trainer on eight virtual devices: the numbers of one, whatever the attention.

Skipped where flax and qwix are not installed: `make reference` has them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """What the script beside this file tells; a process of its own has eight devices."""
    for package in ("flax", "qwix"):
        pytest.importorskip(package)
    script = Path(__file__).with_name("reference_grid.py")
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


@pytest.mark.parametrize("kind", ["xla", "splash", "local-global"])
def test_a_grid_computes_and_samples_what_one_device_does(found: dict[str, Any], kind: str) -> None:
    assert found["shape"] == {"data": 2, "fsdp": 2, "tensor": 2}
    of = found[kind]
    assert of["parts_of_qkv"] == 4, "fsdp and tensor divide it"
    assert of["losses_apart"] < 1e-5
    assert of["gradients_apart"] < 1e-5
    assert of["is_same_sample"]
