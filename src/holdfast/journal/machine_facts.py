"""What happens to a run's machines, as facts in a journal of whoever looks after them.

    journal/machines-INCARNATION.hfj   what was waited for, what attempts were lost to, and what
                                       was read into memory before they began

One journal a process, as everywhere: it is made with its first fact, lives in local scratch, and is
brought home at each one. A process that dies leaves all but a minute of what it saw. Recording
never keeps anybody from making machines: what cannot be written is said, once.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.core.ledger.facts import WaitFact
from holdfast.core.preloaded import PreloadedPart
from holdfast.errors import HoldfastError
from holdfast.journal.clocks import boot_id, read_clock_pair
from holdfast.journal.facts.lines import parse_statement
from holdfast.journal.holder import RunHolder
from holdfast.journal.layout import CONTROLLER_RANK, JOURNAL_SUFFIX, Identity, NoteType
from holdfast.journal.names import new_id
from holdfast.journal.remote import remote_of
from holdfast.journal.replicate import Replicator
from holdfast.journal.scratch import OWNER_FILE, remove_scratch, scratch_dir
from holdfast.journal.sidecar import read_sidecar, sidecar_path
from holdfast.journal.store import RunFolder
from holdfast.journal.writer import JournalWriter

PREFIX = "machines"
MOST_JOURNALS = 100  # that are read for what is usual


def past_waits_ns(folder: RunFolder, kind: str) -> list[int]:
    """For how long starts of the run have waited like that before, as far as was told.

    `kind`: queue, provision, pull or boot. What cannot be read is left out.
    """
    found: list[int] = []
    places = sorted(folder.journal_dir.glob(f"{PREFIX}-*{JOURNAL_SUFFIX}"))
    for path in places[-MOST_JOURNALS:]:
        with contextlib.suppress(OSError):
            for line in read_sidecar(sidecar_path(path))[0]:
                said = parse_statement(line.payload, 0)
                if isinstance(said, WaitFact) and said.kind == kind and said.end_ns is not None:
                    found.append(said.end_ns - said.start_ns)
    return found


@dataclass(slots=True)
class MachineFacts:
    """Facts of one process; `say` is told, once, when they cannot be written."""

    folder: RunFolder
    say: Callable[[str], None] = lambda _words: None
    _writer: JournalWriter | None = field(default=None, repr=False)
    _replicator: Replicator | None = field(default=None, repr=False)
    _trouble: bool = field(default=False, repr=False)

    def waited(self, kind: str, start_unix_ns: int, end_unix_ns: int) -> None:
        """No attempt could run: `kind` is queue, provision, pull or boot."""
        self._state("wait", kind=kind, start_ns=start_unix_ns, end_ns=end_unix_ns)

    def lost(self, attempt: int, cause: str, at_unix_ns: int) -> None:
        """The attempt's machine was found lost then."""
        self._state("attempt_lost", attempt=attempt, cause=cause, at_ns=at_unix_ns)

    def preloaded(self, parts: Sequence[PreloadedPart], at_unix_ns: int) -> None:
        """Files were read into this host's memory by then, before they were needed."""
        said = [part.to_json() for part in parts]
        self._state("preload", at_ns=at_unix_ns, host=os.uname().nodename, parts=said)

    def close(self) -> None:
        """Bring the rest home; where that fails, the next start on this host does it."""
        writer, self._writer = self._writer, None
        if writer is None or writer.path is None:
            return
        writer.close()
        with self._trouble_said():
            self._bring_home()
            remove_scratch(writer.path.parent)
        if self._replicator is not None:
            self._replicator.close()

    def _state(self, fact: str, **fields: Any) -> None:
        with self._trouble_said():
            writer = self._writer = self._writer or self._made()
            boottime_ns, unix_ns = read_clock_pair()
            for name, value in fields.items():
                if name.endswith("_ns") and isinstance(value, int):
                    fields[name] = value - unix_ns + boottime_ns
            writer.note(NoteType.FACT, {"fact": fact, **fields})
            self._bring_home()

    def _made(self) -> JournalWriter:
        incarnation = new_id()
        place = scratch_dir(self.folder.scratch_key) / f"{PREFIX}-{incarnation}"
        place.mkdir(mode=0o700)
        (place / OWNER_FILE).write_text(json.dumps(RunHolder.current().to_json()))
        live = place / f"{PREFIX}-{incarnation}.hfj"
        host = os.uname().nodename
        identity = Identity(self.folder.name, 0, incarnation, 0, host, CONTROLLER_RANK, boot_id())
        writer = JournalWriter.create(live, identity)
        self._replicator = Replicator(live, self.folder.journal_dir / live.name)
        return writer

    def _bring_home(self) -> None:
        if self._replicator is None:
            return
        self._replicator.sync(durable=True)
        remote = remote_of(self.folder.path)
        if remote is not None:
            remote.push(self.folder.name, everything=True)

    @contextlib.contextmanager
    def _trouble_said(self) -> Iterator[None]:
        try:
            yield
        except (HoldfastError, OSError) as error:
            if not self._trouble:
                self._trouble = True
                self.say(f"What happens to the machines is not recorded now: {error}")
        else:
            self._trouble = False
