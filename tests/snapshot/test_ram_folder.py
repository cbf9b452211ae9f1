from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.errors import StoreUnavailable
from holdfast.journal.regular import open_regular
from holdfast.journal.scratch import claim_folders
from holdfast.snapshot import ram_folder
from holdfast.snapshot.ram_folder import OLD_S, claim_ram, reclaim


@pytest.fixture
def base(tmp_path: Path) -> Path:
    place = tmp_path / "memory"
    place.mkdir()
    return place


class Owner:
    """A real process that holds a run's folder in memory."""

    def __init__(self, base: Path, key: str) -> None:
        script = f"""
            import sys
            from pathlib import Path
            from holdfast.snapshot.ram_folder import claim_ram
            folder = claim_ram(Path({str(base)!r}), {key!r})
            (folder.path / "buffer-0").mkdir(exist_ok=True)
            (folder.path / "buffer-0" / "shard").write_bytes(b"x" * 5000)
            print(folder.path, flush=True)
            sys.stdin.read()
        """
        self.process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.path = Path(self.process.stdout.readline().strip())

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()


@pytest.fixture
def owner(base: Path) -> Iterator[Owner]:
    one = Owner(base, "other-run")
    yield one
    one.kill()


def age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    for entry in (*path.iterdir(), path):
        os.utime(entry, (then, then))


def test_a_folder_is_private_and_says_whose_it_is(base: Path) -> None:
    folder = claim_ram(base, "run")
    assert folder.path == base / f"holdfast-{os.getuid()}" / "run" / "ram"
    for place in (folder.path, *list(folder.path.parents)[:2]):
        assert place.stat().st_mode & 0o777 == 0o700
    assert json.loads((folder.path / "owner.json").read_text())["pid"] == os.getpid()
    folder.remove()
    assert list(base.iterdir()) == []
    folder.remove()


def test_what_lies_beside_it_stays(base: Path) -> None:
    folder = claim_ram(base, "run")
    (folder.path.parent / "rank-00000.hfj").touch()
    folder.remove()
    assert [path.name for path in folder.path.parent.iterdir()] == ["rank-00000.hfj"]


@pytest.mark.real
def test_the_next_start_of_the_run_finds_its_buffers(base: Path) -> None:
    for end in ("killed", "released"):
        owner = Owner(base, "run")
        owner.kill()
        folder = claim_ram(base, "run")
        assert (folder.path / "buffer-0" / "shard").stat().st_size == 5000, end
        folder.release()
        assert (folder.path / "buffer-0").exists()


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_link_in_its_place_is_refused(base: Path, tmp_path: Path, level: int) -> None:
    (tmp_path / "trap").mkdir()
    parts = (f"holdfast-{os.getuid()}", "run", "ram")
    place = base.joinpath(*parts[: level + 1])
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(tmp_path / "trap")
    with pytest.raises(StoreUnavailable, match="is not a folder"):
        claim_ram(base, "run")
    assert list((tmp_path / "trap").iterdir()) == []


def test_a_base_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="is not there"):
        claim_ram(tmp_path / "none", "run")


@pytest.mark.real
def test_a_live_owner_is_never_robbed(base: Path, owner: Owner) -> None:
    age(owner.path, 10 * OLD_S)
    assert reclaim(base, but="mine", enough=lambda: False) == ()
    # Not even when its process id says nothing here: the lock is enough.
    (owner.path / "owner.json").unlink()
    age(owner.path, 10 * OLD_S)
    assert reclaim(base, but="mine", enough=lambda: False) == ()
    assert (owner.path / "buffer-0").exists()


@pytest.mark.real
def test_a_dead_owner_keeps_its_buffers_for_a_day(base: Path, owner: Owner) -> None:
    owner.kill()
    assert reclaim(base, but="mine") == ()
    age(owner.path, OLD_S + 60)
    assert reclaim(base, but="other-run") == ()
    assert reclaim(base, but="mine") == (owner.path,)
    assert list(base.rglob("*")) == []


@pytest.mark.contract("memory: left by a dead run")
def test_a_dead_owner_makes_room(base: Path, owner: Owner) -> None:
    owner.kill()
    older = Owner(base, "older")
    older.kill()
    age(older.path, 3600)
    assert reclaim(base, but="mine", enough=lambda: True) == ()
    assert reclaim(base, but="mine", enough=lambda: False) == (older.path, owner.path)


@pytest.mark.real
def test_folders_of_other_users_are_not_looked_at(base: Path, owner: Owner) -> None:
    owner.kill()
    age(owner.path, 10 * OLD_S)
    own = base / f"holdfast-{os.getuid()}"
    own.rename(base / f"holdfast-{os.getuid() + 1}")
    assert reclaim(base, but="mine", enough=lambda: False) == ()
    assert reclaim(base, but="mine", enough=lambda: False, uid=os.getuid() + 1) == ()
    assert owner.path.parents[1] != own or not owner.path.exists()


@pytest.mark.real
def test_a_folder_under_reclaim_is_made_anew_by_its_run(base: Path) -> None:
    """The remover holds the lock of a file that is gone: who waits for it takes a new one."""
    script = f"""
        from pathlib import Path
        from holdfast.snapshot.ram_folder import reclaim
        base, end = Path({str(base)!r}), Path({str(base.parent / "end")!r})
        while not end.exists():
            if reclaim(base, but="mine", enough=lambda: False):
                end.with_name("removed").touch()
    """
    remover = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)])
    limit = time.monotonic() + 120
    try:
        while not (base.parent / "removed").exists() and time.monotonic() < limit:
            folder = claim_ram(base, "run")
            (folder.path / "owner.json").unlink()  # else this process is seen to be alive
            (folder.path / "kept").touch()
            assert (folder.path / "kept").exists()
            folder.release()
    finally:
        (base.parent / "end").touch()
        remover.wait()
    assert (base.parent / "removed").exists()


@pytest.mark.parametrize("gone", ["ram", "run", "holdfast"])
def test_a_folder_that_goes_while_it_is_claimed_is_made_again(
    base: Path, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    """At its worst: after it was checked, and before anything is in it."""
    first = []

    def removed_before(path: Path, flags: int) -> int:
        if not first:
            first.append(path)
            folder = path.parent
            names = {"ram": 1, "run": 2, "holdfast": 3}[gone]
            for _ in range(names):
                folder.rmdir()
                folder = folder.parent
        return open_regular(path, flags)

    monkeypatch.setattr(ram_folder, "open_regular", removed_before)
    monkeypatch.setattr(ram_folder, "_TRY_S", 0)
    folder = claim_ram(base, "run")
    assert first
    assert (folder.path / "owner.json").exists()
    folder.remove()


def test_a_folder_that_goes_between_two_of_a_chain_is_made_again(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    access, asked = os.access, []

    def removed_before(path: Path, mode: int) -> bool:
        asked.append(path)
        if asked == [base / "own", base / "own" / "key"]:
            path.rmdir()
            path.parent.rmdir()
        return access(path, mode)

    monkeypatch.setattr(os, "access", removed_before)
    assert claim_folders(os.getuid(), base / "own", base / "own" / "key") == ""
    assert (base / "own" / "key").is_dir()
    assert len(asked) == 4


def test_where_nothing_can_be_made_it_is_said(base: Path) -> None:
    words = claim_folders(os.getuid(), base / "none" / "own", base / "none" / "own" / "key")
    assert words == f"{base / 'none' / 'own'} is not there (any more)"
