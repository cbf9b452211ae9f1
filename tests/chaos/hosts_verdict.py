"""What must be true of a night on several hosts when it is over."""

from __future__ import annotations

import functools
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.journal.attempts import AttemptRecord, attempts
from holdfast.journal.recorded import load_run
from holdfast.journal.store import RunFolder, RunStore

sys.path.insert(0, str(Path(__file__).parent))
import victim
from verdict import last_blow_unix_ns

if TYPE_CHECKING:
    from many_hosts import Night

expected = functools.cache(victim.expected)
AWAY = "could not save step"  # while the store was away
SECOND_NS = 1_000_000_000
BLIND_NS = SECOND_NS // 20  # from an attempt's creation to its first process
FOLLOWS_NS = 20 * SECOND_NS  # after a blow is over: a silent host is given up, a successor judges


def judge(night: Night, store: Path, steps: int) -> None:
    """Add to the night's problems what is not as it must be."""
    folder = RunStore.at(store).get("night")
    known = attempts(folder)
    night.attempts = len(known.records)
    night.problems += [f"an attempt's record cannot be read: {words}" for words in known.damage]
    finals = [m[1] for line in night.output if (m := re.search(r"final (\w+)$", line))]
    wrong = [one for one in finals if one != expected(steps)]
    if len(finals) < night.ranks or wrong:
        night.problems.append(f"final parameters {finals}, not {night.ranks} × {expected(steps)}")
    recorded = load_run(folder.path)
    account = recorded.account()  # raises if the kinds do not sum up
    night.problems += [f"the journals: {note}" for note in recorded.notes() if AWAY not in note]
    if account.steps_kept != steps:
        night.problems.append(f"{account.steps_kept} steps are kept, not {steps}")
    disrupted = {one.attempt for one in account.disruptions}
    night.back_s += [d.downtime_ns / 1e9 for d in account.disruptions if d.downtime_ns is not None]
    for record, following in zip(known.records, [*known.records[1:], None], strict=True):
        last_blow_ns = last_blow_unix_ns(record, following)
        _judge_attempt(night, folder, record, disrupted, last_blow_ns)


def _judge_attempt(
    night: Night, folder: RunFolder, record: AttemptRecord, disrupted: set[int], last_blow_ns: int
) -> None:
    """It is done, or a blow has ended it; that is on record, and told as an incident."""
    number, end = record.attempt, record.end
    if end is None:
        night.problems.append(f"attempt {number} has no end")
        return
    is_hit = any(blow.hit == number for blow in night.blows)
    if end.cause == "done":
        if number in disrupted:
            night.problems.append(f"attempt {number} is done, and the ledger says that it failed")
        return
    night.causes[end.cause] += 1
    if number not in disrupted:
        night.problems.append(f"attempt {number} ended, and the ledger does not say so")
    if not is_hit and not _follows_a_blow(night, record, last_blow_ns):
        night.problems.append(f"attempt {number} ended ({end.cause}), and nobody struck")
    try:
        incident = json.loads((folder.incidents_dir(number) / "incident.json").read_text())
    except (OSError, ValueError) as error:
        night.problems.append(f"attempt {number} has no incident: {error}")
        return
    if is_hit and incident["cause"] not in ("killed", "host_lost", "unknown"):
        words = f"{incident['cause']} ({incident['words']})"
        night.problems.append(f"a rank of attempt {number} was killed; its incident says {words}")


def _follows_a_blow(night: Night, record: AttemptRecord, last_blow_ns: int) -> bool:
    return any(
        record.created_unix_ns - BLIND_NS <= blow.over_unix_ns + FOLLOWS_NS
        and blow.at_unix_ns <= last_blow_ns
        for blow in night.blows
    )
