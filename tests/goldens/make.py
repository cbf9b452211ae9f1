"""Make the golden journals of the present format version: `python tests/goldens/make.py`.

Run it once, when `layout.VERSION` has gone up; commit the new folder beside the old ones and never
change a folder again: it stands for files that are out in the world. What was written is said
twice, in the journals and in `expected.json`, made by plain struct unpacking and the plain ledger.
"""

from __future__ import annotations

import json
import struct
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from unittest.mock import patch

from holdfast.journal import writer as writer_module
from holdfast.journal.clocks import ClockPair
from holdfast.journal.layout import (
    CONTROLLER_RANK,
    HEADER_BYTES,
    PAGE_BYTES,
    VERSION,
    Flag,
    Identity,
    Kind,
    NoteType,
    RankPhase,
    Word,
)
from holdfast.journal.recorded import export_facts, load_run
from holdfast.journal.replicate import Replicator
from holdfast.journal.writer import JournalWriter

sys.path.insert(0, str(Path(__file__).parents[1] / "core" / "ledger"))
from plain_ledger import account

sys.path.pop(0)

S = 1_000_000_000
UNIX_AT_BOOT = 1_767_225_600 * S  # 2026-01-01


def main() -> None:
    root = Path(__file__).parent / f"v{VERSION}"
    if root.exists():
        sys.exit(f"{root} is there already; goldens are never made again")
    root.mkdir()
    with tempfile.TemporaryDirectory() as live:
        write(Path(live), root)
    files = {str(path.relative_to(root)): unpacked(path) for path in sorted(root.rglob("*.hfj"))}
    recorded = load_run(root)
    facts = list(export_facts(recorded))
    result = {
        "files": files,
        "facts": sorted(
            ({"fact": type(fact).__name__} | asdict(fact) for fact in facts), key=json.dumps
        ),
        "account": account(facts, 60 * S).to_json(),
    }
    text = json.dumps(result, indent=1, sort_keys=True, default=list)
    (root / "expected.json").write_text(text + "\n", encoding="utf-8")


def write(live: Path, root: Path) -> None:
    """A run of two ranks: one attempt broken by a crash, one that is done."""
    controller = make(live / "journal/controller-1.hfj", 1, CONTROLLER_RANK, 1)
    fact(controller, "run", name="golden", requested_ns=1 * S, chips=8)
    fact(controller, "attempt_start", attempt=0, at_ns=3 * S)
    first = [
        make(live / f"attempts/0000/journal/rank-0000{rank}.hfj", 0, rank, 4) for rank in (0, 1)
    ]
    for rank, writer in enumerate(first):
        writer.record_restore(4 * S, 5 * S, 0)
        writer.append(5 * S, Kind.STEP_BEGIN, 0, 0, 1, 0)
        writer.record_span("compile", 5 * S, 6 * S)
        steps(writer, 1, 4, 5 * S + rank, 2 * S)
        writer.record_span("evaluation", 11 * S, 12 * S)
        writer.record(13 * S, Kind.COMPLETE, step=4)
    store(first[0], Word.OPEN_SPANS, 4)  # a data span that nobody closed: kind 3, plus 1
    store(first[0], Word.OPEN_SPANS + 1, 13 * S + 5)
    store(first[1], Word.PHASE, RankPhase.FAILING)
    fact(controller, "notice", at_ns=12 * S, deadline_ns=42 * S, source="SIGTERM")
    fact(controller, "fault", attempt=0, at_ns=14 * S, detected_ns=15 * S, cause="failed")
    controller.append(15 * S, Kind.SEEN, 0, 0, 0, 0)
    fact(controller, "attempt_end", attempt=0, at_ns=16 * S, cause="failed")
    fact(controller, "wait", kind="backoff", start_ns=16 * S, end_ns=18 * S)
    controller.note(NoteType.MESSAGE, {"text": "restarting: 1 failure so far, größer"})
    fact(controller, "attempt_start", attempt=1, at_ns=20 * S)
    second = [
        make(live / f"attempts/0001/journal/rank-0000{rank}.hfj", 1, rank, 21) for rank in (0, 1)
    ]
    for rank, writer in enumerate(second):
        writer.record_restore(21 * S, 22 * S, 3, 0)
        writer.append(22 * S, Kind.STEP_BEGIN, 0, 0, 4, 0)
        end = steps(writer, 4, 8, 22 * S + rank, 2 * S)
        writer.record_span("save", end - S, end)
        writer.append(end, Kind.LOOP_END, 0, 0, 8, 0)
        store(writer, Word.PHASE, RankPhase.FINISHED)
        store(writer, Word.DURABLE, 1 << 48 | 8)
    controller.append(33 * S, Kind.PROGRESS, 0, 1, 8, 8)
    fact(controller, "attempt_end", attempt=1, at_ns=34 * S, cause="done")
    fact(controller, "run_end", at_ns=34 * S)
    for writer in (controller, *first, *second):
        assert writer.path is not None
        home = root / writer.path.relative_to(live)
        home.parent.mkdir(parents=True, exist_ok=True)
        Replicator(writer.path, home).sync()
        writer.close()


def make(path: Path, attempt: int, rank: int, boot_s: int) -> JournalWriter:
    path.parent.mkdir(parents=True, exist_ok=True)
    identity = Identity("golden", attempt, f"{attempt}.{rank}", 0, "host-a", rank, "boot-a")
    pair = ClockPair(boot_s * S, UNIX_AT_BOOT + boot_s * S)
    with (
        patch.object(writer_module, "read_clock_pair", lambda: pair),
        patch.object(writer_module, "now_ns", lambda: boot_s * S),
    ):
        writer = JournalWriter.create(path, identity)
    store(writer, Word.OWNER_PID, 4321)
    return writer


def fact(writer: JournalWriter, what: str, /, **payload: object) -> None:
    with patch.object(writer_module, "now_ns", lambda: 2 * S):
        writer.note(NoteType.FACT, {"fact": what, **payload})


def steps(writer: JournalWriter, first: int, last: int, start: int, each: int) -> int:
    for step in range(first, last + 1):
        writer.append(start + each, Kind.STEP, Flag.CONTINUES, 4096, step, start)
        start += each
    store(writer, Word.STEP, last)
    store(writer, Word.STEP_AT, start)
    return start


def store(writer: JournalWriter, word: int, value: int) -> None:
    writer.page.store(word, value)


def unpacked(path: Path) -> dict[str, object]:
    """The file's content by the words of docs/reference/journal.md, and nothing else."""
    data = path.read_bytes()
    (length,) = struct.unpack_from("<Q", data, 64)
    (pairs,) = struct.unpack_from("<Q", data, 2048)
    words = struct.unpack_from("<512Q", data, PAGE_BYTES)
    text = path.with_suffix(".jsonl")
    return {
        "header": struct.unpack_from("<4Q", data, 0),
        "identity": json.loads(data[72 : 72 + length]),
        "clocks": [struct.unpack_from("<2Q", data, 2056 + 16 * n) for n in range(pairs)],
        "words": {str(n): word for n, word in enumerate(words) if word},
        "records": [
            struct.unpack_from("<4Q", data, HEADER_BYTES + 32 * n) for n in range(words[0])
        ],
        "sidecar": text.read_text(encoding="utf-8").splitlines() if text.exists() else [],
    }


if __name__ == "__main__":
    main()
