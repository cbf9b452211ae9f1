"""The threads of a copy: as many as this process may have, and none that is waited for in vain."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from holdfast.snapshot import arrays
from holdfast.snapshot import memory as host_memory
from holdfast.snapshot.layout import Placed, place
from holdfast.snapshot.memory import MAX_COPY_THREADS, PARALLEL_FROM_BYTES, copy_all
from holdfast.snapshot.tree import flatten

BYTES = PARALLEL_FROM_BYTES + 12_345


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})


@pytest.fixture
def copied_by(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[int]]:
    """The threads that copied something."""
    threads: set[int] = set()
    run = arrays.run

    def noted(copy: arrays.Copy) -> None:
        threads.add(threading.get_ident())
        run(copy)

    monkeypatch.setattr(arrays, "run", noted)
    return threads


def a_tree() -> tuple[tuple[Placed, ...], np.ndarray]:
    source = np.random.default_rng(0).integers(0, 256, BYTES, np.uint8)
    return place(flatten({"w": source}).leaves), source


def test_ranks_that_share_the_cores_do_not_take_them_all(copied_by):
    placed, source = a_tree()
    memory = np.zeros(BYTES, np.uint8)
    copy_all(placed, memory, sharers=2)
    assert copied_by == {threading.get_ident()}
    assert (memory == source).all()


def test_a_helper_that_finds_no_core_is_not_waited_for(copied_by):
    """All helpers are kept busy: the copy is whole all the same, by this thread alone."""
    placed, source = a_tree()
    memory = np.zeros(BYTES, np.uint8)
    free = threading.Event()
    busy = [host_memory._helpers().submit(free.wait) for _ in range(MAX_COPY_THREADS - 1)]
    try:
        copy_all(placed, memory)
        assert copied_by == {threading.get_ident()}
        assert (memory == source).all()
    finally:
        free.set()
        for one in busy:
            one.result()


def test_what_fails_in_a_helper_is_raised_here(monkeypatch):
    placed, _ = a_tree()
    mine = threading.get_ident()
    helped = threading.Event()

    def run(_: arrays.Copy) -> None:
        if threading.get_ident() != mine:
            helped.set()
            raise ValueError("a broken page")
        assert helped.wait(60), "no helper came"

    monkeypatch.setattr(arrays, "run", run)
    with pytest.raises(ValueError, match="a broken page"):
        copy_all(placed, np.zeros(BYTES, np.uint8))
