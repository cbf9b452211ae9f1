"""Faults of a training process: each ends its attempt, and the run comes to its end."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest
from books import BEFORE, Books
from memory_limit import MemoryLimit

pytestmark = pytest.mark.real


@dataclass(frozen=True)
class Fault:
    """What it is called, and the story that must be told of it."""

    name: str
    cause: str
    words: str
    exit: int  # the code, or -signal
    last_lines: str = ""
    traceback: str = ""


FAULTS = (
    Fault(
        "exception",
        "failed",
        r"ValueError at .*faulty\.py:\d+: the loss is not a number",
        1,
        last_lines="ValueError: the loss is not a number",
        traceback="ValueError: the loss is not a number",
    ),
    Fault("exits_0", "exited_early", "exited 0 before the run was done", 0),
    Fault("exits_3", "failed", "exited with code 3", 3),
    Fault(
        "segfault",
        "crashed",
        "crashed with SIGSEGV",
        -11,
        last_lines="Fatal Python error: Segmentation fault",
    ),
    Fault("abort", "crashed", "crashed with SIGABRT", -6, last_lines="Fatal Python error: Aborted"),
    Fault("sigkill", "killed", "killed by SIGKILL", -9),
    Fault("leaves_children_and_dies", "killed", "killed by SIGKILL", -9),
    Fault("forks_a_lot", "failed", "ValueError", 1, traceback="in forks_a_lot"),
)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_it_is_survived(books: Books, fault: Fault, ranks: int) -> None:
    run = books.start(fault.name, ranks)
    books.reached(run, ranks)
    books.go_on()
    books.ends(run, ranks)
    books.account(disruptions=1, done=BEFORE)
    story = books.incident()
    assert story["cause"] == fault.cause
    assert re.search(fault.words, story["words"])
    assert story["rank"] == ranks - 1
    assert story["exits"][ranks - 1] == fault.exit
    last_lines = "\n".join(story["last_lines"])
    assert f"did {BEFORE}" in last_lines
    assert fault.last_lines in last_lines
    assert fault.traceback in (story["traceback"] or "")


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_kernel_ends_one_that_takes_too_much_memory(
    books: Books, memory_limit: MemoryLimit, ranks: int
) -> None:
    """Supervisor and ranks share the limit, as in a container: the one that grew is killed."""
    run = books.start("memory", ranks, before=memory_limit.wrapper)
    books.reached(run, ranks)
    books.go_on()
    books.ends(run, ranks)
    books.account(disruptions=1, done=BEFORE)
    story = books.incident()
    assert story["cause"] == "out_of_memory"
    assert "killed by the kernel" in story["words"]
    kills = memory_limit.kills  # a second one, if the first takes its time to let go of its memory
    assert (story["rank"], kills) == (ranks - 1, 1) or (kills > 1 and story["rank"] is not None)
    assert story["exits"][ranks - 1] == -9
