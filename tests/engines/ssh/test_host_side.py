"""What runs on a host before Holdfast is there, as far as no process is needed."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import io
import itertools
import json
import os
import socket
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

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
        f"{digest}.tar.gz", "folder", "pushed.json", "trees",
    ]  # fmt: skip


def test_hosts_with_one_home_say_so_and_an_address_that_only_this_host_knows_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for address, told in {
        "10.0.0.7": "10.0.0.7", "fd00::7": "fd00::7", "127.0.0.1": "", "::1": "", "fe80::1%e0": "",
    }.items():  # fmt: skip
        monkeypatch.setenv("SSH_CONNECTION", f"10.0.0.1 4711 {address} 22")
        assert HostHere(tmp_path / "run", io.BytesIO()).look({})["address"] == told
    folders = [HostHere(tmp_path / one, io.BytesIO()).look({})["folder"] for one in ("run", "x")]
    assert folders[0] == HostHere(tmp_path / "run", io.BytesIO()).look({})["folder"]
    assert len({*folders}) == 2
    assert all(len(one) == 32 for one in folders)


@pytest.mark.real
def test_an_install_that_goes_on_without_its_connection_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "trees" / "t").mkdir(parents=True)
    os.mkfifo(tmp_path / "go")
    order = {"tree": "t", "command": "mkdir busy && read go < ../../go && rmdir busy"}
    order |= {"command_digest": "d", "program": ["echo"]}
    told: list[dict[str, Any]] = []
    hosts = [HostHere(tmp_path, io.BytesIO()) for _ in range(2)]
    threads = [Thread(target=lambda one=one: told.append(one.install(order))) for one in hosts]
    threads[0].start()
    with (tmp_path / "go").open("w") as go:  # once the first is there
        threads[1].start()
        go.write("go\n")
    for one in threads:
        one.join(60)
    assert [one["code"] for one in told] == [0, 0]
    assert told[0] == told[1], "it was not begun again"


@pytest.fixture
def dial(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[[], socket.socket]]:
    """A connection to where an archive is given to who says `token`."""
    host = HostHere(tmp_path, io.BytesIO())
    (tmp_path / "a").write_bytes(b"a tree")
    host._serve(Archive(tmp_path / "a", 6, 6), "token")
    port = json.loads(capsys.readouterr().out)["port"]
    with contextlib.ExitStack() as stack:
        yield lambda: stack.enter_context(socket.create_connection(("127.0.0.1", port), 20))


def is_over(one: socket.socket) -> bool:
    with contextlib.suppress(ConnectionError):
        return one.recv(1) == b""
    return True


def test_strangers_are_few_and_keep_no_host_out(dial: Callable[[], socket.socket]) -> None:
    strangers = [dial() for _ in range(66)]
    assert is_over(strangers[0])
    host = dial()
    host.sendall(b"token")
    with host.makefile("rb") as given:
        assert given.read() == b"a tree"
    guesses = dial()
    guesses.sendall(b"guess")
    assert is_over(guesses)


def test_a_token_that_comes_byte_by_byte_has_little_time(
    dial: Callable[[], socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = itertools.count()  # two of them are longer than the limit
    clock = SimpleNamespace(monotonic=lambda: 0.9 * host_side.TOKEN_S * next(turns))
    monkeypatch.setattr(host_side, "time", clock)
    slow = dial()
    slow.sendall(b"t")
    assert is_over(slow)


def test_who_waits_for_more_of_a_broken_archive_is_let_go(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "a", 8)
    with archive.file, pytest.raises(HostError):
        archive.take(io.BytesIO(b"half"), "0")
    assert not archive._has_more_than(4)
