"""A rank that was started ahead of its attempt: what it does at the gate, and behind it.

It has run the script up to where that asks what it starts from, at the lowest priority where the
agent could see to that.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from holdfast.journal.gate import encode_files, files_path
from holdfast.session.crash import write_report


def tell(folder: Path, rank: int) -> None:
    """Leave a list of the files that were imported, as they are now; without it nobody trusts us.

    A file that has changed since it was read is younger than this process: that is seen, too.
    """
    write_report(files_path(folder, rank), encode_files(set(_imported())))


def _imported() -> Iterator[str]:
    for module in list(sys.modules.values()):
        try:  # past a lazy module's own way to look things up
            file = object.__getattribute__(module, "__dict__").get("__file__")
        except AttributeError:
            continue
        if isinstance(file, str):
            yield os.path.abspath(file)  # noqa: PTH100 - links stay what they are


def catch_up() -> None:
    """Give back their usual priority to all threads: each has inherited its own at its start.

    So have the processes that the script has started, data loaders for one.
    """
    for pid in [os.getpid(), *_below(os.getpid())]:
        for thread in _threads(pid):
            with contextlib.suppress(OSError):  # ended meanwhile
                if os.sched_getscheduler(thread) == os.SCHED_IDLE:
                    os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))


def _threads(pid: int) -> list[int]:
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]  # noqa: PTH208 - names
    except OSError:
        return []


def _below(pid: int) -> Iterator[int]:
    for thread in _threads(pid):
        with contextlib.suppress(OSError):
            for word in Path(f"/proc/{pid}/task/{thread}/children").read_text().split():
                yield int(word)
                yield from _below(int(word))
