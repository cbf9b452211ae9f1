"""Tests of the controller find what they share."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import care_house  # noqa: F401

sys.path.pop(0)
