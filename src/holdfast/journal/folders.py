"""Where a run's journals lie: its attempts' folders, and the journals in a folder.

What cannot be listed, and what is only linked to, is not there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from holdfast.journal.fields import MAX_ATTEMPT
from holdfast.journal.layout import JOURNAL_SUFFIX
from holdfast.journal.regular import refuse_link

MAX_ATTEMPT_DIGITS = len(str(MAX_ATTEMPT))


def attempt_folders(attempts: Path) -> Iterator[tuple[int, Path]]:
    """(number, folder) of each attempt that has one, in no order."""
    try:
        refuse_link(attempts)
        with os.scandir(attempts) as entries:
            names = [
                entry.name for entry in entries if not entry.is_symlink() and _is_number(entry.name)
            ]
    except OSError:
        return
    yield from ((int(name), attempts / name) for name in names)


def _is_number(name: str) -> bool:
    return len(name) <= MAX_ATTEMPT_DIGITS and name.isascii() and name.isdigit()


def journal_names(folder: Path) -> list[str]:
    """The names of the journals in a folder, sorted."""
    try:
        refuse_link(folder)
        with os.scandir(folder) as entries:
            return sorted(e.name for e in entries if e.name.endswith(JOURNAL_SUFFIX))
    except OSError:
        return []


def controller_journal(epoch: int) -> str:
    """The name of the journal of the run's holder under that lease."""
    return f"controller-{epoch:06d}{JOURNAL_SUFFIX}"
