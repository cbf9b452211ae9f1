"""What the fault matrix holds a process in is what Holdfast calls: a name that went holds none."""

from __future__ import annotations

import functools
import importlib
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "held"))
import phase_hold

sys.path.pop(0)

# Who calls it: a module that has the name from there, or the place's own.
CALLERS = {"seal": "holdfast.agent.flusher", "flush": "holdfast.agent.flusher"}


@pytest.mark.parametrize("phase", phase_hold.PLACES)
def test_the_place_of_a_phase_is_there_and_in_use(phase: str) -> None:
    place = phase_hold.PLACES[phase]
    module = importlib.import_module(place.module)
    function = functools.reduce(getattr, place.function.split("."), module)
    assert callable(function)
    if phase in CALLERS:
        assert getattr(importlib.import_module(CALLERS[phase]), place.function) is function
