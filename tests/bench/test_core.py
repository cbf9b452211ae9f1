"""What one rank tells costs the core the same among few ranks and among many.

Counted are the instructions of the interpreter, which are the same on a busy machine.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
from core import Told

sys.path.pop(0)


class Counted:
    """A machine whose instructions are counted."""

    def __init__(self, machine: Any) -> None:
        self.machine, self.count = machine, 0

    def handle(self, event: Any) -> Any:
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            return self.machine.handle(event)
        finally:
            sys.settrace(before)

    def _trace(self, frame: Any, what: str, _: Any) -> Any:
        frame.f_trace_opcodes = True
        self.count += what == "opcode"
        return self._trace


@pytest.mark.parametrize("how", ["without memory", "with memory", "copies end later"])
@pytest.mark.parametrize("what", ["save", "report"])
def test_as_much_for_each_of_many_ranks_as_for_each_of_few(what: str, how: str) -> None:
    each = []
    for ranks in (10, 80):
        told = Told(ranks, in_memory=how != "without memory", is_later=how == "copies end later")
        told.save()
        counted = told.machine = Counted(told.machine)
        told.save() if what == "save" else told.tell(told.steps())
        each.append(counted.count / ranks)
    few, many = each
    print(f"{few:,.0f} instructions for each of 10 ranks, {many:,.0f} for each of 80")
    assert 100 < many <= few
