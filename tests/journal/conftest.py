from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.journal import writer as writer_module
from holdfast.journal.clocks import ClockPair
from holdfast.journal.layout import Identity
from holdfast.journal.writer import JournalWriter

MakeWriter = Callable[..., JournalWriter]


@pytest.fixture
def make_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeWriter:
    """Makes writers; `clock=(boottime_ns, unix_ns)` stands in for the clocks that it reads."""
    writers: list[JournalWriter] = []

    def make(
        path: str | Path = "rank-00000.hfj",
        *,
        run: str = "run",
        attempt: int = 0,
        rank: int = 0,
        boot: str = "boot-a",
        host: str = "host",
        clock: tuple[int, int] | None = None,
    ) -> JournalWriter:
        path = tmp_path / path
        path.parent.mkdir(parents=True, exist_ok=True)
        identity = Identity(run, attempt, f"{attempt}-{rank}-{boot}", 0, host, rank, boot)
        with monkeypatch.context() as patch:
            if clock is not None:
                patch.setattr(writer_module, "read_clock_pair", lambda: ClockPair(*clock))
            writer = JournalWriter.create(path, identity)
        writers.append(writer)
        return writer

    yield make
    for writer in writers:
        writer.close()
