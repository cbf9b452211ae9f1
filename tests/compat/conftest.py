"""Makes `goodput_logs` importable: --import-mode=importlib leaves the folder out."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import goodput_logs  # noqa: F401

sys.path.pop(0)
