"""What of a run is read into memory, and what becomes of a disk that does not answer."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.agent import preload as module
from holdfast.agent.preload import (
    ReadAhead,
    checkpoint_asked,
    data_asked,
    packages_asked,
    parse_part,
    shards_of,
)
from holdfast.core.preloaded import PreloadedPart, in_order_of_need, most_bytes
from holdfast.journal.learned_imports import (
    FILE,
    ImportsKeeper,
    LearnedImports,
    learned_imports,
    parse,
)
from holdfast.journal.store import RunFolder, RunStore

LEARNED = LearnedImports((("a", "/x/a.py"), ("sys", None)), ("/x/b.so",))


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunStore.at(str(tmp_path / "store")).create("lm")


def test_half_of_what_is_free_and_no_more_than_asked() -> None:
    assert most_bytes(1000) == (500, "half of the 1,000 bytes of memory that is free")
    assert most_bytes(1000, 300) == (300, "as was asked")
    assert most_bytes(1000, 501)[0] == 500
    assert most_bytes(0)[0] == 0


def test_imports_then_the_checkpoint_then_data() -> None:
    parts = [{"what": what} for what in ("data", "checkpoint", "packages")]
    assert [one["what"] for one in in_order_of_need(parts)] == ["packages", "checkpoint", "data"]


def test_what_is_learned_comes_before_what_is_guessed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import numpy")
    argv = ["python", "train.py"]
    guessed = packages_asked(None, argv, str(tmp_path))
    learned = packages_asked(LEARNED, argv, str(tmp_path))
    assert guessed is not None
    assert guessed["guessed"] == ["numpy"]
    assert learned is not None
    assert learned["modules"] == LEARNED.modules
    assert packages_asked(None, [], str(tmp_path)) is None


def test_a_ranks_list_is_kept_once_it_has_trained(folder: RunFolder, tmp_path: Path) -> None:
    local = tmp_path / "imports-rank-00000.json"
    keep = ImportsKeeper(folder, local)
    keep()
    local.write_text(json.dumps({"format": 1, "restores": False, "guessed": ["numpy"]}))
    keep()
    assert learned_imports(folder) is None
    said = {"format": 1, "restores": True, "modules": LEARNED.modules, "mapped": LEARNED.mapped}
    local.write_text(json.dumps(said))
    keep()
    assert learned_imports(folder) == LEARNED
    (folder.path / FILE).unlink()
    keep()  # nothing is new
    assert learned_imports(folder) is None


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{}", "[[", '{"format": 2, "modules": []}', '{"format": 1, "modules": 3}',
        '{"format": 1, "modules": [["a"]]}', '{"format": 1, "modules": [["a", 3]]}',
        '{"format": 1, "modules": [], "mapped": [{}]}', '{"format": 1, "modules": [], "mapped": 1}',
    ],
)  # fmt: skip
def test_a_list_that_is_none(text: str) -> None:
    assert parse(text.encode()) is None


def test_a_run_without_a_checkpoint_says_so(folder: RunFolder) -> None:
    asked, why = checkpoint_asked(folder, (0,), 1)
    assert asked is None
    assert why == "there is no checkpoint yet"


def test_shards_that_a_rank_reads() -> None:
    """Its own, and the one that holds what all have alike; of slices its own."""

    class Stored:
        def __init__(self, *ranks: int, is_own: bool = False) -> None:
            self.ranks, self.is_own = ranks, is_own

        def copy_of(self, rank: int) -> list[tuple[int, None]]:
            return [(one, None) for one in self.ranks if not self.is_own or one == rank]

    arrays = {"own": Stored(0, 1, 2, is_own=True), "alike": Stored(2), "cut": Stored(0, 1, 2)}
    manifest: Any = SimpleNamespace(arrays=arrays)
    assert shards_of(manifest, (0,)) == [0, 2]
    assert shards_of(manifest, (1, 2)) == [1, 2]


def test_in_words() -> None:
    part = PreloadedPart("packages", 1200, 412_000_000, 398_000_000, 2_100_000_000)
    assert part.words == "packages: 1,200 files, 412 MB (398 MB of it from disk) in 2.1 s"
    assert "none of it from disk" in replace(part, from_disk=0).words
    assert "disk" not in replace(part, from_disk=None).words
    assert replace(part, files=1, is_cut=True).words.startswith("packages: 1 file, the first 412")
    odd = replace(part, missing=3, unread=2, why="/x: Permission denied").words
    assert odd.endswith("; 3 not on this host; 2 unreadable (/x: Permission denied)")


def preload(tmp_path: Path, **more: object) -> ReadAhead:
    (tmp_path / "data").write_bytes(b"x" * 3_000_000)
    asked = [data_asked([str(tmp_path / "data")], 2_000_000)]
    found = ReadAhead(asked, 1 << 30, [sys.executable, "t.py"], dict(os.environ))
    for name, value in more.items():
        setattr(found, name, value)
    return found


@pytest.mark.contract("page cache: files are read ahead by a process of its own")
def test_a_process_reads_and_tells(tmp_path: Path) -> None:
    process = preload(tmp_path)
    heard: list[PreloadedPart] = []
    (part,) = process.run(60, heard.append)
    assert not process.trouble
    assert (part.files, part.nbytes, part.is_cut) == (1, 2_000_000, True)
    assert heard[-1] == part


@pytest.mark.real
def test_a_disk_that_does_not_answer_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "hangs.py"
    said = dict.fromkeys(("nbytes", "files", "took_ns", "missing", "unread", "from_disk"), 0)
    said |= {"what": "data", "why": "", "is_cut": False, "at": "/slow/file"}
    program.write_text(
        f"import time\nwhile True: print({json.dumps(said)!r}, flush=True); time.sleep(0.01)"
    )
    monkeypatch.setattr(module, "PROGRAM", program)
    monkeypatch.setattr(module, "STUCK_S", 0.3)
    process = preload(tmp_path)
    process.run(60)
    assert process.trouble == (
        "the rest was left: nothing of /slow/file came within 0.3 s; does its disk answer?"
    )
    process = preload(tmp_path)
    process.run(0.1)
    assert process.trouble == "the rest was left: it took too long"


@pytest.mark.real
def test_no_interpreter_and_rubbish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert preload(tmp_path, _python="/no/python").run(60) == []
    process = preload(tmp_path, _python="/no/python")
    process.run(60)
    assert process.trouble == "/no/python cannot be started (No such file or directory)"
    program = tmp_path / "rubbish.py"
    program.write_text("print('[')")
    monkeypatch.setattr(module, "PROGRAM", program)
    process = preload(tmp_path)
    process.run(60)
    assert process.trouble.startswith("what the reading process says is nothing")


def test_what_a_process_says_that_is_not_ours() -> None:
    with pytest.raises(KeyError):
        parse_part({"what": "data"})
