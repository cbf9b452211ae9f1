"""A rank that gives up ends when its time is over, whatever has become of its standard output."""

from __future__ import annotations

import io
import os
import queue
import sys
import threading

import pytest

from holdfast.session import leaving


class Gone(io.StringIO):
    """What reads it has ended, and something is left to be written."""

    def flush(self) -> None:
        raise BrokenPipeError


def closed() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize("stream", [Gone(), closed(), None], ids=["gone", "closed", "none"])
def test_an_output_that_cannot_be_written_holds_up_no_exit(
    stream: io.StringIO | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes: list[int] = []
    monkeypatch.setattr(leaving, "LIMIT_S", 0.0)
    monkeypatch.setattr(os, "_exit", codes.append)
    monkeypatch.setattr(sys, "stdout", stream)
    leaving._end(3)
    assert codes == [3]


def test_the_limit_holds_for_an_exit_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python starts no thread any more then, from 3.12 on."""
    codes: queue.SimpleQueue[int] = queue.SimpleQueue()
    monkeypatch.setattr(leaving, "LIMIT_S", 0.0)
    monkeypatch.setattr(os, "_exit", codes.put)
    leaving.be_ready_to_end()
    monkeypatch.setattr(threading.Thread, "start", at_shutdown)
    leaving.end_soon(75)
    leaving.end_soon(1)
    assert codes.get() == 75


def at_shutdown(_: threading.Thread) -> None:
    raise RuntimeError("can't create new thread at interpreter shutdown")
