"""Attempts: each launch of a run, created once, in sequence, with its place in the lineage.

The number of an attempt is the fencing token of everything it writes. Whoever creates attempt k
exclusively owns it; a supervisor that finds k taken has been replaced and must not write.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.core.ledger.kinds import DONE
from holdfast.core.run.rollback import Rollback
from holdfast.core.save.choose import TrainingEnd
from holdfast.core.value import value
from holdfast.errors import AttemptExists, StoreUnavailable
from holdfast.journal.atomic import (
    create_exclusive,
    encode_json,
    make_part,
    read_json,
    store_errors,
)
from holdfast.journal.fields import (
    MAX_ATTEMPT,
    MAX_RANKS,
    field,
    target,
    text,
    texts,
    whole,
    whole_or_none,
)
from holdfast.journal.store import RunFolder

ATTEMPT_FILE = "attempt.json"
END_FILE = "end.json"
TRAINING_END_FILE = "training_end.json"


@value
class AttemptEnd:
    """How an attempt ended. `exits[r]` is rank r's exit code, -signal, or None if not known.

    `restart_after_ns`: how long after it the next one was to start; None: nobody planned one.
    `alike`: how many failures in the same way made it one of a crash loop; 0: it was none.
    `own_signature`: what failures of the script's own share that are the same; "": it was none.
    """

    cause: str
    words: str
    exits: tuple[int | None, ...]
    ended_unix_ns: int
    restart_after_ns: int | None = None
    alike: int = 0
    own_signature: str = ""

    @property
    def done(self) -> bool:
        """Whether the run finished with this attempt."""
        return self.cause == DONE


@value
class AttemptRecord:
    """One launch. It starts from the set that `parent` wrote at `resume_step`, or from scratch.

    From there it passes over `skip_batches` of each data stream. `rollback`: it does so because
    somebody wanted the run to go back. `goes_on_as`: the newest number that an adoption of it has
    taken, in whose folder its end is put on record then.
    """

    attempt: int
    parent: int | None
    resume_step: int  # the last step that the restored set contains; 0: from scratch
    restore_set: str | None
    epoch: int  # the lease under which it was launched; 0: none
    ranks: int
    chips: int
    incarnation: str  # of the supervisor that launched it
    created_unix_ns: int
    command: tuple[str, ...] = ()
    skip_batches: int = 0
    from_memory: bool = False  # the restored set was read from memory
    rollback: Rollback | None = None
    goes_on_as: int | None = None
    hosts: tuple[int, ...] = ()  # that have a part of it; empty: nobody said
    end: AttemptEnd | None = None  # None: it runs, or nobody was left to record its end


class Attempts(NamedTuple):
    """All attempts of a run in order, and a sentence for each file that cannot be trusted.

    `newest_number`: of the last attempt, be its record readable or not; -1: there is none.
    `next_number`: the first that no record has, those of adoptions included.
    """

    records: tuple[AttemptRecord, ...]
    damage: tuple[str, ...]
    newest_number: int = -1
    next_number: int = 0

    @property
    def newest(self) -> AttemptRecord | None:
        """The last attempt whose record is readable."""
        return self.records[-1] if self.records else None


class Segment(NamedTuple):
    """A piece of the lineage: the steps of `attempt` up to `up_to_step` (None: all of them)."""

    attempt: int
    up_to_step: int | None


def create_attempt(
    folder: RunFolder,
    number: int,
    *,
    parent: int | None,
    resume_step: int,
    restore_set: str | None,
    epoch: int = 0,
    ranks: int = 1,
    chips: int | None = None,
    incarnation: str = "",
    command: Sequence[str] = (),
    skip_batches: int = 0,
    from_memory: bool = False,
    rollback: Rollback | None = None,
    hosts: tuple[int, ...] = (),
) -> AttemptRecord:
    """Create attempt `number`, which must be the next one, and its folders.

    Raises AttemptExists when it is there already or a later lease has launched one: the caller was
    fenced off. Raises ValueError for a number or a parent that cannot be, StoreUnavailable.
    """
    _check_next(folder, number, parent, restore_set, epoch)
    record = AttemptRecord(
        attempt=number,
        parent=parent,
        resume_step=resume_step,
        restore_set=restore_set,
        epoch=epoch,
        ranks=ranks,
        chips=ranks if chips is None else chips,
        incarnation=incarnation,
        created_unix_ns=time.time_ns(),
        command=tuple(command),
        skip_batches=skip_batches,
        from_memory=from_memory,
        rollback=rollback,
        hosts=hosts,
    )
    make_part(folder.attempt_dir(number))
    # Before the record, and synced with it: an attempt on record has its folders, whoever dies.
    for part in (folder.attempt_journal_dir, folder.logs_dir, folder.incidents_dir):
        make_part(part(number), durable=False)
    fields = asdict(record)
    del fields["end"], fields["goes_on_as"]  # these have files of their own
    try:
        create_exclusive(folder.attempt_dir(number) / ATTEMPT_FILE, encode_json(fields))
    except FileExistsError:
        raise AttemptExists(_fenced(folder, number)) from None
    _clear_reports(folder.ranks_dir(number))
    return record


def adopt_attempt(folder: RunFolder, number: int, adopts: int, epoch: int) -> None:
    """Put on record that attempt `adopts` goes on under lease `epoch`. It takes a number.

    So no earlier controller, however late it wakes up, launches an attempt of that number; nor does
    the end count that one puts on record. Raises AttemptExists as `create_attempt`,
    StoreUnavailable.
    """
    _check_number(folder, number, epoch)
    make_part(folder.attempt_dir(number))
    record = {"attempt": number, "adopts": adopts, "epoch": epoch}
    try:
        create_exclusive(folder.attempt_dir(number) / ATTEMPT_FILE, encode_json(record))
    except FileExistsError:
        raise AttemptExists(_fenced(folder, number)) from None


def _check_next(
    folder: RunFolder, number: int, parent: int | None, restore_set: str | None, epoch: int
) -> None:
    """Raise ValueError for what cannot be, AttemptExists when another supervisor was quicker."""
    older = parent is None or 0 <= parent < number
    if not older or (parent is None) != (restore_set is None):
        raise ValueError(f"attempt {number} cannot start from {restore_set!r} of attempt {parent}")
    _check_number(folder, number, epoch)


def _check_number(folder: RunFolder, number: int, epoch: int) -> None:
    """The same of the number alone."""
    if number != (expected := next_number(folder)):
        if number > expected:
            raise ValueError(f"attempt {number} cannot be created before attempt {expected}")
        raise AttemptExists(_fenced(folder, number))
    newest = _newest_epoch(folder, number)
    if newest > epoch:
        raise AttemptExists(
            f"attempt {number - 1} of run {folder.name!r} was launched under lease {newest}, and "
            f"this supervisor holds lease {epoch}: it was replaced and must stop"
        )


def _clear_reports(ranks_dir: Path) -> None:
    """What a process said that failed before it was this attempt is no word of this attempt's."""
    with contextlib.suppress(OSError):
        for path in ranks_dir.glob("rank-*.json"):
            path.unlink(missing_ok=True)


def end_attempt(folder: RunFolder, number: int, end: AttemptEnd) -> AttemptEnd:
    """Record how an attempt ended; the first record stands, and is what is returned.

    A successor closes the attempts of a supervisor that died, and that one may not be quite dead.
    `number`: of the attempt, or of the adoption under which it went on: see `AttemptRecord`. Raises
    StoreUnavailable.
    """
    path = folder.attempt_dir(number) / END_FILE
    try:
        create_exclusive(path, encode_json(asdict(end)))
    except FileExistsError:
        return _read_end(path) or end
    return end


def end_training(folder: RunFolder, number: int, end: TrainingEnd) -> None:
    """Record that the script ended its training in that attempt. Raises StoreUnavailable."""
    with contextlib.suppress(FileExistsError):  # by the controller before this one
        create_exclusive(folder.attempt_dir(number) / TRAINING_END_FILE, encode_json(asdict(end)))


def read_training_end(folder: RunFolder, number: int) -> TrainingEnd | None:
    """Where the script ended its training in that attempt. Raises StoreUnavailable."""
    path = folder.attempt_dir(number) / TRAINING_END_FILE
    try:
        raw = read_json(path)
    except FileNotFoundError:
        return None
    try:
        return TrainingEnd(whole(raw, "step"), whole(raw, "until"))
    except ValueError as error:
        raise StoreUnavailable(f"{path} is damaged ({error}); move it away") from error


def training_end(
    records: Sequence[AttemptRecord], oldest: int, read: Callable[[int], TrainingEnd | None]
) -> TrainingEnd | None:
    """Where the script ended its training, in the newest attempt that did, not before `oldest`.

    None too where the run was done since, or somebody wanted it to go back: it is to train on.
    """
    for record in reversed(records):
        if record.attempt < oldest or (record.end is not None and record.end.done):
            return None
        end = read(record.attempt)
        if end is not None or record.rollback is not None:
            return end
    return None


def attempts(folder: RunFolder) -> Attempts:
    """Every attempt of the run with its end, if it has one.

    Files appear whole, so a torn one was damaged later: it is reported, the rest is read. Raises
    StoreUnavailable when the folder itself cannot be read.
    """
    records: dict[int, AttemptRecord] = {}
    damage: list[str] = []
    newest_number, next_number = -1, 0
    base = str(folder.attempts_dir)  # plain strings: a list reads thousands of these files
    for number in _numbers(folder):
        place = f"{base}/{number:04d}"
        try:
            record = _read_record(f"{place}/{ATTEMPT_FILE}", number)
        except FileNotFoundError:
            continue  # its creator died between the folder and the record: never launched
        except StoreUnavailable as error:
            damage.append(str(error))
            newest_number, next_number = number, number + 1
            continue
        next_number = number + 1
        if isinstance(record, int):  # what an earlier controller says of its end is void
            if record not in records:
                continue
            record = replace(records[record], goes_on_as=number, end=None)
        else:
            newest_number = number
        try:
            end = _read_end(f"{place}/{END_FILE}")
            record = record if end is None else replace(record, end=end)
        except StoreUnavailable as error:
            damage.append(str(error))
        records[record.attempt] = record
    return Attempts(tuple(records.values()), tuple(damage), newest_number, next_number)


def crash_loop(known: Attempts) -> AttemptEnd | None:
    """The last failure that the supervisor counted to a crash loop; None: there was none."""
    ends = (record.end for record in reversed(known.records))
    return next((end for end in ends if end is not None and end.alike), None)


def launched_and_ended(folder: Path, number: int) -> tuple[int | None, str | None]:
    """When the attempt in `folder` was created (unix ns), and its recorded cause of ending.

    None for what is not on record, or cannot be read: for readers who have nothing better.
    """
    created_unix_ns = cause = None
    with contextlib.suppress(FileNotFoundError, StoreUnavailable):
        record = _read_record(folder / ATTEMPT_FILE, number)
        if isinstance(record, int):
            return None, None
        created_unix_ns = record.created_unix_ns
        end = _read_end(folder / END_FILE)
        cause = end.cause if end else None
    return created_unix_ns, cause


def next_number(folder: RunFolder) -> int:
    """The number of the attempt that comes next: one after the last record, readable or not."""
    for number in reversed(_numbers(folder)):
        if (folder.attempt_dir(number) / ATTEMPT_FILE).exists():
            return number + 1
    return 0


def lineage(records: Iterable[AttemptRecord]) -> tuple[Segment, ...]:
    """The chain of the newest attempt: itself, its parent up to where it resumed, and so on.

    Newest first. What is not on it was abandoned: sets and steps of other attempts, and of these
    attempts above their limit. A parent whose record is missing is the chain's last segment.
    Pure: a function of the records alone.
    """
    known = {record.attempt: record for record in records}
    if not known:
        return ()
    number, limit = max(known), None
    chain = [Segment(number, limit)]
    while (record := known.get(number)) is not None and record.parent is not None:
        if record.parent >= number:
            break  # not written by us: a parent is always older
        resume = record.resume_step
        number, limit = record.parent, resume if limit is None else min(limit, resume)
        chain.append(Segment(number, limit))
    return tuple(chain)


def skips(records: Iterable[AttemptRecord]) -> Iterator[tuple[str | None, int, int]]:
    """What the lineage's attempts pass over: (the set they started from, its step, batches). Pure.

    Whoever starts from there again passes over as much: that attempt may have died before it
    saved. A set of its own has its data position behind them.
    """
    for record in _chain(records):
        if record.skip_batches:
            yield record.restore_set, record.resume_step, record.skip_batches


def _chain(records: Iterable[AttemptRecord]) -> Iterator[AttemptRecord]:
    """The newest attempt, its parent, and so on."""
    known = {record.attempt: record for record in records}
    number: int | None = max(known, default=None)
    while number is not None and (record := known.get(number)) is not None:
        yield record
        is_older = record.parent is not None and record.parent < number
        number = record.parent if is_older else None


def _fenced(folder: RunFolder, number: int) -> str:
    return (
        f"attempt {number} of run {folder.name!r} was created by another supervisor: "
        "this one was replaced and must stop"
    )


def _numbers(folder: RunFolder) -> list[int]:
    with store_errors("list the attempts", folder.attempts_dir):
        try:
            names = os.listdir(folder.attempts_dir)  # noqa: PTH208 - names are all we need
        except FileNotFoundError:
            return []
    return sorted(int(name) for name in names if name.isascii() and name.isdigit())


def _newest_epoch(folder: RunFolder, number: int) -> int:
    """The lease epoch of the attempt before `number`; 0 if that cannot be read."""
    with contextlib.suppress(FileNotFoundError, StoreUnavailable):
        raw = read_json(folder.attempt_dir(number - 1) / ATTEMPT_FILE)
        with contextlib.suppress(ValueError):
            return whole(raw, "epoch")
    return 0


def _rollback_from_json(raw: Any) -> Rollback | None:
    """None where there is none, as in every record from before there were rollbacks."""
    if raw is None:
        return None
    if not isinstance(raw, dict):
        raise ValueError("its rollback is no object")
    return Rollback(texts(raw, "ids"), target(raw, "to"), text(raw, "words"))


def _hosts_from_json(raw: Any) -> tuple[int, ...]:
    """Empty where there are none, as in every record from before there were elastic runs."""
    if raw is None:
        return ()
    if not isinstance(raw, list) or len(raw) > MAX_RANKS:
        raise ValueError("its hosts are no list of numbers")
    return tuple(whole({"hosts": one}, "hosts", high=MAX_RANKS) for one in raw)


def _read_record(path: str | Path, number: int) -> AttemptRecord | int:
    """A number: it says that this earlier attempt was adopted."""
    raw = read_json(path)
    try:
        if "adopts" in raw:
            return whole(raw, "adopts", high=MAX_ATTEMPT)
        record = AttemptRecord(
            attempt=whole(raw, "attempt", high=MAX_ATTEMPT),
            parent=whole_or_none(raw, "parent", high=MAX_ATTEMPT),
            resume_step=whole(raw, "resume_step"),
            restore_set=None if field(raw, "restore_set") is None else text(raw, "restore_set"),
            epoch=whole(raw, "epoch"),
            ranks=whole(raw, "ranks", high=MAX_RANKS),
            chips=whole(raw, "chips"),
            incarnation=text(raw, "incarnation"),
            created_unix_ns=whole(raw, "created_unix_ns"),
            command=texts(raw, "command"),
            skip_batches=whole(raw, "skip_batches") if "skip_batches" in raw else 0,
            from_memory=raw.get("from_memory") is True,
            rollback=_rollback_from_json(raw.get("rollback")),
            hosts=_hosts_from_json(raw.get("hosts")),
        )
    except ValueError as error:
        raise StoreUnavailable(f"{path} is damaged ({error}); move it away") from error
    if record.attempt != number:
        raise StoreUnavailable(f"{path} says that it is attempt {record.attempt}; move it away")
    return record


def _read_end(path: str | Path) -> AttemptEnd | None:
    try:
        raw = read_json(path)
    except FileNotFoundError:
        return None
    try:
        return AttemptEnd(
            cause=text(raw, "cause"),
            words=text(raw, "words"),
            exits=_exits(raw),
            ended_unix_ns=whole(raw, "ended_unix_ns"),
            restart_after_ns=whole_or_none(raw, "restart_after_ns")
            if "restart_after_ns" in raw
            else None,
            alike=whole(raw, "alike") if "alike" in raw else 0,
            own_signature=text(raw, "own_signature") if "own_signature" in raw else "",
        )
    except ValueError as error:
        raise StoreUnavailable(f"{path} is damaged ({error}); move it away") from error


def _exits(raw: dict[str, Any]) -> tuple[int | None, ...]:
    exits = field(raw, "exits")
    if not isinstance(exits, list) or not all(code is None or type(code) is int for code in exits):
        raise ValueError("its exits are no list of exit codes")
    return tuple(exits)
