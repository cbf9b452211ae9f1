"""What is read into the page cache, in which order, and how much; what cannot be read is told."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast.standby import warm
from holdfast.standby.warm import FilesPart, files_below, guessed_files, learned_files, parts_of

SITE = "/env/lib/python3/site-packages"
ENOUGH = 1 << 40


def file(folder: Path, name: str, size_bytes: int) -> tuple[str]:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size_bytes)
    return (str(path),)


def read(files: Iterable[Sequence[str]], most_bytes: int = ENOUGH, **more: Any) -> FilesPart:
    part = FilesPart("data", files, most_bytes, **more)
    part.work()
    return part


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Small pieces; each that is read, as the file's name and from where."""
    found: list[tuple[str, int]] = []
    monkeypatch.setattr(warm, "PIECE_BYTES", 100)
    monkeypatch.setattr(warm, "BLOCK_BYTES", 100)
    plain = FilesPart._block

    def spied(self: FilesPart, descriptor: int, start: int, view: memoryview) -> None:
        found.append((Path(f"/proc/self/fd/{descriptor}").readlink().name, start))
        plain(self, descriptor, start, view)

    monkeypatch.setattr(FilesPart, "_block", spied)
    return found


def test_one_file_after_the_other(tmp_path: Path, blocks: list[tuple[str, int]]) -> None:
    part = read([file(tmp_path, "b", 250), file(tmp_path, "a", 10)])
    assert blocks == [("b", 0), ("b", 100), ("b", 200), ("a", 0)]
    assert (part.files, part.nbytes, part.is_cut) == (2, 260, False)


def test_shards_are_read_side_by_side(tmp_path: Path, blocks: list[tuple[str, int]]) -> None:
    read([file(tmp_path, "b", 250), file(tmp_path, "a", 150)], in_turn=True)
    assert blocks == [("b", 0), ("a", 0), ("b", 100), ("a", 100), ("b", 200)]


@pytest.mark.parametrize(
    ("most_bytes", "expected"), [(0, 0), (1, 1), (99, 99), (100, 100), (260, 260), (300, 260)]
)
def test_no_byte_beyond_the_bound(
    tmp_path: Path, blocks: list[tuple[str, int]], most_bytes: int, expected: int
) -> None:
    part = read([file(tmp_path, "b", 250), file(tmp_path, "a", 10)], most_bytes)
    assert part.nbytes == expected
    assert part.is_cut == (most_bytes < 260)
    assert bool(blocks) == (expected > 0)


def test_a_part_has_what_those_before_it_leave(tmp_path: Path) -> None:
    places = [file(tmp_path, name, 100)[0] for name in "abc"]
    asked = {
        "most_bytes": 230,
        "parts": [
            {"what": "packages", "files": places[:1]},
            {"what": "data", "files": places[1:2], "most_bytes": 30},
            {"what": "checkpoint", "files": places[2:]},
        ],
    }
    found = []
    for part in parts_of(asked):
        part.work()
        found.append((part.what, part.nbytes, part.is_cut))
    assert found == [("packages", 100, False), ("data", 30, True), ("checkpoint", 100, False)]


def test_what_cannot_be_read_is_counted_and_one_of_it_told(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    strange = [(str(tmp_path / "pipe"),), ("/dev/zero",), ("/proc/self/maps",), (str(tmp_path),)]
    part = read([*strange, (str(tmp_path / "gone"),), ("no\0path",), file(tmp_path, "good", 5)])
    assert (part.files, part.nbytes) == (1, 5)
    assert (part.missing, part.unread) == (1, 5)
    assert part.why.startswith(str(tmp_path / "pipe"))


def test_what_an_import_reads_of_a_module_is_its_bytecode(tmp_path: Path) -> None:
    source = tmp_path / "a.py"
    source.write_text("x = 1")
    cached = Path(importlib.util.cache_from_source(str(source)))
    (paths,) = learned_files([("a", str(source))], [])
    assert read([paths]).nbytes == 5
    cached.parent.mkdir()
    cached.write_bytes(b"bytecode")
    assert read([paths]).nbytes == 8


def test_libraries_come_with_the_first_module_of_their_package() -> None:
    modules = [("os", "/usr/os.py"), ("sys", None), ("np", f"{SITE}/numpy/__init__.py"),
               ("np.x", f"{SITE}/numpy/x.so"), ("odd", "/etc/passwd")]  # fmt: skip
    mapped = [f"{SITE}/numpy.libs/blas.so.3", "/usr/libpython.so", f"{SITE}/numpy/x.so",
              f"{SITE}/torch/lib/torch.so", "/usr/share/locale-archive"]  # fmt: skip
    names = [Path(paths[-1]).name for paths in learned_files(modules, mapped)]
    assert names == ["libpython.so", "os.py", "blas.so.3", "x.so", "__init__.py", "torch.so"]


def test_a_guess_is_the_packages_and_what_they_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one/__init__.py", "one/deep/x.so", "one/tests/never.py", "two.py", "three.py"):
        file(tmp_path, name, 1)
    (tmp_path / "one-1.dist-info").mkdir()
    (tmp_path / "one-1.dist-info" / "METADATA").write_text(
        "Name: one\nRequires-Dist: two (>=1)\nRequires-Dist: three; extra == 'more'\n"
    )
    (tmp_path / "two-1.dist-info").mkdir()
    (tmp_path / "two-1.dist-info" / "METADATA").write_text("Name: two\n")
    (tmp_path / "two-1.dist-info" / "RECORD").write_text("two.py,,\ntwo-1.dist-info/RECORD,,\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    names = [Path(paths[-1]).name for paths in guessed_files(["os.path", "one.deep", "gone"])]
    assert names == ["__init__.py", "x.so", "two.py"]


def test_folders_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("b/2", "b/1", "a/3"):
        file(tmp_path, name, 1)
    below = [path.removeprefix(f"{tmp_path}/") for (path,) in files_below([str(tmp_path)])]
    assert below == ["a/3", "b/1", "b/2"]
    assert list(files_below(["/no/such"])) == [("/no/such",)]
