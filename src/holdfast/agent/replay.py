"""A controller's journal read back: what it was told, and what it must have decided.

    journal = read_journal("STORE/RUN/journal/controller-000001.hfj")
    for event, actions in replay(journal, policy): ...

The decisions are made again by `core.run` itself. The policy is not in the journal: give the one
that the run had.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.core import actions as act
from holdfast.core import agree_events as news
from holdfast.core import events as ev
from holdfast.core.event_json import decode
from holdfast.core.run import RunMachine, RunPolicy
from holdfast.journal.layout import Kind, NoteType
from holdfast.journal.reader import Journal, argument

STATED = (("run", None), ("saves", None), ("wait", "boot"))  # by the agent, not by the machine


def inputs(journal: Journal) -> Iterator[ev.Event]:
    """Every input that the run's machine was fed, in that order.

    Raises KeyError for an event of a newer version, or whose line is missing (a full disk);
    ValueError for one that the machine was never fed.
    """
    lines = {line.offset: line.payload for line in journal.sidecar}
    records = journal.records
    for record, told in zip(records, argument(records).tolist(), strict=True):
        at_ns, step, value = int(record["time"]), int(record["step"]), int(record["value"])
        if record["kind"] == Kind.PROGRESS:
            yield ev.Heard(at_ns, value, news.Progress(at_ns, told, step))
        elif record["kind"] == Kind.NOTE and told == NoteType.INPUT:
            yield decode(lines[value])


def decided(journal: Journal) -> list[dict[str, Any]]:
    """The facts that the machine had recorded, in that order."""
    lines = {line.offset: line.payload for line in journal.sidecar}
    records = journal.records
    notes = records[(records["kind"] == Kind.NOTE) & (argument(records) == NoteType.FACT)]
    facts = (dict(lines[offset]) for offset in notes["value"].tolist())
    return [fact for fact in facts if (fact.get("fact"), fact.get("kind")) not in STATED]


def replay(
    journal: Journal, policy: RunPolicy
) -> Iterator[tuple[ev.Event, tuple[act.Action, ...]]]:
    """Feed a fresh machine; each input with what is decided on it. Raises as `inputs` does."""
    machine = RunMachine(policy)
    for event in inputs(journal):
        yield event, machine.handle(event)
