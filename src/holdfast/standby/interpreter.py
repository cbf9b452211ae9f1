"""The first of a standby's three lives: a script, started as `python -I -S interpreter.py`.

It is replaced by itself once, and by the user's command at last; see `stages`.
"""

from __future__ import annotations

import importlib.util
import os
import sys

if __name__ == "__main__":
    folder = os.path.dirname(os.path.abspath(__file__))
    spec = importlib.util.spec_from_file_location(
        "holdfast_standby", folder + "/__init__.py", submodule_search_locations=[folder]
    )
    if spec is None:
        raise SystemExit(f"{folder} has no __init__.py: Holdfast is not installed whole")
    sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    from holdfast_standby import stages  # type: ignore[import-not-found]

    stages.begin()
