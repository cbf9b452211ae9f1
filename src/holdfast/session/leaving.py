"""A rank that gives up must not wait at its end for ranks that wait for it.

At the interpreter's exit `jax.distributed` waits, for five minutes by default, until every process
has come to its own; and the others wait in a collective for the rank that has failed. Nobody would
learn that it has. So there is a limit, long enough for whatever else has something to finish.

The thread that ends the process is there from the start: at the interpreter's exit Python starts no
thread any more, from 3.12 on.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
import time

from holdfast.session.say import say

LIMIT_S = 5.0

_codes: queue.SimpleQueue[int] = queue.SimpleQueue()


def be_ready_to_end() -> None:
    """Have what `end_soon` takes; for a rank that others may wait for."""
    threading.Thread(
        target=lambda: _end(_codes.get()), name="holdfast-leaving", daemon=True
    ).start()


def end_soon(exit_code: int) -> None:
    """End this process with this code, should it still be there after the limit. Once."""
    _codes.put(exit_code)


def _end(exit_code: int) -> None:
    time.sleep(LIMIT_S)
    say(f"Something waited {LIMIT_S:g} s for the other ranks at this one's exit: ending it")
    with contextlib.suppress(OSError, ValueError, AttributeError):  # gone, closed, never there
        sys.stdout.flush()
    os._exit(exit_code)
