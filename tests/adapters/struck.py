"""Runs an example whose first attempt is struck once: struck.py WHAT EXAMPLE STEPS.

`kill in a save`: the last rank, as the framework's own function that saves returns. `fill the disk
in a save`: rank 0's function raises as on a full disk; where Orbax writes, beside the steps and on
all ranks, the kernel refuses it, until the next save. Both in the third save; the step whose save
it is goes to the file `struck`. `kill at the end`: the last rank, when the example has ended.
"""

from __future__ import annotations

import errno
import functools
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from framework_ruler import HOOKS, import_before, patch, run_example

import holdfast.session.start as session
from holdfast.journal.layout import Word

NTH = 3
BY_ORBAX = ("orbax", "orbax_v1")
SMALL_BYTES = 2048


def is_hit(does: str) -> bool:
    """Known once the run has begun: a process may stand by for an attempt."""
    run = session._the_run
    if does == "fill":
        return run.attempt == 0 and (run.rank == 0 or example in BY_ORBAX)
    return (run.attempt, run.rank) == (0, run.world_size - 1)


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def limit_files(size_bytes: int) -> None:
    """Whoever writes behind that in a file gets an error."""
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, most))


def struck(does: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """A way to save."""
    count = 0

    @functools.wraps(call)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        nonlocal count
        count += 1
        limit_files(resource.RLIM_INFINITY)
        if count != NTH or not is_hit(does):
            return call(*args, **kwargs)
        Path("struck").write_text(str(session._the_run._writer.page.load(Word.STEP)))
        if does == "fill" and example in BY_ORBAX:
            limit_files(SMALL_BYTES)
            return call(*args, **kwargs)
        if does == "fill":
            if example == "keras":  # its processes compare their variables before a file is whole
                call(*args, **kwargs)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        call(*args, **kwargs)
        return kill()

    return wrapper


what, example, *words = sys.argv[1:]
does, _, when = what.partition(" ")
import_before(example)
if when != "at the end":
    patch(HOOKS[example].saves[0], functools.partial(struck, does))
run_example(example, words)
if when == "at the end" and is_hit(does):
    kill()
