"""What one rank tells costs the core the same among few ranks and among many.

Counted are the instructions of the interpreter, which are the same on a busy machine.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
from core import Told

sys.path.pop(0)

from holdfast.core import events as ev
from holdfast.core.exits import Exit
from holdfast.core.hosts import machine as host
from holdfast.core.run.machine import RunMachine, RunPolicy


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


def joins(ranks: int) -> tuple[Any, list[Any]]:
    """Plain commands have ended here and there while others show their sessions."""
    machine = RunMachine(RunPolicy(ranks))
    for event in (ev.Opened(0, 0), ev.Chosen(0, ev.SCRATCH, ""), ev.Launched(0, 0)):
        machine.handle(event)
    for rank in range(0, ranks, 2):
        how = Exit(code=0, finished=True, has_session=True)
        machine.handle(ev.RankExited(1, 0, rank, 1, how))
    return machine, [ev.Joined(2, 0, rank) for rank in range(1, ranks, 2)]


def exits(ranks: int) -> tuple[Any, list[Any]]:
    """One is lost, and the others are killed."""
    machine, _ = joins(ranks)
    return machine, [ev.RankExited(2, 0, rank, 2, Exit(signal=9)) for rank in range(1, ranks, 2)]


def deaths(ranks: int) -> tuple[Any, list[Any]]:
    """The same, where its host tells of it."""
    machine = host.HostMachine()
    machine.handle(host.Start(0, 0, tuple(range(ranks))))
    machine.handle(host.Spawned(1))
    return machine, [host.Died(2, 2, rank, Exit(signal=9)) for rank in range(ranks)]


@pytest.mark.parametrize("story", [joins, exits, deaths])
def test_one_rank_does_not_cost_more_where_there_are_many_others(
    story: Callable[[int], tuple[Any, list[Any]]],
) -> None:
    each = []
    for ranks in (10, 80):
        machine, events = story(ranks)
        counted = Counted(machine)
        for event in events:
            counted.handle(event)
        each.append(counted.count / len(events))
    few, many = each
    print(f"{few:,.0f} instructions for each of 10 ranks, {many:,.0f} for each of 80")
    assert 10 < many <= few
