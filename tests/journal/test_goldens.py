"""Journals of every format version that was ever released read for ever, and mean the same.

How to make new ones: `tests/goldens/make.py` says so.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest
from plain_ledger import account as plain_account

from holdfast.core.save.word import unpack
from holdfast.journal.layout import VERSION, Word
from holdfast.journal.reader import read_journal
from holdfast.journal.recorded import export_facts, load_run

GOLDENS = Path(__file__).parent.parent / "goldens"
VERSIONS = sorted(path.name for path in GOLDENS.glob("v*"))
S = 1_000_000_000


@pytest.fixture(params=VERSIONS)
def golden(request) -> Path:
    return GOLDENS / request.param


def expected_of(golden: Path) -> dict:
    return json.loads((golden / "expected.json").read_text(encoding="utf-8"))


def test_the_present_version_has_goldens():
    assert f"v{VERSION}" in VERSIONS, "run tests/goldens/make.py and commit what it makes"


def test_every_byte_that_was_meant_is_read(golden):
    files = expected_of(golden)["files"]
    assert sorted(files) == sorted(str(p.relative_to(golden)) for p in golden.rglob("*.hfj"))
    for name, expected in files.items():
        journal = read_journal(golden / name)
        assert asdict(journal.identity) == expected["identity"]
        assert [list(pair) for pair in journal.clocks] == expected["clocks"]
        records = [
            [int(r["time"]), int(r["word"]), int(r["step"]), int(r["value"])]
            for r in journal.records
        ]
        assert records == expected["records"]
        lines = [json.loads(line) for line in expected["sidecar"]]
        assert [line.payload for line in journal.sidecar] == lines
        words = {int(word): value for word, value in expected["words"].items()}
        assert journal.values.count == words.get(Word.COUNT, 0)
        assert journal.values.step == words.get(Word.STEP, 0)
        assert journal.values.phase == words.get(Word.PHASE, 0)
        assert journal.values.durable == unpack(words.get(Word.DURABLE, 0))


def test_the_run_means_what_it_meant(golden):
    expected = expected_of(golden)
    recorded = load_run(golden)
    facts = list(export_facts(recorded))
    told = sorted(({"fact": type(f).__name__} | _fields(f) for f in facts), key=json.dumps)
    assert told == expected["facts"]
    assert recorded.notes() == []
    origin_ns = recorded.facts.requested_ns
    plain = plain_account(facts, 60 * S).to_json()
    ours = recorded.account(origin_ns + 60 * S).to_json()
    for key, value in expected["account"].items():
        assert plain[key] == value, key
        if key not in ("start_s", "end_s", "disruptions"):  # ours has another origin
            assert ours[key] == value, key


def test_a_golden_cut_off_anywhere_still_reads(golden, tmp_path):
    """What a crash of the store's host may leave of a copy."""
    name = "attempts/0000/journal/rank-00000.hfj"
    whole = read_journal(golden / name)
    size = (golden / name).stat().st_size
    for cut in range(8192, size, 13):
        part = tmp_path / "rank-00000.hfj"
        shutil.copy(golden / name, part)
        with part.open("r+b") as file:
            file.truncate(cut)
        records = read_journal(part).records
        assert len(records) == (cut - 8192) // 32
        assert (records == whole.records[: len(records)]).all()


def _fields(fact):
    """Without the notes that a converted history has, and a journal never."""
    return {name: value for name, value in asdict(fact).items() if (name, value) != ("notes", ())}
