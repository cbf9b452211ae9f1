"""Whole files or none, and one sentence for every way a disk says no."""

from __future__ import annotations

import json
import multiprocessing as mp
import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.errors import StoreUnavailable
from holdfast.journal.atomic import (
    create_exclusive,
    encode_json,
    make_folder,
    read_json,
    unavailable,
    write_atomic,
)


def in_own_mounts(script: str, folder: Path) -> str:
    """Run `script` where `mount` affects nobody else; skips where that is not allowed."""
    probe = ["unshare", "--mount", "--map-root-user", "mount", "-t", "tmpfs", "none", str(folder)]
    try:
        allowed = subprocess.run(probe, capture_output=True, timeout=120).returncode == 0
    except FileNotFoundError:
        allowed = False
    if not allowed:
        pytest.skip("this user may not make mounts of its own")
    done = subprocess.run(
        ["unshare", "--mount", "--map-root-user", sys.executable, "-c", script, str(folder)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_write_replaces_whole_files_and_leaves_no_drafts(tmp_path: Path) -> None:
    path = tmp_path / "pins.json"
    write_atomic(path, b"one")
    write_atomic(path, b"two")
    assert path.read_bytes() == b"two"
    assert names_in(tmp_path) == ["pins.json"]
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.contract("store: a file is there whole or not at all")
def test_a_reader_never_sees_a_part(tmp_path: Path) -> None:
    path = tmp_path / "x"
    versions = {bytes([65 + i]) * 100_000 for i in range(4)}
    write_atomic(path, min(versions))
    writer = mp.get_context("fork").Process(target=_rewrite, args=(path, sorted(versions)))
    writer.start()
    reads = 0
    while writer.is_alive() or reads == 0:
        assert path.read_bytes() in versions
        reads += 1
    writer.join()
    assert writer.exitcode == 0


def _rewrite(path: Path, versions: list[bytes]) -> None:
    for version in versions * 25:
        write_atomic(path, version, durable=False)


@pytest.mark.real
def test_of_many_creators_one_wins_and_all_read_its_content(tmp_path: Path) -> None:
    context = mp.get_context("fork")
    for game in range(10):
        path, gate, results = tmp_path / str(game), context.Barrier(4, timeout=60), context.Queue()
        players = [context.Process(target=_create, args=(path, gate, results, i)) for i in range(4)]
        for player in players:
            player.start()
        answers = [results.get(timeout=60) for _ in players]
        for player in players:
            player.join()
        winners = [i for i, won, _ in answers if won]
        assert len(winners) == 1
        assert {seen for _, _, seen in answers} == {bytes([winners[0]]) * 50_000}
    assert names_in(tmp_path) == [str(game) for game in range(10)]


def _create(path: Path, gate: object, results: object, me: int) -> None:
    gate.wait()
    try:
        create_exclusive(path, bytes([me]) * 50_000)
        won = True
    except FileExistsError:
        won = False
    results.put((me, won, path.read_bytes()))


@pytest.mark.real
def test_a_full_disk_keeps_the_old_content(tmp_path: Path) -> None:
    script = """
import os, subprocess, sys
from pathlib import Path
from holdfast.errors import StoreUnavailable
from holdfast.journal.atomic import create_exclusive, write_atomic
disk = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(disk)], check=True)
write_atomic(disk / "pins.json", b"good")
for call in (write_atomic, create_exclusive):
    try:
        call(disk / ("pins.json" if call is write_atomic else "new"), bytes(200_000))
    except StoreUnavailable as error:
        print(error)
print((disk / "pins.json").read_bytes(), sorted(os.listdir(disk)))
"""
    first, second, third = in_own_mounts(script, tmp_path).splitlines()
    assert first.startswith("cannot write pins.json: no space left on the disk of ")
    assert second.startswith("cannot create new: no space left on the disk of ")
    assert third == "b'good' ['pins.json']"


@pytest.mark.real
def test_a_read_only_store_says_so(tmp_path: Path) -> None:
    script = """
import subprocess, sys
from pathlib import Path
from holdfast.errors import StoreUnavailable
from holdfast.journal.store import RunStore
disk = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "none", str(disk)], check=True)
RunStore(disk).create("old")
# The mount, not the file system: also where another user than root may not change that.
subprocess.run(["mount", "-o", "remount,bind,ro", str(disk)], check=True)
print(RunStore(disk).names())
for name in ("new", "old"):
    try:
        RunStore(disk).open(name)
        print("opened", name)
    except StoreUnavailable as error:
        print(error, error.exit_code)
"""
    names, new, old = in_own_mounts(script, tmp_path).splitlines()
    assert names == "('old',)"
    assert "is read-only; name a store that can be written 69" in new
    assert old == "opened old"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b"\xff\xfe\x00", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b" " * 2_000_000, "larger than"),
    ],
)
def test_rubbish_is_named(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(StoreUnavailable, match=words):
        read_json(path)


def test_json_round_trip_and_absence(tmp_path: Path) -> None:
    value = {"a": [1, None, "ü\n"], "b": {"c": 1.5}}
    create_exclusive(tmp_path / "x", encode_json(value))
    assert read_json(tmp_path / "x") == value == json.loads((tmp_path / "x").read_text())
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "y")


def test_a_file_in_the_way_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailable, match="is a file, not a folder"):
        make_folder(tmp_path / "file" / "store")
    with pytest.raises(StoreUnavailable, match="is a file, not a folder"):
        write_atomic(tmp_path / "file" / "x", b"")


def test_an_error_nobody_thought_of_keeps_its_own_words(tmp_path: Path) -> None:
    words = str(unavailable("write x", tmp_path, OSError(112, "Host is down")))
    assert words.startswith("cannot write x: Host is down (")


def test_an_unexpected_filesystem_without_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*args: object, **kwargs: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", no_links)
    with pytest.raises(StoreUnavailable, match="has no hard links"):
        create_exclusive(tmp_path / "x", b"")
    assert names_in(tmp_path) == []


def test_a_link_whose_answer_was_lost_is_still_a_win(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def repeated(*args: object, **kwargs: object) -> None:
        link(*args, **kwargs)
        link(*args, **kwargs)

    monkeypatch.setattr(os, "link", repeated)
    create_exclusive(tmp_path / "x", b"mine")
    assert (tmp_path / "x").read_bytes() == b"mine"
