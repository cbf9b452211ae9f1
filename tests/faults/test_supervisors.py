"""Faults of the supervisor: agent, guard and reaper, alone and together; and who comes after it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from pathlib import Path

import pytest
from books import BEFORE, Books
from processes import (
    EXIT_SAVED,
    EXIT_UNAVAILABLE,
    FAR,
    Process,
    guard_of,
    is_alive,
    ranks_of,
    reaper_of,
    said_by,
)

from holdfast.agent.reaper.processes import descendants

pytestmark = pytest.mark.real

RANKS = pytest.mark.parametrize("ranks", [1, 2])


def running(books: Books, ranks: int, *, fault: str = "leaves_children") -> Process:
    """A run in its eighth step; its ranks have children that leave their session and stay."""
    run = books.start(fault, ranks, at=1, steps=FAR)
    books.reached(run, ranks)
    return run


def kill_at_once(pids: Iterable[int]) -> None:
    """SIGKILL all in one instant: stopped first, so that none sees another one die."""
    pids = list(pids)
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            os.kill(pid, number)


@RANKS
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1"])
def test_a_signal_saves_and_stops(books: Books, name: str, ranks: int) -> None:
    run = running(books, ranks)
    run.send(signal.Signals[name])
    run.saw("saving, then stopping")
    books.go_on()
    run.wait(EXIT_SAVED)
    books.nobody_left()
    story = books.incident()
    is_notice = name != "SIGINT"
    assert story["cause"] == ("preempted" if is_notice else "stopped")
    assert story["words"].startswith(f"{name if is_notice else 'Ctrl-C'}: stopped; step ")
    assert story["exits"] == [EXIT_SAVED] * ranks
    assert f"from {books.house.saved_step()}\n" in books.finishes(ranks)
    assert books.account(disruptions=1).lost_steps == 0


@RANKS
def test_a_signal_to_every_process_saves_and_stops(books: Books, ranks: int) -> None:
    """As a service manager sends it that stops a whole cgroup."""
    run = running(books, ranks)
    for pid in (run.pid, *descendants(run.pid)):
        os.kill(pid, signal.SIGTERM)
    run.saw("saving, then stopping")
    books.go_on()
    run.wait(EXIT_SAVED)
    books.nobody_left()
    assert books.incident()["exits"] == [EXIT_SAVED] * ranks
    assert f"from {books.house.saved_step()}\n" in books.finishes(ranks)
    assert books.account(disruptions=1).lost_steps == 0


@RANKS
@pytest.mark.parametrize("name", ["SIGQUIT", "SIGINT twice"])
def test_a_person_who_wants_it_now_gets_it_now(books: Books, name: str, ranks: int) -> None:
    run = running(books, ranks)
    if name == "SIGQUIT":
        run.send(signal.SIGQUIT)
    else:
        run.send(signal.SIGINT)
        run.saw("saving, then stopping")
        run.send(signal.SIGINT)
    run.wait(EXIT_SAVED)
    books.nobody_left()
    story = books.incident()
    assert story["cause"] == "stopped"
    assert story["exits"] == [-signal.SIGKILL] * ranks
    books.finishes(ranks)
    books.account(disruptions=1, done=BEFORE)


@RANKS
@pytest.mark.parametrize("victims", [["reaper"], ["guard"], ["guard", "reaper"]], ids="+".join)
def test_reaper_and_guard_are_killed(books: Books, victims: list[str], ranks: int) -> None:
    """The supervisor ends what they left, and starts the attempt again."""
    run = running(books, ranks)
    pids = {"reaper": reaper_of(run), "guard": guard_of(run)}
    old = ranks_of(run)
    kill_at_once(pids[name] for name in victims)
    run.saw(rf"{said_by(0, ranks)}from", 2)
    assert not any(map(is_alive, old))
    run.send(signal.SIGTERM)
    run.saw("SIGTERM: ")
    books.go_on()
    run.wait(EXIT_SAVED)
    books.nobody_left()
    story = books.incident()
    assert story["cause"] == "killed"
    assert "killed by SIGKILL" in story["words"]
    books.finishes(ranks)
    books.account(disruptions=2)


@RANKS
@pytest.mark.parametrize(
    "victims",
    [["agent"], ["agent", "reaper"], ["agent", "guard"], ["agent", "guard", "reaper"]],
    ids="+".join,
)
def test_the_agent_is_killed(books: Books, victims: list[str], ranks: int) -> None:
    """A successor is started at once, while the old one's tree is still dying."""
    run = running(books, ranks)
    pids = {"agent": run.pid, "guard": guard_of(run), "reaper": reaper_of(run)}
    kill_at_once(pids[name] for name in victims)
    books.finishes(ranks)
    run.wait(-signal.SIGKILL)
    account = books.account(disruptions=1, done=BEFORE)
    assert account.lost_steps > 0
    story = books.incident()
    assert story["cause"] == "killed"
    assert f"pid {run.pid}" in story["words"]
    assert f"did {BEFORE}" in story["last_lines"]


@RANKS
def test_the_agent_sleeps_for_a_while(books: Books, ranks: int) -> None:
    """The ranks train on, what they do is not lost, and nobody else can take the run meanwhile."""
    run = running(books, ranks)
    run.send(signal.SIGSTOP)
    books.house.eventually(lambda: state_of(run.pid) == "T")
    books.house.allow(30)
    other = books.house.run("--ranks", ranks, steps=5)
    assert f"pid {run.pid}" in other.wait(EXIT_UNAVAILABLE)
    run.send(signal.SIGCONT)
    for rank in range(ranks):
        run.saw(rf"{said_by(rank, ranks)}did 30$")
    run.send(signal.SIGTERM)
    run.saw("saving, then stopping")
    books.go_on()
    run.wait(EXIT_SAVED)
    books.nobody_left()
    assert books.house.saved_step() >= 30
    books.finishes(ranks)
    assert books.account(disruptions=1).lost_steps == 0


def state_of(pid: int) -> str:
    """T: stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
