"""A run's machines in its store: what they are made of, and what is under way with them.

    machines/machines.json   what they are made of; replaced only while there are none
             record.json     the intent, written under the run's lease before each act
             seen.json       the last condition seen, and since when: for time limits alone

The intent is fenced: it says under which lease it was written, and one of an earlier lease never
replaces one of a later.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from holdfast.core.exits import MACHINE_MAINTENANCE, ExitCause
from holdfast.core.hosts.fleet import Condition
from holdfast.core.hosts.recover import GenerationPhase, RecoveryRecord
from holdfast.core.hosts.wanted import Machines
from holdfast.errors import ConfigurationError, RunHeld, StoreUnavailable
from holdfast.journal.atomic import (
    create_exclusive,
    encode_json,
    make_part,
    read_json,
    write_atomic,
)
from holdfast.journal.attempts import attempts
from holdfast.journal.fields import field as raw_field
from holdfast.journal.fields import text, whole
from holdfast.journal.holder import RunHolder
from holdfast.journal.incidents import incident_of, last_lines, story_of, write_incident
from holdfast.journal.lease import (
    SILENT_AFTER_S,
    Lease,
    LeaseState,
    WatchedHolder,
    acquire,
    heartbeat,
    view,
)
from holdfast.journal.machine_facts import MachineFacts
from holdfast.journal.remote import refresh
from holdfast.journal.store import RunFolder

FOLDER = "machines"
HOST_LOST = ExitCause.HOST_LOST.value
MINUTE_NS = 60 * 10**9
NEAR_NS = 10 * MINUTE_NS  # a stamp is of the same event as a loss
LATE_NS = 60 * MINUTE_NS  # it takes time until somebody looks
MACHINES_FILE, RECORD_FILE, SEEN_FILE = "machines.json", "record.json", "seen.json"


def read_machines(folder: RunFolder) -> Machines:
    """What the run's machines are made of.

    Raises ConfigurationError when it has none, StoreUnavailable when they cannot be read.
    """
    path = _path(folder, MACHINES_FILE)
    refresh(path.parent)
    try:
        return Machines.from_json(read_json(path))
    except FileNotFoundError:
        raise ConfigurationError(
            f"run {folder.name!r} has no machines of its own; make them with holdfast up"
        ) from None
    except (ValueError, ConfigurationError) as error:
        raise StoreUnavailable(f"{path} is damaged ({error}); move it away") from error


def write_machines(folder: RunFolder, machines: Machines) -> Machines:
    """Write them down where the run has none; returns what it has. Raises StoreUnavailable."""
    path = _path(folder, MACHINES_FILE)
    make_part(path.parent)
    try:
        create_exclusive(path, encode_json(machines.to_json()))
    except FileExistsError:
        return read_machines(folder)
    return machines


def replace_machines(folder: RunFolder, machines: Machines) -> None:
    """Write down others; the caller holds the lease, and there are none of the old ones."""
    write_atomic(_path(folder, MACHINES_FILE), encode_json(machines.to_json()))


def tell_loss(folder: RunFolder, words: str, cause: str) -> tuple[int, str] | None:
    """Say what the attempt that was left open was lost to; whoever starts the next one closes it.

    Only the holder of the run's lease may call it: then nobody is left who runs that attempt. What
    was said before stands. Returns the attempt, and the cause that is on record; None: none was
    open. Raises StoreUnavailable.
    """
    refresh(folder.attempts_dir)
    newest = attempts(folder).newest
    if newest is None or newest.end is not None:
        return None
    logs = sorted(folder.logs_dir(newest.attempt).glob("*.log"))
    story = story_of(
        newest.attempt,
        cause,
        words,
        exits=(None,) * newest.ranks,
        last_lines=last_lines(logs[0]) if logs else (),
    )
    write_incident(folder, newest.attempt, story)
    known = (incident_of(folder, newest.attempt) or {}).get("cause")
    return newest.attempt, known if isinstance(known, str) else cause


@dataclass(slots=True)
class MachinesBook:
    """The record of one run; see `holdfast.provision.recovery.Book`.

    `knows_gone`: whether it is certain that this holder's machine is no more, or runs nothing more
    of ours. Then nobody has to watch it.
    """

    folder: RunFolder
    on_wait: Callable[[str], None] = lambda _words: None
    knows_gone: Callable[[RunHolder], bool] = lambda _holder: False
    _lease: Lease | None = field(default=None, repr=False)
    _facts: MachineFacts = field(init=False, repr=False)
    _explained: set[int] = field(default_factory=set, repr=False)

    def __post_init__(self) -> None:
        self._facts = MachineFacts(self.folder, self.on_wait)

    @property
    def is_held(self) -> bool:
        """Whether this process holds the run's lease."""
        return self._lease is not None

    def load(self) -> RecoveryRecord:
        """The record; a new one where none was written. Raises StoreUnavailable."""
        record, _ = self._read()
        return record

    def hold(self) -> None:
        """Take the run's lease; raises RunHeld, StoreUnavailable."""
        if self._lease is None:
            refresh(self.folder.lease_dir)
            before = view(self.folder)
            watched, holder = None, before.holder
            if before.state is LeaseState.UNKNOWN and holder and self.knows_gone(holder):
                beat = heartbeat(self.folder, before.epoch)
                watched = WatchedHolder(before.epoch, SILENT_AFTER_S, beat=beat)
            self._lease = acquire(self.folder, on_wait=self.on_wait, watched=watched)

    def renew(self) -> None:
        """Show life, if the lease is held; raises RunHeld when it was taken over."""
        if self._lease is not None:
            self._lease.renew()

    def save(self, record: RecoveryRecord) -> None:
        """Write an intent; raises RunHeld when a later lease has written one, StoreUnavailable."""
        if self._lease is None:
            raise RunHeld(f"the lease of run {self.folder.name!r} is not held; nothing is written")
        self._lease.check()
        _, epoch = self._read()
        if epoch > self._lease.epoch:
            raise RunHeld(
                f"the machines of run {self.folder.name!r} were looked after under lease {epoch} "
                f"while this process held lease {self._lease.epoch}; it must stop now"
            )
        self.note(record)
        path = _path(self.folder, RECORD_FILE)
        write_atomic(path, encode_json(_to_json(record, self._lease.epoch)))

    def note(self, record: RecoveryRecord) -> None:
        """Write down what was seen; raises StoreUnavailable."""
        seen = _path(self.folder, SEEN_FILE)
        raw = _seen_json(record)
        if raw != _seen_json(self._read()[0]):
            make_part(seen.parent)
            write_atomic(seen, encode_json(raw), durable=False)

    def lost(self, words: str, cause: str, at_unix_ns: int) -> None:
        """Put on record what the attempt was lost to, for people and for the ledger."""
        loss = tell_loss(self.folder, words, cause)
        if loss is not None:
            self._facts.lost(*loss, at_unix_ns)
        elif cause != HOST_LOST:
            self._explain(cause, at_unix_ns, within_ns=LATE_NS)

    def maintained(self, at_unix_ns: int) -> None:
        """Put on record that the machines were maintained then, if an attempt was lost to that."""
        self._explain(MACHINE_MAINTENANCE, at_unix_ns, within_ns=NEAR_NS)

    def _explain(self, cause: str, at_unix_ns: int, within_ns: int) -> None:
        """Of the newest attempt that is over: it saw a host fall silent then, and not why."""
        refresh(self.folder.attempts_dir)
        over = [one for one in attempts(self.folder).records if one.end is not None]
        end = over[-1].end if over else None
        if end is None or end.cause != HOST_LOST or over[-1].attempt in self._explained:
            return
        if abs(at_unix_ns - end.ended_unix_ns) <= within_ns:
            self._explained.add(over[-1].attempt)
            self._facts.lost(over[-1].attempt, cause, at_unix_ns)

    def waited(self, kind: str, start_unix_ns: int, end_unix_ns: int) -> None:
        """Put on record what was waited for."""
        self._facts.waited(kind, start_unix_ns, end_unix_ns)

    def release(self) -> None:
        """Give the lease back; again is harmless. Raises StoreUnavailable."""
        if self._lease is not None:
            self._lease.release()
            self._lease = None

    def close(self) -> None:
        """Give the lease back, and bring home what is left to be told. Raises StoreUnavailable."""
        self._facts.close()
        self.release()

    def _read(self) -> tuple[RecoveryRecord, int]:
        """The record, and the lease under which it was written."""
        refresh(self.folder.path / FOLDER)
        record, epoch = _parsed(_path(self.folder, RECORD_FILE), _record, (RecoveryRecord(), 0))
        return _parsed(_path(self.folder, SEEN_FILE), lambda raw: _seen(record, raw), record), epoch


def _parsed(path: Path, parse: Callable[[dict[str, Any]], Any], default: Any) -> Any:
    try:
        return parse(read_json(path))
    except FileNotFoundError:
        return default
    except ValueError as error:
        raise StoreUnavailable(f"{path} is damaged ({error}); move it away") from error


def _to_json(record: RecoveryRecord, epoch: int) -> dict[str, Any]:
    return {
        "epoch": epoch,
        "phase": str(record.phase),
        "generation": record.generation,
        "deleted_unix_ns": list(record.deleted_unix_ns),
        "not_before_unix_ns": record.not_before_unix_ns,
        "wait_ns": record.wait_ns,
        "why": record.why,
    }


def _record(raw: dict[str, Any]) -> tuple[RecoveryRecord, int]:
    deleted = raw_field(raw, "deleted_unix_ns")
    if not isinstance(deleted, list):
        raise ValueError("its deleted_unix_ns is no list")
    record = RecoveryRecord(
        phase=GenerationPhase(text(raw, "phase")),
        generation=whole(raw, "generation", low=1),
        deleted_unix_ns=tuple(whole({"deleted_unix_ns": at}, "deleted_unix_ns") for at in deleted),
        not_before_unix_ns=whole(raw, "not_before_unix_ns"),
        wait_ns=whole(raw, "wait_ns"),
        why=text(raw, "why"),
    )
    return record, whole(raw, "epoch")


def _seen_json(record: RecoveryRecord) -> dict[str, Any]:
    return {
        "generation": record.generation,
        "condition": str(record.condition),
        "since_unix_ns": record.since_unix_ns,
        "has_stood": record.phase is GenerationPhase.STANDING,
    }


def _seen(record: RecoveryRecord, raw: dict[str, Any]) -> RecoveryRecord:
    """The record with what was last seen, if that was of the same generation."""
    if whole(raw, "generation", low=1) != record.generation:
        return record
    condition, since = Condition(text(raw, "condition")), whole(raw, "since_unix_ns")
    has_stood = raw.get("has_stood") is True and record.phase is GenerationPhase.CREATING
    phase = GenerationPhase.STANDING if has_stood else record.phase
    return replace(record, phase=phase, condition=condition, since_unix_ns=since)


def _path(folder: RunFolder, name: str) -> Path:
    return folder.path / FOLDER / name
