"""How long the report and the page of a run of many hosts take: made-up journals, one rank a host.

python bench/hosts_page.py [--hosts 1000] [--steps 10000]
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

from holdfast import __version__
from holdfast.cli.report_page import look, source_of
from holdfast.journal.attempts import create_attempt
from holdfast.journal.clocks import now_ns
from holdfast.journal.layout import (
    CONTROLLER_RANK,
    HEADER_BYTES,
    PAGE_BYTES,
    RECORD_BYTES,
    WORD_BYTES,
    Flag,
    Identity,
    Kind,
    NoteType,
    Word,
)
from holdfast.journal.recorded import load_run
from holdfast.journal.store import RunFolder, RunStore
from holdfast.journal.writer import JournalWriter
from holdfast.report.document import document
from holdfast.report.of_run import findings_of
from holdfast.report.run_page import run_page

STEP_NS = 10_000_000
TIMES = 3


def journal(path: Path, rank: int, host: int) -> JournalWriter:
    path.parent.mkdir(parents=True, exist_ok=True)
    boot = f"boot-{host}"
    identity = Identity("big", 0, f"{rank}", 0, f"host-{host}", rank, boot)
    return JournalWriter.create(path, identity)


def made(folder: RunFolder, hosts: int, steps: int) -> None:
    """Its journals: the first rank's records are all ranks'."""
    begin_ns = now_ns() - (steps + 1000) * STEP_NS  # all of them lie in the past
    controller = journal(folder.journal_dir / "controller-000001.hfj", CONTROLLER_RANK, 0)

    def fact(what: str, **fields: object) -> None:
        controller.note(NoteType.FACT, {"fact": what, **fields})

    fact("run", name="big", requested_ns=begin_ns, chips=hosts)
    for host in range(hosts):
        stands = {"host": host, "state": "assigned", "slot": host, "slice": ""}
        clock = {"boot": f"boot-{host}", "offset_ns": 0, "error_ns": 1000, "ahead_ns": 0}
        fact("host", at_ns=begin_ns, **stands, **clock)
    fact("parts", at_ns=begin_ns, attempt=0, parts=[[n, n, n] for n in range(hosts)])
    fact("attempt_start", attempt=0, at_ns=begin_ns)
    create_attempt(folder, 0, parent=None, resume_step=0, restore_set=None, ranks=hosts)
    records = b""
    for rank in range(hosts):
        path = folder.attempt_journal_dir(0) / f"rank-{rank:05d}.hfj"
        writer = journal(path, rank, rank)
        if not rank:
            for step in range(1, steps + 1):
                at_ns = begin_ns + step * STEP_NS
                writer.append(at_ns, Kind.STEP, Flag.CONTINUES, 0, step, at_ns - STEP_NS)
        writer.close()
        with path.open("r+b") as file:
            if not rank:
                file.seek(HEADER_BYTES)
                records = file.read(steps * RECORD_BYTES)
                continue
            file.seek(PAGE_BYTES + WORD_BYTES * Word.COUNT)
            file.write(steps.to_bytes(WORD_BYTES, "little"))
            file.seek(HEADER_BYTES)
            file.write(records)
    controller.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=10_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = RunStore(Path(place)).create("big")
        made(folder, asked.hosts, asked.steps)
        took: dict[str, list[float]] = {"journals": [], "report": [], "page": []}
        for _ in range(TIMES):
            at = time.perf_counter()
            recorded = load_run(folder.path)
            read = time.perf_counter()
            account = recorded.account()
            findings = findings_of(folder, recorded, account)
            document(findings)
            told = time.perf_counter()
            view = look(findings, source_of(recorded, account.end_ns, findings, None), None, None)
            run_page(view, findings.checkpoints, __version__)
            drawn = time.perf_counter()
            took["journals"].append(read - at)
            took["report"].append(told - read)
            took["page"].append(drawn - told)
        kept = account.steps_kept
    print(f"{asked.hosts} hosts, {asked.steps} steps ({kept} kept); load {os.getloadavg()[0]:.1f}")
    for what, each in took.items():
        print(f"{what:9} {statistics.median(each):.2f} s ({min(each):.2f} to {max(each):.2f})")


if __name__ == "__main__":
    main()
