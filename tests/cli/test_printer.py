"""What is said last is still said where a terminal is slow, and given up where it takes nothing."""

from __future__ import annotations

import threading

import pytest

from holdfast.cli.printer import Printer


def test_a_terminal_that_takes_lines_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """In each of the limits it takes one line."""
    printer, takes, taken = Printer(), threading.Semaphore(0), threading.Semaphore(0)
    for _ in range(4):
        printer.put(lambda: takes.acquire() and None)
        printer.put(lambda: taken.release())
    lines, join = [], printer._thread.join

    def one_limit(_: float) -> None:
        if len(lines) == 4:
            join()
            return
        takes.release()
        taken.acquire(timeout=30)
        lines.append(len(lines))

    monkeypatch.setattr(printer._thread, "join", one_limit)
    assert printer.close()
    assert len(lines) == 4


def test_a_terminal_that_takes_nothing_is_given_up() -> None:
    printer, free = Printer(), threading.Event()
    printer.put(lambda: free.wait(60) and None)
    assert not printer.close(limit_s=0.05)
    free.set()


def test_it_is_given_up_at_last_though_it_takes_a_line_now_and_then() -> None:
    """The clock has run out before the first look: one look, and no more."""
    printer, free = Printer(), threading.Event()
    for _ in range(3):
        printer.put(lambda: free.wait(60) and None)
    assert not printer.close(limit_s=60.0, total_s=0.0)
    free.set()
