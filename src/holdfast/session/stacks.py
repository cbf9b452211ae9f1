"""Stacks on demand: a signal makes this process write where each of its threads stands.

`faulthandler` does it in C, in the signal's own handler: it works while a thread holds the
interpreter's lock for ever, which no code in Python would. The file is opened beforehand. Which
signal, and which descriptor, stand in the page, so that nobody sends a signal that would end us.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
from pathlib import Path

from holdfast.journal.layout import STACKS_SUFFIX, Word
from holdfast.journal.rank_page import RankPage

# Real-time signals from the far end: programs that use any take them from SIGRTMIN up.
OFFSETS = range(2, 8)
_files: list[object] = []  # kept open for the life of the process: faulthandler has the number only


def answer_for_stacks(journal: Path, page: RankPage) -> None:
    """Be ready to write stacks beside `journal`. Without a free signal or a file: not ready."""
    number = _free_signal()
    with contextlib.suppress(OSError, RuntimeError, ValueError):
        if number is None:
            return
        file = journal.with_suffix(STACKS_SUFFIX).open("ab", buffering=0)
        _files.append(file)
        faulthandler.register(number, file=file, all_threads=True, chain=False)
        page.store(Word.STACKS, number | file.fileno() << 8)
        os.register_at_fork(after_in_child=lambda: _ignore(number))


def _free_signal() -> int | None:
    for offset in OFFSETS:
        number = int(signal.SIGRTMAX) - offset
        if signal.getsignal(number) is signal.SIG_DFL:
            return number
    return None


def _ignore(number: int) -> None:
    """A forked child shares the file; it is not the rank, and nobody asks it."""
    faulthandler.unregister(number)
