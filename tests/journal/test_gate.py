"""The gate: nobody passes before it is opened, and nobody waits after that."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path

import pytest

from holdfast.journal.gate import NAME, WORD, Gate, Go, encode_files, mark, read_files, wait

GO = Go("0003-000000000012", 12, 3, 4, "/dev/shm/holdfast-0/r/ram/buffer-1")


class Waiter:
    """One that stands at the gate, in a thread; what it was told."""

    def __init__(self, path: Path) -> None:
        self.leisure = threading.Event()
        self.told: list[Go] = []
        self._thread = threading.Thread(target=self._wait, args=(path,), daemon=True)
        self._thread.start()

    def _wait(self, path: Path) -> None:
        self.told.append(wait(path, self.leisure.set))

    def ended(self) -> list[Go]:
        self._thread.join(60.0)
        return self.told


@pytest.fixture
def gate(tmp_path):
    gate = Gate(tmp_path)
    yield gate
    gate.close()


def test_all_that_wait_go_on_and_so_does_who_comes_later(gate):
    first, second = Waiter(gate.path), Waiter(gate.path)
    assert first.leisure.wait(60.0)
    assert second.leisure.wait(60.0)
    assert first.told == second.told == []
    gate.open(GO)
    assert first.ended() == second.ended() == [GO]
    late = Waiter(gate.path)
    assert late.ended() == [GO]
    assert not late.leisure.is_set()


def test_from_scratch(gate):
    go = Go(None, 0, None, 0, None)
    gate.open(go)
    assert wait(gate.path, lambda: None) == go


def test_what_can_be_done_meanwhile_is_done_where_there_is_time(gate):
    done: list[str] = []

    def meanwhile() -> None:
        done.append("meanwhile")
        gate.open(GO)

    assert wait(gate.path, lambda: done.append("at leisure"), meanwhile) == GO
    assert wait(gate.path, lambda: done.append("at leisure"), meanwhile) == GO
    assert done == ["meanwhile"]


def test_a_signal_does_not_open_it(gate):
    """A handler runs, and the wait goes on."""
    came: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: came.append(number))

    def interrupt_and_open() -> None:  # in this order: afterwards nobody handles the signal
        os.kill(os.getpid(), signal.SIGUSR1)
        gate.open(GO)

    def at_leisure() -> None:
        os.kill(os.getpid(), signal.SIGUSR1)
        threading.Timer(0.05, interrupt_and_open).start()

    try:
        assert wait(gate.path, at_leisure) == GO
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert came


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"set_name": 3}', "[" * 100_000])
def test_what_is_no_word_is_refused(gate, text):
    gate.open(GO)
    gate.path.with_name(WORD).write_text(text)
    with pytest.raises(ValueError, match=r"it|its|no object|Expecting"):
        wait(gate.path, lambda: None)


def test_where_there_is_none(tmp_path):
    with pytest.raises(FileNotFoundError):
        wait(tmp_path / NAME, lambda: None)


def test_a_gate_is_made_once(gate):
    with pytest.raises(FileExistsError):
        Gate(gate.path.parent)


def test_files_are_told_as_they_are(tmp_path):
    path, told = tmp_path / "train.py", tmp_path / "told.json"
    path.write_text("1")
    assert read_files(told) is None
    told.write_text(json.dumps(encode_files([str(path), str(tmp_path / "gone")])))
    assert read_files(told) == {str(path): mark(str(path))}
    path.write_text("12")
    assert read_files(told) != {str(path): mark(str(path))}
    for text in ("[]", '{"a": [1]}', '{"a": "b"}'):
        told.write_text(text)
        with pytest.raises(ValueError, match=r"no object|says"):
            read_files(told)
