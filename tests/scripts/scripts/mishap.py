"""What befalls a script: at the step that KILL_AT names its process is killed, once."""

import os
import signal
from pathlib import Path

KILL_AT = int(os.environ.get("KILL_AT", "0"))
KILLED = Path("killed")


def mishap(run, step):
    """Two steps before, a checkpoint is made, so that it is known what is lost."""
    if not KILL_AT or KILLED.exists():
        return
    if step == KILL_AT - 2:
        run.save(wait=True)
    if step == KILL_AT:
        KILLED.touch()
        os.kill(os.getpid(), signal.SIGKILL)
