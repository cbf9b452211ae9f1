"""Real, good files, written by the product: what mutation starts from."""

from __future__ import annotations

import functools
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.core import events as ev
from holdfast.core.event_json import encode
from holdfast.core.exits import Exit, RankReport
from holdfast.core.notices.board import Notice, NoticeAction
from holdfast.core.save import events as news
from holdfast.journal.attempts import AttemptEnd, create_attempt, end_attempt
from holdfast.journal.control import request
from holdfast.journal.layout import (
    CONTROLLER_RANK,
    HEADER_BYTES,
    RECORD_BYTES,
    Flag,
    Identity,
    Kind,
    NoteType,
    Word,
)
from holdfast.journal.lease import acquire
from holdfast.journal.store import RunFolder, RunStore
from holdfast.journal.writer import JournalWriter
from holdfast.session.crash import write_report
from holdfast.snapshot.retention import pin
from holdfast.snapshot.sets import commit, set_name
from holdfast.snapshot.shard import write_shard
from holdfast.snapshot.staging import Staging

S = 1_000_000_000
RUN = "run"
RANKS = 2
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
STATE: dict[str, Any] = {
    "w": np.arange(24, dtype=np.float32).reshape(4, 6),
    "words": "text", "raw": b"bytes", "big": 2**70, "nan": float("nan"),
    "tree": [1, 2.5, None, True, (1, 2), {"0": 1, 0: 2}],
    "day": np.array(["2026-01-01"], "M8[D]"),
    "record": np.zeros(3, [("a", "<i4"), ("b", "<f8", (2,))]),
}  # fmt: skip


def fuzz_folder() -> Path:
    """A fresh folder in memory: readers sync nothing, and a disk would only slow them down."""
    base = os.environ.get("FUZZ_FOLDER") or MEMORY
    return Path(tempfile.mkdtemp(prefix="holdfast-fuzz-", dir=base))


@functools.cache
def good_run() -> Path:
    """A store with one run that has everything a store can hold. Read only: copy it to change it.

    Whoever asks for it first removes its folder in the end (`conftest`, `campaign`).
    """
    root = fuzz_folder()
    make_run(root / "store")
    return root / "store"


def make_run(root: Path) -> RunFolder:
    """A run of two ranks and two attempts: the first failed, the second is under way."""
    folder = RunStore.at(root).create(RUN, command=("python", "train.py"))
    lease = acquire(folder)
    lease.renew()
    controller = _journal(folder.journal_dir / "controller-000001.hfj", 1, CONTROLLER_RANK)
    for fact in _facts():
        controller.note(NoteType.FACT, fact)
    for event in events():
        controller.note(NoteType.INPUT, encode(event))
    controller.record(30 * S, Kind.PROGRESS, 1, 3, 0)
    controller.seen()
    _close(controller)
    for attempt in (0, 1):
        _attempt(folder, attempt, lease.epoch)
    _save(folder, 0, 3, done=True)
    _save(folder, 1, 4, done=True)
    _save(folder, 1, 5, done=False)
    pin(folder.pins_path, "best", set_name(0, 3))
    (folder.ckpt_dir / set_name(1, 6)).mkdir()
    request(folder, "save", tag="good")
    request(folder, "stop", grace_s=5)
    return folder


def _attempt(folder: RunFolder, attempt: int, epoch: int) -> None:
    create_attempt(
        folder,
        attempt,
        parent=None if attempt == 0 else 0,
        resume_step=0 if attempt == 0 else 3,
        restore_set=None if attempt == 0 else set_name(0, 3),
        epoch=epoch,
        ranks=RANKS,
        command=("python", "train.py"),
    )
    for rank in range(RANKS):
        name = f"rank-{rank:05d}"
        writer = _journal(folder.attempt_journal_dir(attempt) / f"{name}.hfj", attempt, rank)
        _steps(writer, attempt)
        _close(writer)
        (folder.logs_dir(attempt) / f"{name}.log").write_text("a line\n" * 3)
        write_report(folder.ranks_dir(attempt) / f"{name}.json", REPORT)
    write_report(folder.ranks_dir(attempt) / "keep.json", {"last": 2, "every": None})
    (folder.incidents_dir(attempt) / "incident.json").write_text(
        '{"attempt": 0, "cause": "failed", "words": "it broke", "rank": 0, "exits": [1, -15],'
        ' "last_lines": ["boom"], "traceback": "Traceback"}'
    )
    if attempt == 0:
        end_attempt(folder, 0, AttemptEnd("failed", "it broke", (1, -15), 40 * S))


REPORT = {"type": "ValueError", "message": "no", "where": "a.py:1", "traceback": "Traceback"}


def _journal(path: Path, attempt: int, rank: int) -> JournalWriter:
    path.parent.mkdir(parents=True, exist_ok=True)
    identity = Identity(RUN, attempt, f"{attempt}-{rank}", 0, "host", rank, "boot")
    return JournalWriter.create(path, identity)


def _steps(writer: JournalWriter, attempt: int) -> None:
    base = (10 + 50 * attempt) * S
    writer.record_restore(base, base + S, 3 * attempt, None if attempt == 0 else 0)
    writer.append(base + S, Kind.STEP_BEGIN, 0, 0, 1 + 3 * attempt, 0)
    writer.record_span("compile", base + S, base + 2 * S)
    for step in range(1 + 3 * attempt, 5 + 3 * attempt):
        start = base + step * S
        writer.append(start + S, Kind.STEP, Flag.CONTINUES, 7, step, start)
        writer.record(start + S, Kind.COMPLETE, step=step)
    writer.record_span("evaluation", base + 9 * S, base + 10 * S)
    writer.open_span("data")


def _close(writer: JournalWriter) -> None:
    """Close it, and give the unused rest of its chunk back: small seeds mutate best."""
    count, path = writer.page.load(Word.COUNT), writer.path
    writer.close()
    assert path is not None
    os.truncate(path, HEADER_BYTES + count * RECORD_BYTES)


def _facts() -> list[dict[str, Any]]:
    return [
        {"fact": "run", "name": RUN, "requested_ns": 1 * S, "chips": 8},
        {"fact": "attempt_start", "attempt": 0, "at_ns": 9 * S},
        {"fact": "fault", "attempt": 0, "at_ns": 30 * S, "detected_ns": 31 * S, "cause": "failed"},
        {"fact": "attempt_end", "attempt": 0, "at_ns": 40 * S, "cause": "failed"},
        {"fact": "wait", "kind": "backoff", "start_ns": 41 * S, "end_ns": 44 * S},
        {"fact": "attempt_start", "attempt": 1, "at_ns": 59 * S},
        {"fact": "announced", "at_ns": 60 * S, "events": [
            {"words": "gce: terminate", "since_ns": 60 * S, "deadline_ns": 91 * S}]},
        {"fact": "notice", "at_ns": 61 * S, "deadline_ns": 91 * S, "source": "SIGTERM"},
        {"fact": "capacity", "at_ns": 62 * S, "chips": 6},
        {"fact": "run_end", "at_ns": 90 * S},
    ]  # fmt: skip


def events() -> list[ev.Event]:
    """One of each shape of the controller's inputs."""
    report = RankReport("ValueError", "no", "a.py:1", "Traceback")
    ended = Exit(1, None, False, False, True, report, False, False)
    return [
        ev.Opened(1 * S, 0),
        ev.Chosen(2 * S, ev.Resume(None, 0, None), "starting from scratch (no checkpoint yet)"),
        ev.Launched(9 * S, 0),
        ev.Joined(10 * S, 0, 0),
        ev.Joined(10 * S, 0, 1),
        ev.Heard(20 * S, 0, news.Snapped(20 * S, 0, 1, 3)),
        ev.RankExited(30 * S, 0, 0, 29 * S, ended),
        ev.TreeGone(40 * S, 0),
        ev.StopAsked(41 * S, "SIGTERM", 91 * S, notice=True),
        ev.Noticed(41 * S, Notice("gce", NoticeAction.TERMINATE, 41 * S, lead_ns=30 * S)),
        ev.TimerFired(44 * S, "back_off"),
    ]


def _save(folder: RunFolder, attempt: int, step: int, *, done: bool) -> None:
    place = folder.ckpt_dir / set_name(attempt, step)
    for rank in range(RANKS):
        captured = Staging().capture({"state": STATE, "rng": {"seed": np.arange(3)}}, rank, RANKS)
        write_shard(place, captured, attempt=attempt, step=step, rank=rank, world_size=RANKS)
        captured.release()
    if done:
        commit(place, RANKS)


def history_lines() -> bytes:
    """A history with every event in it."""
    lines = (
        '{"event": "run", "name": "r", "requested": 0, "ended": null, "chips": 8}',
        '{"event": "attempt", "attempt": 0, "start": 1.5, "end": 20, "cause": "failed"}',
        '{"event": "restore", "attempt": 0, "start": 2, "end": 3, "step": 0}',
        '{"event": "span", "attempt": 0, "kind": "compile", "start": 3, "end": 4.000000001}',
        '{"event": "span", "attempt": 0, "kind": "data", "start": 4.0, "end": 4.5}',
        '{"event": "step", "attempt": 0, "step": 1, "start": 5.0, "end": 6.25}',
        '{"event": "steps", "attempt": 0, "first": 2, "last": 9, "start": 6.25, "end": 1.4e1}',
        '{"event": "step", "attempt": 0, "step": 10, "start": 14.0, "end": null}',
        '{"event": "fault", "attempt": 0, "at": 15, "detected": 16, "cause": "hang"}',
        '{"event": "wait", "kind": "backoff", "start": 21, "end": 22}',
        '{"event": "attempt", "attempt": 1, "start": 25, "end": null, "cause": null}',
        '{"event": "restore", "attempt": 1, "start": 26, "end": 27, "step": 5, "from": 0}',
        '{"event": "step", "attempt": 1, "step": 6, "start": 27.0, "end": 28.0}',
        '{"event": "span", "attempt": 1, "kind": "custom:evaluation", "start": 28, "end": null}',
        '{"event": "notice", "at": 29, "deadline": 59, "source": "SIGTERM"}',
        '{"event": "capacity", "at": 29.5, "chips": 6}',
        '{"event": "seen", "at": 30}',
    )
    return "\n".join(lines).encode() + b"\n"
