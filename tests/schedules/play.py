"""Play a schedule, watched: what is wrong with it, in one sentence, or nothing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

SCENARIOS = Path(__file__).parent.parent / "scenarios"

sys.path.insert(0, str(SCENARIOS))
from script import Script  # noqa: E402

sys.path.pop(0)


MOST_EVENTS = 20_000  # of one schedule: few have more than 500, elastic ones of 400 steps 6,000


def play(lines: Sequence[str]) -> str:
    """Carry it out, to its end and beyond; empty when all was as it must be."""
    return played(lines).broken


def played(lines: Sequence[str], *, as_written: bool = True) -> Script:
    """The same; the script with all that it knows.

    That JSON keeps what an event is as plain data is tested elsewhere (tests/core/test_events.py,
    and of every scenario): here it would take a tenth of the time. `as_written`: events are
    replayed from plain data, the state goes on from it, and messages and history are text. That
    takes as long again, and tells the same story (test_schedules).
    """
    script = Script(MOST_EVENTS, as_text=False if as_written else None)
    script.run(["quiet", *lines])
    if not script.broken and "!! never over" in script.lines:
        script.broken = "Broken: it can go on, and never ends"
    script.close()
    return script
