"""What the core remembers is copied, compared, written down and read back, after each input.

Whoever goes on from a copy, or from what was written down, decides the rest of the night alike; and
the machine that was copied decides as if nobody had. (`tests/scenarios/watch.py` holds the same in
each scenario and each life that is drawn.)
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
from record import read

sys.path.pop(0)

from holdfast.core import events as ev
from holdfast.core.run.as_json import read_state as decode
from holdfast.core.run.as_json import write_state as encode
from holdfast.core.run.machine import RunMachine, RunPolicy

HERE = Path(__file__).parent


@pytest.mark.parametrize("path", sorted(HERE.glob("*.jsonl")), ids=lambda path: path.stem)
def test_the_rest_of_a_night_is_decided_alike(path: Path) -> None:
    policy, events = read(path)
    alone, machine = RunMachine(policy), RunMachine(policy)
    others: list[RunMachine] = []
    for number, event in enumerate(events):
        again = RunMachine.of(decode(json.loads(json.dumps(encode(machine.course)))))
        assert again.course == machine.copy().course == machine.course == alone.course
        others.append(again if number % 2 else machine.copy())
        answer = alone.handle(event)
        assert [one.handle(event) for one in others] == [answer] * len(others)
        assert machine.handle(event) == answer
        if len(others) > 1:
            assert others[0].course == others[-1].course == machine.course


def test_what_changes_is_another_course() -> None:
    one, other = RunMachine(RunPolicy(ranks=2)), RunMachine(RunPolicy(ranks=2))
    assert one.course == other.course
    other.handle(ev.Opened(0, 0))
    assert one.course != other.course


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        [],
        {},
        {"part": "RunPolicy"},
        {"state": "flying"},
        {"saving": None},
        {"saving": {"part": "Saving"}},
        {"high_water": "5"},
        {"failures": {}},
        {"rollbacks": {"part": "Rollbacks", "standing": [{"part": "Wish"}]}},
        {"hangs": {"part": "HangWatch", "_stopped_ns": [[1]]}},
    ],
)
def test_rubbish(wrong: Any) -> None:
    good = encode(RunMachine(RunPolicy(ranks=1)).course)
    assert decode(good).policy.ranks == 1
    rubbish = good | wrong if isinstance(wrong, dict) and wrong else wrong
    with pytest.raises(ValueError, match=r"no |missing|not a valid|has not"):
        decode(rubbish)


def test_a_field_of_a_newer_version_is_ignored_and_one_that_is_missing_is_not_made_up() -> None:
    good = encode(RunMachine(RunPolicy(ranks=1)).course)
    assert decode({**good, "mood": "calm"}) == decode(good)
    del good["high_water"]
    with pytest.raises(ValueError, match="RunState has no high_water"):
        decode(good)
