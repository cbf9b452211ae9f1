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

from holdfast.journal.gate import encode_files, told_path
from holdfast.session.crash import write_report


def tell(folder: Path, rank: int) -> None:
    """Leave a list of the files that were imported, as they are now; without it nobody trusts us.

    A file that has changed since it was read is younger than this process: that is seen, too.
    """
    write_report(told_path(folder, rank), encode_files(set(_imported())))


def _imported() -> Iterator[str]:
    for module in list(sys.modules.values()):
        try:  # past a lazy module's own way to look things up
            file = object.__getattribute__(module, "__dict__").get("__file__")
        except AttributeError:
            continue
        if isinstance(file, str):
            yield os.path.abspath(file)  # noqa: PTH100 - links stay what they are


def catch_up() -> None:
    """Give every thread back its usual priority: each has its own, inherited at its start."""
    for name in os.listdir("/proc/self/task"):  # noqa: PTH208 - names are all we need
        with contextlib.suppress(OSError):  # ended meanwhile
            if os.sched_getscheduler(int(name)) == os.SCHED_IDLE:
                os.sched_setscheduler(int(name), os.SCHED_OTHER, os.sched_param(0))
