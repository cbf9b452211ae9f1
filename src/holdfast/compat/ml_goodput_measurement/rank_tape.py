"""The tape of a job that is a rank of `holdfast run`: the run's journal, and its attempts.

The run is made by its supervisor, and so are its attempts: when they began and ended is on record.
What a recorder adds are steps, if no session of this process tells them, and events. These share
the journal with a session's spans, so none shows before it is over.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.compat.ml_goodput_measurement.tape import AttemptTape
from holdfast.config import claim_rank
from holdfast.config.rank import RankEnvironment
from holdfast.journal.clocks import boot_id
from holdfast.journal.layout import Identity
from holdfast.journal.rank_journal import recorders_journal
from holdfast.journal.store import RunFolder

_UNSEEN = -1  # the token of an event, which is not in the page's list of open spans


class RankTape(AttemptTape):
    """Records in the journal of this rank."""

    def __init__(
        self,
        rank: RankEnvironment,
        folder: RunFolder,
        first_ns: int,
        session_begins: Callable[[], None],
    ) -> None:
        """`session_begins` is called when a session takes over the steps.

        Raises StoreUnavailable when another process has the rank's journal.
        """
        super().__init__(None, first_ns)
        who = Identity(
            folder.name,
            rank.attempt,
            rank.incarnation,
            rank.rank,
            os.uname().nodename,
            0,
            boot_id(),
        )
        self.writer, self.tells_steps = recorders_journal(Path(rank.journal), who, session_begins)
        claim_rank()
        self.folder, self.number = folder, rank.attempt

    def begin(self, at_ns: int, chips: int) -> None:
        """The supervisor has recorded the attempt's begin, and knows the chips."""

    def end(self, at_ns: int) -> None:
        """The job is done: the steps are. The attempt ends with its processes."""
        if self.tells_steps:
            self.end_steps(self.on_tape(at_ns))
        self.closed = True

    def fact(self, **payload: Any) -> None:
        """None of the run's facts is a rank's to tell."""

    def span(self, kind: str, start: int, end: int) -> None:
        """A whole span; from any thread."""
        self.writer.record_span(kind, start, end)

    def open(self, kind: str, at_ns: int) -> None:
        """A span begins; one of that kind that was open is forgotten."""
        self._take(kind)
        self.events.append((kind, self.on_tape(at_ns), _UNSEEN))

    def leave_open(self) -> None:
        """What is open may end in a later step."""

    def _take(self, kind: str) -> int | None:
        found = next((since for name, since, _ in self.events if name == kind), None)
        self.events = [one for one in self.events if one[0] != kind]
        return found

    def beat(self) -> None:
        """The supervisor lives, and looks after the journal."""

    def finish(self) -> None:
        """The journal is the rank's for as long as the process lives."""
        self.writer.flush()
