"""The script that a machine runs at its start: it sets up, and starts the run again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

UNAVAILABLE = 69  # the store is away, or whoever made the machine still holds the run
AGAIN_S = 5


def startup_script(run: str, store: str, command: Sequence[str], setup: str = "") -> str:
    """A shell script: the user's `setup`, then `holdfast run` of that command.

    It is run at every start of the machine. The run resumes from its newest checkpoint; what it
    ends with ends the script, but for exit code 69, which is over by itself.
    """
    words = ["holdfast", "run", "--name", run, "--store", store, "--", *command]
    environment = ""
    if store.startswith("gs://"):  # the machine's own account opens it
        environment = "export HOLDFAST_STORE_CREDENTIALS=instance\n"
    return (
        "#!/bin/bash\n"
        f"# Made by holdfast up for run {run}.\n"
        f"{setup.rstrip()}\n"
        f"{environment}"
        "while true; do\n"
        f"  {shlex.join(words)}\n"
        "  code=$?\n"
        f'  [ "$code" -eq {UNAVAILABLE} ] || exit "$code"\n'
        f"  sleep {AGAIN_S}\n"
        "done\n"
    )
