"""A session that is none: in a worker process that imported the training script again.

It answers every question, records nothing, saves nothing, and cannot disturb the run, which belongs
to a parent of this process.
"""

from __future__ import annotations

import time
from pathlib import Path

from holdfast.core.events import Resume
from holdfast.journal.run_identity import RunIdentity
from holdfast.journal.store import RunFolder
from holdfast.journal.writer import JournalWriter
from holdfast.session.attachment import Attachment


class Inert(Attachment):
    """No lease, no journal, no checkpoint; no steps either."""

    is_inert = True

    def __init__(self, name: str) -> None:
        now = time.time_ns()
        folder = RunFolder(Path("/nonexistent"), RunIdentity(name, "", now, now, ()))
        super().__init__(folder, JournalWriter.nowhere(), attempt=0)

    def resume(self) -> Resume:
        """From scratch: a worker process restores nothing."""
        return Resume(None, 0, None)

    def reject(self, resume: Resume, words: str) -> None:
        """Nothing to choose from."""

    def resumed(self, resume: Resume) -> bool:  # noqa: ARG002 - nobody needs to know
        """There is nobody to disagree."""
        return True

    def ready(self, step: int) -> None:
        """Nobody looks on."""

    def stopping(self) -> bool:
        """Never: its parent decides."""
        return False

    def hurry(self) -> None:
        """There is nobody to answer."""

    def watch_sigterm(self) -> None:
        """Its SIGTERM is its own."""

    def on_sigterm(self) -> None:
        """Not ours."""
