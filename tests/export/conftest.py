"""Tests here find the module that makes runs that are under way."""

from __future__ import annotations

import sys
from pathlib import Path

# --import-mode=importlib leaves the folder out.
sys.path.insert(0, str(Path(__file__).parents[1] / "runs"))
import under_way  # noqa: F401

sys.path.pop(0)
