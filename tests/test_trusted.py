"""Paths that somebody else may have arranged: owners, modes, folders and links on the way."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.config.trusted import Untrusted, check_folders, open_trusted, own_uids

STRANGER = 65534
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root may give files away")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """As /run/holdfast is."""
    path = tmp_path / "own"
    path.mkdir(mode=0o755)
    return path


def opened(path: Path) -> bytes:
    with open(open_trusted(path, own_uids()), "rb") as file:  # noqa: PTH123 - a descriptor
        return file.read()


def why(path: Path) -> str:
    with pytest.raises(Untrusted) as refused:
        opened(path)
    return str(refused.value)


def test_no_program_of_ours_is_started_with_the_working_folder_on_its_path() -> None:
    """Who may write that folder would be the author of our modules."""
    source = Path(__file__).parents[1] / "src"
    starts = re.compile(r"""["']-m["'],\s*["']holdfast\b""")
    safely = re.compile(r"""["']-P["'],\s*["']-m["'],\s*["']holdfast\b""")
    found = {path: path.read_text() for path in source.rglob("*.py")}
    assert sum(len(safely.findall(text)) for text in found.values()) >= 7
    assert [
        path.name
        for path, text in found.items()
        if len(starts.findall(text)) != len(safely.findall(text))
    ] == []


def test_a_file_of_our_own_is_read(folder: Path) -> None:
    path = folder / "notice"
    path.write_text("120")
    assert opened(path) == b"120"
    with pytest.raises(FileNotFoundError):
        opened(folder / "none")
    with pytest.raises(FileNotFoundError):
        check_folders(folder / "none" / "notice", own_uids())


def test_relative_paths_and_dots_are_walked_as_the_kernel_does(folder: Path) -> None:
    (folder / "notice").touch()
    (folder / "sub").mkdir(mode=0o755)
    assert opened(folder / "sub" / ".." / "notice") == b""
    (folder / "link").symlink_to("sub/../sub")
    (folder / "sub" / "notice").write_text("1")
    assert opened(folder / "link" / "notice") == b"1"


@pytest.mark.parametrize("mode", [0o666, 0o602])
def test_a_file_that_everybody_may_write_is_refused(folder: Path, mode: int) -> None:
    path = folder / "notice"
    path.touch()
    path.chmod(mode)
    assert why(path) == f"everybody may write {path}"


@needs_root
def test_a_group_may_write_if_it_is_roots_or_ours(folder: Path) -> None:
    path = folder / "notice"
    path.touch()
    path.chmod(0o620)
    assert opened(path) == b""
    os.chown(path, -1, STRANGER)
    assert why(path) == f"group {STRANGER} may write {path}"


@needs_root
@pytest.mark.parametrize("what", ["file", "folder", "above", "link on the way"])
def test_what_belongs_to_somebody_else_is_refused(folder: Path, what: str) -> None:
    (folder / "sub").mkdir(mode=0o755)
    path = folder / "sub" / "notice"
    path.touch()
    (folder / "way").symlink_to("sub")
    guilty = {
        "file": path, "folder": folder / "sub", "above": folder, "link on the way": folder / "way"
    }[what]  # fmt: skip
    os.chown(guilty, STRANGER, -1, follow_symlinks=False)
    asked = folder / "way" / "notice" if what == "link on the way" else path
    assert re.fullmatch(rf"{re.escape(str(guilty))} belongs to nobody, and not to root", why(asked))


@needs_root
def test_a_hop_over_a_folder_of_somebody_else_is_seen(folder: Path) -> None:
    """A link of ours to a link of theirs to a folder of ours."""
    (folder / "theirs").mkdir(mode=0o755)
    (folder / "theirs" / "hop").symlink_to(folder / "real")
    (folder / "real").mkdir(mode=0o755)
    (folder / "real" / "notice").touch()
    (folder / "way").symlink_to(folder / "theirs" / "hop")
    assert opened(folder / "way" / "notice") == b""
    os.chown(folder / "theirs", STRANGER, -1)
    assert "theirs belongs to nobody" in why(folder / "way" / "notice")


def test_a_folder_like_tmp_will_do_for_a_file_of_our_own(folder: Path) -> None:
    path = folder / "notice"
    path.touch()
    folder.chmod(0o777)
    assert why(path) == f"everybody may write {folder}"
    folder.chmod(0o1777)
    assert opened(path) == b""
    other = folder / "other"
    other.hardlink_to(path)  # somebody gives a file of ours the name that is looked at
    assert why(other) == f"{other} has another name as well"


@pytest.mark.parametrize("make", [Path.mkdir, lambda path: socket_at(path)])
def test_what_is_no_file_is_refused(folder: Path, make: Callable[[Path], object]) -> None:
    path = folder / "notice"
    make(path)
    with pytest.raises((Untrusted, OSError)):
        opened(path)


def socket_at(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


def test_links_are_not_followed_at_the_end_and_not_for_ever_on_the_way(folder: Path) -> None:
    (folder / "real").touch()
    (folder / "notice").symlink_to("real")
    assert why(folder / "notice") == f"{folder}/notice is a link: name the file itself"
    (folder / "loop").symlink_to("loop")
    assert "leads from link to link" in why(folder / "loop" / "notice")


def test_a_file_is_made_where_none_is_and_never_behind_a_link(folder: Path) -> None:
    made = folder / "flag"
    os.close(open_trusted(made, own_uids(), os.O_WRONLY | os.O_CREAT))
    assert made.stat().st_mode & 0o022 == 0
    (folder / "trap").symlink_to(folder / "elsewhere")
    with pytest.raises(Untrusted, match="is a link"):
        open_trusted(folder / "trap", own_uids(), os.O_WRONLY | os.O_CREAT)
    assert not (folder / "elsewhere").exists()
