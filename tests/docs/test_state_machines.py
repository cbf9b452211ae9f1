"""The page of the state machines is what the tables in the code say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from holdfast.core import events
from holdfast.core.hosts import machine as host
from holdfast.core.run import machine as run

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "state-machines.md"


@pytest.mark.real
def test_the_page_is_in_step_with_the_tables() -> None:
    check = [sys.executable, ROOT / "docs" / "state_machines.py", "--check"]
    result = subprocess.run(check, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_state_event_and_handler_is_explained() -> None:
    text = PAGE.read_text()
    for kind in (*get_args(events.Event), *get_args(host.HostEvent)):
        assert f"**`{kind.__name__}`**: " in text
    for state in (*run.State, *host.HostState):
        assert f"| {state} |  |" not in text, f"{state} has no comment that says what it is"
    of_runs = [row.handle for rows in run.TABLE.values() for row in rows.values()]
    for handler in (*of_runs, *host.TABLE.values()):
        assert handler.__doc__, f"{handler.__name__} does not say what it does"
