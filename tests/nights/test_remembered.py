"""What the core remembers is copied and compared, after each input.

Whoever goes on from a copy decides the rest of the night alike; and the machine that was copied
decides as if nobody had. (`tests/scenarios/watch.py` holds the same in each scenario and each life
that is drawn.)
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
from record import read

sys.path.pop(0)

from holdfast.core import events as ev
from holdfast.core.run.machine import RunMachine, RunPolicy

HERE = Path(__file__).parent


@pytest.mark.parametrize("path", sorted(HERE.glob("*.jsonl")), ids=lambda path: path.stem)
def test_the_rest_of_a_night_is_decided_alike(path: Path) -> None:
    policy, events = read(path)
    alone, machine = RunMachine(policy), RunMachine(policy)
    others: list[RunMachine] = []
    for event in events:
        others.append(machine.copy())
        assert others[-1].course == machine.course == alone.course
        answer = alone.handle(event)
        assert [one.handle(event) for one in others] == [answer] * len(others)
        assert machine.handle(event) == answer
        assert others[0].course == others[-1].course == machine.course


def test_what_changes_is_another_course() -> None:
    one, other = RunMachine(RunPolicy(ranks=2)), RunMachine(RunPolicy(ranks=2))
    assert one.course == other.course
    other.handle(ev.Opened(0, 0))
    assert one.course != other.course
