"""What must be true of a night when it is over, whatever was killed and when."""

from __future__ import annotations

import functools
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.core.ledger.account import Account
from holdfast.journal.attempts import AttemptRecord, attempts
from holdfast.journal.recorded import load_run
from holdfast.journal.store import RunFolder, RunStore

sys.path.insert(0, str(Path(__file__).parent))
import victim

if TYPE_CHECKING:
    from campaign import Night

expected = functools.cache(victim.expected)
BLIND_NS = (
    50_000_000  # from an attempt's creation to its first process, and from a blow to its record
)


def judge(night: Night, steps: int) -> None:
    """Add to the night's problems what is not as it must be."""
    folder = RunStore.at(night.folder / "store").get("night")
    known = attempts(folder)
    records = known.records
    night.attempts = len(records)
    night.problems += [f"an attempt's record cannot be read: {words}" for words in known.damage]
    _judge_result(night, steps)
    recorded = load_run(folder.path)
    account = recorded.account()  # raises if the kinds do not sum up
    night.problems += [f"the journals: {note}" for note in recorded.notes()]
    if account.steps_kept != steps:
        night.problems.append(f"{account.steps_kept} steps are kept, not {steps}")
    _judge_incidents(night, folder, records, account)
    night.back_s += [d.downtime_ns / 1e9 for d in account.disruptions if d.downtime_ns is not None]


def _judge_result(night: Night, steps: int) -> None:
    """Every rank ends with the parameters of an uninterrupted run."""
    finals = [m[1] for line in night.output if (m := re.search(r"final (\w+)$", line))]
    if len(finals) < night.ranks:
        night.problems.append(f"only {len(finals)} of {night.ranks} ranks came to the end")
    wrong = [one for one in finals if one != expected(steps)]
    if wrong:
        night.problems.append(f"final parameters {wrong}, not {expected(steps)}")


def _judge_incidents(
    night: Night, folder: RunFolder, records: tuple[AttemptRecord, ...], account: Account
) -> None:
    """Each kill is one incident, and each incident is a kill's."""
    disrupted = {one.attempt for one in account.disruptions}
    finished = {r.attempt for r in records if r.end is not None and r.end.cause == "done"}
    left_open = [r.attempt for r in records if r.end is None]
    if left_open:
        night.problems.append(f"attempts {left_open} have no end")
    hit = {kill.attempt for kill in night.kills if kill.attempt is not None}
    for attempt in sorted(hit - disrupted - finished):
        night.problems.append(f"a kill of attempt {attempt} is no incident")
    for record, following in zip(records, [*records[1:], None], strict=True):
        if record.attempt in finished:
            continue
        if record.attempt not in disrupted:
            night.problems.append(f"attempt {record.attempt} ended, and the ledger does not say so")
        if record.attempt not in hit and not _struck(night, record, following):
            night.problems.append(f"attempt {record.attempt} ended, and nobody killed it")
        _judge_story(night, folder, record)


def _struck(night: Night, record: AttemptRecord, following: AttemptRecord | None) -> bool:
    """Whether a kill hit what was to be its rank, or fell between its creation and its end."""
    last_unix_ns = last_blow_unix_ns(record, following)
    return any(
        record.attempt in kill.struck
        or (
            record.created_unix_ns - BLIND_NS <= kill.over_unix_ns
            and kill.at_unix_ns <= last_unix_ns
        )
        for kill in night.kills
    )


def last_blow_unix_ns(record: AttemptRecord, following: AttemptRecord | None) -> int:
    """Whatever ended the attempt came no later than this.

    What a successor found dead ended, on record, at its last sign of life: the blow came after
    that, and before the next attempt was created.
    """
    if record.end is None:
        return 0
    is_found_dead = all(code is None for code in record.end.exits)
    return following.created_unix_ns if following and is_found_dead else record.end.ended_unix_ns


def _judge_story(night: Night, folder: RunFolder, record: AttemptRecord) -> None:
    path = folder.incidents_dir(record.attempt) / "incident.json"
    try:
        incident = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        night.problems.append(f"attempt {record.attempt} has no incident: {error}")
        return
    if incident["cause"] != "killed":
        words = f"{incident['cause']} ({incident['words']})"
        night.problems.append(f"attempt {record.attempt} was killed; its incident says {words}")
