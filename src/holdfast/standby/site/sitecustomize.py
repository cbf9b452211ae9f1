"""What holds a standby up: Python's `site` imports a module of this name before the program runs.

Only a process whose environment has HOLDFAST_STANDBY_TASK ever sees this file (through PYTHONPATH).
It loads our package under a private name, by path, and lets it wait.
"""

import sys

_before = frozenset(sys.modules)  # what a cold interpreter has here


def _load() -> None:
    import importlib.util
    import os

    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    spec = importlib.util.spec_from_file_location(
        "holdfast_standby", folder + "/__init__.py", submodule_search_locations=[folder]
    )
    if spec is None:
        os._exit(70)
    sys.modules[spec.name] = importlib.util.module_from_spec(spec)


try:
    _load()
    from holdfast_standby import stages  # type: ignore[import-not-found]
except BaseException:  # whatever it is: the program must not run now
    import os

    os._exit(70)
_error = stages.hold_up(_before)
if _error is not None:  # this module then was never there
    raise _error
