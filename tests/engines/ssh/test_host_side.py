"""What runs on a host before Holdfast is there, as far as no process is needed."""

from __future__ import annotations

import ast
import hashlib
import io
import sys
import tarfile
from pathlib import Path

import pytest

from holdfast.engines.ssh import host_side
from holdfast.engines.ssh.host_side import Archive, HostError, HostHere


def test_it_needs_nothing_but_an_old_python() -> None:
    text = Path(host_side.__file__).read_text()
    tree = ast.parse(text, feature_version=(3, 7))
    for node in ast.walk(tree):
        names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) else []
        assert all(name.partition(".")[0] in sys.stdlib_module_names for name in names), names


def taken(path: Path, total: int, sent: bytes, digest: str) -> None:
    archive = Archive(path, total)
    with archive.file:
        archive.take(io.BytesIO(sent), digest)


def test_another_archive_is_not_taken(tmp_path: Path) -> None:
    digest = hashlib.sha256(b"ours").hexdigest()
    taken(tmp_path / "a", 4, b"ours", digest)
    with pytest.raises(HostError, match="not the archive that was announced"):
        taken(tmp_path / "b", 4, b"evil", digest)
    with pytest.raises(HostError, match="ended in the middle"):
        taken(tmp_path / "c", 4, b"our", digest)


def test_what_a_power_cut_has_left_half_unpacked_is_in_nobodys_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text("print(1)")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        tar.add(tmp_path / "train.py", "train.py")
    sent = packed.getvalue()
    digest = hashlib.sha256(sent).hexdigest()
    host = HostHere(tmp_path / "run", io.BytesIO(sent))
    host.look({})
    for half in ("tree.part", f"{digest}.part"):
        (host.folder / half).mkdir()
    order = {"tree": digest, "bytes": len(sent), "unpacked_bytes": 8, "token": "t"}
    served: list[Archive] = []
    monkeypatch.setattr(HostHere, "_serve", lambda _host, archive, _token: served.append(archive))
    host.push({**order, "from": None})
    served[0].file.close()
    assert (host.trees / digest / "train.py").read_text() == "print(1)"
    assert host.look({})["trees"] == [digest]
    assert sorted(one.name for one in host.folder.iterdir()) == [
        f"{digest}.tar.gz", "pushed.json", "trees",
    ]  # fmt: skip


def test_who_waits_for_more_of_a_broken_archive_is_let_go(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "a", 8)
    with archive.file, pytest.raises(HostError):
        archive.take(io.BytesIO(b"half"), "0")
    assert not archive._has_more_than(4)
