"""A supervisor's journal read back: what it was told, and what it decided on that.

    night = recorded(read_journal("STORE/RUN/journal/controller-000001.hfj"))
    for event, actions in replay(night.inputs, night.policy): ...
    difference(night) is None  # `core.run` decides today what it decided then

The decisions are made again by `core.run` itself, from the policy and the inputs in the journal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from holdfast.controller.journal import checksum
from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.event_json import decode
from holdfast.core.run.as_json import read_policy
from holdfast.core.run.machine import RunMachine, RunPolicy
from holdfast.core.save import events as news
from holdfast.errors import JournalError
from holdfast.journal.layout import Kind, NoteType
from holdfast.journal.reader import Journal, argument

STATED = (("run", None), ("saves", None), ("wait", "boot"))  # by the supervisor, not the machine


@dataclass(frozen=True, slots=True)
class RecordedDecisions:
    """What a supervisor's journal tells of its decisions.

    `version`: of the Holdfast that decided. `before`: for each input the checksum of all actions
    that were decided on earlier ones; None: not recorded, as beside a rank's plain progress.
    `decided`: that of all actions; None: the supervisor had no time to write it.
    """

    version: str
    policy: RunPolicy
    inputs: tuple[ev.Event, ...]
    before: tuple[int | None, ...]
    decided: int | None


def recorded(journal: Journal) -> RecordedDecisions:
    """Raises JournalError for one that cannot be decided again: too old, too new, or damaged."""
    lines = {line.offset: line.payload for line in journal.sidecar}
    try:
        notes: dict[str, Any] = {}
        for payload in _notes(journal, lines, NoteType.CONTROLLER):
            notes |= payload
        if "policy" not in notes:
            raise JournalError("its Holdfast did not write down by which policy it decided")
        policy = read_policy(notes["policy"])
        read = list(_inputs(journal, lines))
    except (KeyError, ValueError) as error:
        raise JournalError(f"it holds what this Holdfast cannot read: {error}") from error
    decided, version = notes.get("decided"), str(notes.get("version"))
    return RecordedDecisions(
        version,
        policy,
        tuple(event for event, _ in read),
        tuple(before for _, before in read),
        decided if type(decided) is int else None,
    )


def inputs(journal: Journal) -> Iterator[ev.Event]:
    """Every input that the run's machine was fed, in that order.

    Raises KeyError for an event of a newer version, or whose line is missing (a full disk);
    ValueError for one that the machine was never fed.
    """
    lines = {line.offset: line.payload for line in journal.sidecar}
    for event, _ in _inputs(journal, lines):
        yield event


def _inputs(journal: Journal, lines: dict[int, Any]) -> Iterator[tuple[ev.Event, int | None]]:
    records = journal.records
    for record, arg in zip(records, argument(records).tolist(), strict=True):
        at_ns, step, value = int(record["time"]), int(record["step"]), int(record["value"])
        if record["kind"] == Kind.PROGRESS:
            yield ev.Heard(at_ns, value, news.Progress(at_ns, arg, step)), None
        elif record["kind"] == Kind.NOTE and arg == NoteType.INPUT:
            before = lines[value].get("decided")
            yield decode(lines[value]), before if type(before) is int else None


def decided(journal: Journal) -> list[dict[str, Any]]:
    """The facts that the machine had recorded, in that order."""
    lines = {line.offset: line.payload for line in journal.sidecar}
    facts = (dict(fact) for fact in _notes(journal, lines, NoteType.FACT))
    return [fact for fact in facts if (fact.get("fact"), fact.get("kind")) not in STATED]


def _notes(journal: Journal, lines: dict[int, Any], note: NoteType) -> Iterator[dict[str, Any]]:
    records = journal.records
    notes = records[(records["kind"] == Kind.NOTE) & (argument(records) == note)]
    for offset in notes["value"].tolist():
        yield lines[offset]


def replay(
    events: Iterable[ev.Event], policy: RunPolicy
) -> Iterator[tuple[ev.Event, tuple[act.Action, ...]]]:
    """Feed a fresh machine; each input with what is decided on it.

    Raises JournalError where the machine, deciding otherwise, is not where an input finds it.
    """
    machine = RunMachine(policy)
    for event in events:
        try:
            actions = machine.handle(event)
        except Exception as error:  # the machine trusts its inputs, and a journal may hold rubbish
            raise JournalError(f"an input that cannot be heard: {error}") from error
        yield event, actions


@dataclass(frozen=True, slots=True)
class Difference:
    """Between these two inputs something else is decided now; None: from the start, to the end."""

    after: ev.Event | None
    before: ev.Event | None


def difference(night: RecordedDecisions) -> Difference | None:
    """Where today's decisions differ first from those of the night; None: they are the same."""
    now, same = 0, None
    try:
        again = replay(night.inputs, night.policy)
        for (event, actions), then in zip(again, night.before, strict=True):
            if then is not None:
                if then != now:
                    return Difference(same, event)
                same = event
            for action in actions:
                now = checksum(action, now)
    except JournalError:
        return Difference(same, None)
    return None if night.decided in (None, now) else Difference(same, None)
