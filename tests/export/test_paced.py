"""What a target is told that need not hear of every look."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from holdfast.core.ledger.summary import ALL, RunSummary, Spent
from holdfast.export.outlet import ExportLook
from holdfast.export.paced import Paced
from holdfast.export.sample import Sample
from holdfast.runs.curves import Curve, Points


class FakeTarget:
    """Remembers when it was told of which runs."""

    name = "fake"

    def __init__(self) -> None:
        self.got: list[tuple[float, list[str]]] = []
        self.away = self.closed = False

    def deliver(self, look: ExportLook) -> None:
        if self.away:
            raise ConnectionError
        self.got.append((look.began_s, [one.run.name for one in look.samples]))

    def close(self) -> None:
        self.closed = True


def look(at_s: float, **elapsed: int) -> ExportLook:
    runs = [
        RunSummary(name, name, "running", chips=1, within={ALL: Spent({"step": ns}, wall_ns=ns)})
        for name, ns in elapsed.items()
    ]
    return ExportLook(tuple(Sample(run, at_s) for run in runs), tuple(runs), began_s=at_s)


def test_what_comes_too_soon_waits_for_the_next_or_the_end() -> None:
    target = FakeTarget()
    paced = Paced(target, 30.0, 10.0)
    for at_s in (1000, 1005, 1029, 1030, 1035, 1041):
        paced.deliver(look(at_s, a=at_s))
    assert [at_s for at_s, _ in target.got] == [1000, 1030]
    paced.close()
    assert target.got[2:] == [(1041, ["a"])]
    assert target.closed


def test_a_wall_clock_that_is_set_back_silences_nothing() -> None:
    target = FakeTarget()
    paced = Paced(target, 30.0, 10.0)
    for at_s, unix_s in ((1000, 90_000), (1030, 86_430), (1060, 86_460), (1075, 82_875)):
        paced.deliver(replace(look(at_s, a=at_s), began_unix_s=unix_s))
    paced.close()
    assert [at_s for at_s, _ in target.got] == [1000, 1030, 1060, 1075]


def test_a_last_one_right_behind_another_is_left_out() -> None:
    target = FakeTarget()
    paced = Paced(target, 30.0, 10.0)
    paced.deliver(look(1000, a=1))
    paced.deliver(look(1009, a=2))
    paced.close()
    assert target.got == [(1000, ["a"])]
    assert target.closed


def test_a_run_that_says_nothing_new_is_told_once() -> None:
    target = FakeTarget()
    paced = Paced(target, 0.0)
    paced.deliver(look(1, over=5, on=1))
    paced.deliver(look(2, over=5, on=2))
    paced.deliver(look(3, on=3))
    paced.deliver(look(4, over=5, on=4))  # another of that name
    assert [names for _, names in target.got] == [["over", "on"], ["on"], ["on"], ["over", "on"]]


def test_what_was_read_of_a_run_that_is_over_is_not_lost_to_its_summary() -> None:
    """Its last values waited when the next look had but a summary of it."""
    target, got = FakeTarget(), []
    target.deliver = lambda look: got.append(look.samples)  # type: ignore[method-assign]
    paced = Paced(target, 30.0)
    none = Points(*map(np.array, ([], [], [], [])))
    paced.deliver(look(1000, a=1))
    read = look(1010, a=2)
    told = replace(read.samples[0], curves=(Curve("loss", none, ()),))
    paced.deliver(replace(read, samples=(told,)))
    paced.deliver(look(1020, a=2))
    paced.deliver(look(1030, a=2))
    assert [bool(samples and samples[0].curves) for samples in got] == [False, True]


def test_a_delivery_that_failed_was_none() -> None:
    target = FakeTarget()
    paced = Paced(target, 30.0)
    target.away = True
    with pytest.raises(ConnectionError):
        paced.deliver(look(1, a=1))
    target.away = False
    paced.deliver(look(2, a=1))
    assert target.got == [(2, ["a"])]
    target.away = True
    paced.deliver(look(3, a=2))
    with pytest.raises(ConnectionError):
        paced.close()
    assert target.closed
