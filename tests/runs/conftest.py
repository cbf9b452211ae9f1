"""Tests here find the modules that make runs."""

from __future__ import annotations

import sys
from pathlib import Path

# --import-mode=importlib leaves the folder out.
sys.path.insert(0, str(Path(__file__).parent))
import made_runs  # noqa: F401
import under_way  # noqa: F401

sys.path.pop(0)
