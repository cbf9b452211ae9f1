"""Scripts that stand in the way of a stop: it is honoured all the same, and nothing stays."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from books import BEFORE, Books
from processes import EXIT_DONE, EXIT_SAVED, FAR, children, is_alive, ranks_of

from holdfast.errors import JournalError
from holdfast.journal.layout import Word
from holdfast.journal.rank_page import RankPage

pytestmark = pytest.mark.real

HOSTILE = (
    "ignores_sigterm",
    "swallows_sigterm",
    "leaves_children",
    "closes_all_descriptors",
    "prints_without_end",
    "has_workers",
)


def steps_in_journals() -> list[int]:
    """The last step that each rank has done, by its live journal."""
    found = Path(os.environ["HOLDFAST_SCRATCH"]).rglob("rank-*.hfj")
    steps = []
    for live in found:
        try:
            page = RankPage.open(live)
        except JournalError:  # its header is being written
            continue
        steps.append(page.load(Word.STEP))
        page.detach()
    return steps


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("fault", HOSTILE)
def test_a_stop_saves_all_the_same(books: Books, fault: str, ranks: int) -> None:
    run = books.start(fault, ranks, at=1, steps=FAR)
    if fault == "closes_all_descriptors":
        books.house.eventually(lambda: steps_in_journals() == [BEFORE] * ranks)  # it cannot say so
    else:
        books.reached(run, ranks)
    run.send(signal.SIGTERM)
    run.saw("SIGTERM: saving, then stopping")
    books.go_on()
    out = run.wait(EXIT_SAVED)
    books.nobody_left()
    saved = books.house.saved_step()
    assert saved >= BEFORE or fault == "closes_all_descriptors"
    assert f"run 'r': stopped; step {saved} is saved" in out.splitlines()[-1]
    story = books.incident()
    assert story["cause"] == "preempted"
    assert story["words"].startswith("SIGTERM: stopped")
    assert story["exits"] == [EXIT_SAVED] * ranks
    assert f"from {saved}\n" in books.finishes(ranks)
    account = books.account(disruptions=1)
    assert account.lost_steps == 0


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("fault", ["leaves_children", "closes_all_descriptors", "has_workers"])
def test_the_end_of_the_run_is_its_end(books: Books, fault: str, ranks: int) -> None:
    """Nothing is wrong with such a run; what it leaves behind goes when its ranks have gone."""
    run = books.start(fault, ranks, at=1)
    books.go_on()
    run.wait(EXIT_DONE)
    books.nobody_left()
    assert books.house.saved_step() == 10
    assert books.account(disruptions=0).lost_steps == 0


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("fault", ["has_workers", "minds_its_workers", "has_a_data_loader"])
def test_the_workers_get_the_signal_first(books: Books, fault: str, ranks: int) -> None:
    """A signal to the whole group, which ends the workers before the trainer has read it.

    A trainer that minds dies of it: the newest set is what is kept, and the stop is still a stop.
    """
    if fault == "has_a_data_loader":
        pytest.importorskip("torch")
    run = books.start(fault, ranks, at=1, steps=FAR)
    books.reached(run, ranks)
    rank = ranks_of(run)[ranks - 1]
    workers = children(rank)
    assert len(workers) == 2
    os.killpg(rank, signal.SIGTERM)
    books.house.eventually(lambda: not any(map(is_alive, workers)))
    books.go_on()
    out = run.wait(EXIT_SAVED)
    books.nobody_left()
    assert f"SIGTERM to rank {ranks - 1}" in out
    assert f"from {books.house.saved_step()}\n" in books.finishes(ranks)
    books.account(disruptions=1)
