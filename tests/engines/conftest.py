from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves them out
sys.path.insert(0, str(Path(__file__).parents[1] / "lab"))
import ray_lab  # noqa: F401

del sys.path[:2]
