"""Readers of journals: of a file, of its words, of a whole run's; and of what is replayed."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path

from fuzz_mutate import mutate_bytes, mutate_json, mutate_lines
from fuzz_seeds import RUN, S, events, good_run
from fuzz_target import Target, documented, put, sayable

from holdfast.agent.ranks import RankPages
from holdfast.controller.replay import decided, difference, inputs, recorded
from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.event_json import decode, encode
from holdfast.core.history.line import to_lines
from holdfast.core.history.text import parse_text
from holdfast.core.hosts.messages import decode_report, encode_report
from holdfast.core.hosts.order import HostOrder
from holdfast.core.hosts.placement import Placement
from holdfast.core.hosts.reader import ReportReader
from holdfast.core.hosts.report import HostReport
from holdfast.core.run.machine import RunMachine, RunPolicy
from holdfast.core.save import word
from holdfast.errors import JournalError
from holdfast.journal.layout import (
    HEADER_BYTES,
    IDENTITY_OFFSET,
    PAGE_BYTES,
    WORD_BYTES,
    Identity,
)
from holdfast.journal.rank_page import RankPage
from holdfast.journal.reader import JournalReader, read_journal
from holdfast.journal.recorded import export_facts, load_run
from holdfast.journal.replicate import Replicator
from holdfast.journal.sidecar import read_sidecar

_RANK = f"{RUN}/attempts/0000/journal/rank-00000.hfj"
_CONTROLLER = f"{RUN}/journal/controller-000001.hfj"
_TEXT = f"{RUN}/journal/controller-000001.jsonl"
_FILES = (_RANK, _CONTROLLER, _RANK.replace(".hfj", ".jsonl"), _TEXT)


def good(name: str) -> bytes:
    """A file of the good run."""
    return (good_run() / name).read_bytes()


def _read_file(data: bytes, place: Path) -> None:
    path = put(place / "a.hfj", data)
    with documented():
        with JournalReader(path) as reader:
            sayable(repr(reader.identity))
            reader.values()
            reader.clocks()
            reader.read_new(0)
            reader.read_new(reader.count() // 2)
        read_journal(path)
    with documented():
        page = RankPage.open(path)
        page.snapshot()
        page.detach()
    with documented():
        replicator = Replicator(path, put(place / "copy.hfj", data[: len(data) // 2]))
        try:
            replicator.sync()
            replicator.sync()
        finally:
            replicator.close()


def _read_identity(data: bytes, place: Path) -> None:
    del place
    with documented(ValueError):
        identity = Identity.from_json(data)
        assert 0 <= identity.attempt < 2**31
        assert -1 <= identity.rank < 2**31
        sayable(repr(identity))
        identity.to_json()


def _read_text(data: bytes, place: Path) -> None:
    path = put(place / "a.jsonl", data)
    lines, end = read_sidecar(path)
    assert end <= len(data)
    assert read_sidecar(path, end) == ([], end)
    for line in lines:
        assert 0 <= line.offset < len(data)


def account_of(root: Path) -> None:
    """All that a report makes of a run's journals."""
    with documented():
        recorded = load_run(root)
        recorded.refresh()
        for note in recorded.notes():
            sayable(note)
        try:
            account = recorded.account(100 * S)
        except JournalError:
            return
        for one in (account, recorded.account(100 * S, 20 * S)):
            said = one.to_json()
            sayable(json.dumps(said))
            parts = [said["productive_s"], *said["badput_s"].values()]
            assert min(parts) >= 0
            assert math.isclose(sum(parts), said["elapsed_s"], rel_tol=1e-6, abs_tol=1e-6)
        text = list(to_lines(export_facts(recorded)))
        assert text
        sayable("".join(text))
        parse_text("".join(text))


def _read_run(data: bytes, place: Path) -> None:
    """The first byte says which of the run's files the others replace."""
    which = data[0] % len(_FILES) if data else 0
    for number, name in enumerate(_FILES):
        put(place / name, data[1:] if number == which else good(name))
    account_of(place / RUN)


def _run_seeds() -> list[bytes]:
    return [bytes([number]) + good(name) for number, name in enumerate(_FILES)]


def _read_records(data: bytes, place: Path) -> None:
    """A good header, and these bytes as the records of one rank."""
    path = place / _RANK
    count = len(data) // 32
    header = bytearray(good(_RANK)[:HEADER_BYTES])
    header[PAGE_BYTES : PAGE_BYTES + WORD_BYTES] = struct.pack("<Q", count)
    put(path, bytes(header) + data)
    account_of(place / RUN)


def _page(data: bytes) -> bytes:
    """A good header page and a words page on which (index, value) pairs are stored."""
    header = bytearray(good(_RANK)[:HEADER_BYTES])
    for at in range(0, len(data) - 9, 10):
        index, value = struct.unpack_from("<HQ", data, at)
        struct.pack_into("<Q", header, PAGE_BYTES + WORD_BYTES * (index % 512), value)
    return bytes(header)


def _read_words(data: bytes, place: Path) -> None:
    """A rank's page as its agent reports it, again and again, and what the machine makes of it."""
    path = place / "rank-00000.hfj"
    pages = RankPages(0, 0, {0: path})
    report, reader, order = HostReport(), ReportReader(1, grace_ns=0), HostOrder()
    resume = ev.Resume(None, 0, None)
    order.want(act.Launch(0, resume, Placement((0,))))
    reader.ordered(order, 0)
    report.begin(0, 0, 1)
    report.note(ev.Launched(3, 0))
    report.number = 1
    machine = RunMachine(RunPolicy(ranks=1))
    begin = [ev.Opened(1, 0), ev.Chosen(2, resume, "first")]
    for event in [*begin, *reader.read(0, report, 3, 0)]:
        machine.handle(event)
    cut = len(data) // 20 * 10
    for turn, part in enumerate((data[:cut], data[cut:])):
        put(path, _page(part))
        report.ranks = pages.read(with_progress=True)
        report.number += 1
        told = decode_report(json.loads(json.dumps(encode_report(report))))
        for event in reader.read(0, told, 10 + turn, 0):
            for action in machine.handle(event):
                for said in (action, getattr(action, "what", None)):
                    if hasattr(said, "epoch") and hasattr(said, "flags"):
                        word.pack(said.epoch, said.step, said.flags)
        pages.phase(0)
    for event in (ev.SaveAsked(20, "a test"), ev.StopAsked(21, "a test", 10**10, notice=True)):
        for action in machine.handle(event):
            said = getattr(action, "what", action)
            if hasattr(said, "epoch") and hasattr(said, "flags"):
                word.pack(said.epoch, said.step, said.flags)
    pages.close()


def _word_seeds() -> list[bytes]:
    pairs = [(0, 3), (2, 5), (3, 10 * S), (7, 1), (8, 1 << 48 | 5), (9, 1 << 48 | 5), (15, 1),
             (11, 1), (13, 1000), (32, 4), (33, 10 * S)]  # fmt: skip
    return [b"".join(struct.pack("<HQ", *pair) for pair in pairs * 2)]


def _read_word(data: bytes, place: Path) -> None:
    del place
    value = int.from_bytes(data[:8], "little")
    agreed = word.unpack(value)
    assert word.pack(agreed.epoch, agreed.step, agreed.flags) == value


def _read_event(data: bytes, place: Path) -> None:
    """What `inputs` reads from a line of a controller's sidecar."""
    del place
    try:
        said = json.loads(data)
    except (ValueError, RecursionError):
        return
    if isinstance(said, dict):
        with documented(KeyError, ValueError):
            event = decode(said)
            encode(event)


def _read_replay(data: bytes, place: Path) -> None:
    put(place / "a.hfj", good(_CONTROLLER))
    put(place / "a.jsonl", data)
    with documented(KeyError, ValueError):
        list(inputs(read_journal(place / "a.hfj")))
    with documented(KeyError, ValueError):
        decided(read_journal(place / "a.hfj"))
    with documented(JournalError):
        difference(recorded(read_journal(place / "a.hfj")))


def _identity_seeds() -> list[bytes]:
    data = good(_RANK)
    length = struct.unpack_from("<Q", data, IDENTITY_OFFSET)[0]
    start = IDENTITY_OFFSET + WORD_BYTES
    return [data[start : start + length]]


def _event_seeds() -> list[bytes]:
    return [json.dumps(encode(event)).encode() for event in events()]


TARGETS = [
    Target("journal_file", _read_file, lambda: [good(_RANK), good(_CONTROLLER)], mutate_bytes),
    Target("identity", _read_identity, _identity_seeds, mutate_json),
    Target("sidecar", _read_text, lambda: [good(_TEXT)], mutate_lines),
    Target("run_journals", _read_run, _run_seeds, mutate_bytes),
    Target("facts", _read_run, lambda: [b"\x03" + good(_TEXT)],
           lambda rng, data: data[:1] + mutate_lines(rng, data[1:])),
    Target("records", _read_records, lambda: [good(_RANK)[HEADER_BYTES:]], mutate_bytes),
    Target("rank_words", _read_words, _word_seeds, mutate_bytes),
    Target("agreement_word", _read_word, lambda: [bytes(range(8))], mutate_bytes),
    Target("event", _read_event, _event_seeds, mutate_json),
    Target("replay", _read_replay, lambda: [good(_TEXT)], mutate_lines),
]  # fmt: skip
