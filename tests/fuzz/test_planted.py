"""Anything may lie under any name in a store: nothing blocks, and nothing leads out of it.

Each file and folder of a good run is replaced, one at a time, by something else; then everything
that reads, tidies or goes on with a run is done to it. A canary lies outside, and a fence listens
for whoever opens it, or writes anything elsewhere than in the store.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fuzz_folders import read_attempts
from fuzz_guard import Fence, guarded
from fuzz_journals import account_of
from fuzz_seeds import RUN, fuzz_folder, good_run
from fuzz_sets import use
from fuzz_target import documented
from hypothesis import settings

from holdfast.agent.postmortem import Postmortem
from holdfast.cli import main as command
from holdfast.journal.adopt import adopt
from holdfast.journal.attempts import create_attempt
from holdfast.journal.control import ControlInbox, request
from holdfast.journal.lease import acquire, view
from holdfast.journal.log_copy import LogCopy
from holdfast.journal.replicate import Replicator
from holdfast.journal.store import RunFolder, RunStore
from holdfast.report.evidence import evidence_of
from holdfast.session.crash import write_report
from holdfast.session.load import load
from holdfast.snapshot.catalog import Catalog
from holdfast.snapshot.keep import Keep, read_keep
from holdfast.snapshot.shard import write_shard
from holdfast.snapshot.staging import Staging

SECRET = b"outside, and none of your business\n"
HOLE_BYTES = 1 << 40


def _fifo(path: Path, _canary: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path, _canary: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        here = os.open(path.parent, os.O_RDONLY)  # a socket's path must be short
        try:
            server.bind(f"/proc/self/fd/{here}/{path.name}")
        finally:
            os.close(here)


def _folder(path: Path, _canary: Path) -> None:
    (path / "inside").mkdir(parents=True)


def _empty(path: Path, _canary: Path) -> None:
    path.touch()


def _hole(path: Path, _canary: Path) -> None:
    path.touch()
    os.truncate(path, HOLE_BYTES)


def _link_to_file(path: Path, canary: Path) -> None:
    path.symlink_to(canary / "file")


def _link_to_folder(path: Path, canary: Path) -> None:
    path.symlink_to(canary)


def _link_to_twin(path: Path, canary: Path) -> None:
    """To something outside that would be read with pleasure: what was here before."""
    path.symlink_to(canary / "twin")


def _link_to_nothing(path: Path, canary: Path) -> None:
    path.symlink_to(canary / "nothing")


def _link_to_itself(path: Path, _canary: Path) -> None:
    path.symlink_to(path)


def _link_to_zeros(path: Path, _canary: Path) -> None:
    path.symlink_to("/dev/zero")


PLANTS: tuple[Callable[[Path, Path], None], ...] = (
    _fifo, _socket, _folder, _empty, _hole, _link_to_file, _link_to_folder, _link_to_twin,
    _link_to_nothing, _link_to_itself, _link_to_zeros,
)  # fmt: skip


def places() -> list[str]:
    """Every name in a good run that may become something else; of twins, one."""
    root = good_run() / RUN
    names = [str(path.relative_to(root)) for path in sorted(root.rglob("*"))]
    again = ("rank-00001", "attempts/0001/logs", "attempts/0001/ranks", "0001-000000000004/")
    return [name for name in names if not any(part in name for part in again)]


class World:
    """A copy of the good run, the canary beside it, and scratch with live files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = root / "store"
        self.canary = root / "canary"
        self.scratch = root / "scratch"
        self.twin: Path | None = None

    def renew(self) -> None:
        """As good as new."""
        shutil.rmtree(self.root)
        shutil.copytree(good_run(), self.store)
        self.canary.mkdir(mode=0o700)
        (self.canary / "file").write_bytes(SECRET)
        (self.scratch / "attempt-0000").mkdir(parents=True)
        live = self.store / RUN / "attempts/0000/journal"
        for name in ("rank-00000.hfj", "rank-00000.jsonl"):
            shutil.copy(live / name, self.scratch / "attempt-0000" / name)
        (self.scratch / "attempt-0000" / "rank-00000.log").write_bytes(b"line\n" * 9)

    def plant(self, name: str, thing: Callable[[Path, Path], None]) -> None:
        """Put something else under this name; what was there goes outside."""
        path = self.store / RUN / name
        path.rename(self.canary / "twin")
        thing(path, self.canary)

    def outside(self) -> list[tuple[str, int, bytes]]:
        """All that lies outside, to the byte."""
        found = []
        for path in sorted(self.canary.rglob("*")):
            data = path.read_bytes() if path.is_file() else b""
            found.append((str(path), path.lstat().st_mode, data))
        return found


def everything(world: World) -> None:
    """Read it, report on it, tidy it up, go on with it: whatever Holdfast does to a run."""
    store = RunStore.at(world.store)
    store.runs()
    with documented():
        _with_folder(store.get(RUN), world)
    with documented():
        account_of(world.store / RUN)
    with documented():
        load(f"{world.store}/{RUN}@best")
    for words in (
        "ls", f"report {RUN}", f"report {RUN} --json", f"logs {RUN}", f"ckpt ls {RUN}",
        f"ckpt verify {RUN}", f"export {RUN} --history",
    ):  # fmt: skip
        with pytest.raises(SystemExit):
            command.main([*words.split(), "--store", str(world.store)])


def _with_folder(folder: RunFolder, world: World) -> None:
    now = iter(range(0, 1000, 5)).__next__
    ended: Any = SimpleNamespace(phase=lambda _rank: None)
    held: Any = SimpleNamespace(epoch=1, check=lambda: None)
    catalog = Catalog(folder, lease=held)
    name = "rank-00000"
    live = world.scratch / "attempt-0000"
    jobs: tuple[Callable[[], object], ...] = (
        lambda: read_attempts(folder),
        lambda: view(folder),
        lambda: request(folder, "save"),
        lambda: ControlInbox(folder, 1).take(),
        lambda: evidence_of(folder, (0, 1)),
        lambda: Postmortem(live, ended, []).exit_of({"rank": 0, "code": 1, "signal": None}),
        lambda: read_keep(folder.ranks_dir(0) / "keep.json"),
        lambda: write_report(folder.ranks_dir(0) / f"{name}.json", {"type": "E"}),
        lambda: LogCopy(live / f"{name}.log", folder.logs_dir(0) / f"{name}.log").sync(),
        lambda: _replicate(live / f"{name}.hfj", folder.attempt_journal_dir(0) / f"{name}.hfj"),
        lambda: use(folder.ckpt_dir / "0000-000000000003"),
        catalog.choose,
        lambda: catalog.at_step(None),
        lambda: adopt(folder, world.scratch),
        lambda: acquire(folder, clock=now, sleep=lambda _: None),
        lambda: _save(folder),
        catalog.tidy,
        lambda: catalog.collect(Keep(last=1), ()),
        lambda: create_attempt(folder, 2, parent=None, resume_step=0, restore_set=None, epoch=9),
    )
    for job in jobs:
        with documented(ValueError):  # of create_attempt, where an attempt is missing
            job()


def _replicate(live: Path, stored: Path) -> None:
    replicator = Replicator(live, stored)
    try:
        replicator.sync()
    finally:
        replicator.close()


def _save(folder: RunFolder) -> None:
    captured = Staging().capture({"state": {}})
    try:
        write_shard(
            folder.ckpt_dir / "0001-000000000006", captured, attempt=1, step=6, rank=0, world_size=1
        )
    finally:
        captured.release()


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    root = fuzz_folder()
    yield World(root)
    shutil.rmtree(root)


@pytest.mark.parametrize("thing", PLANTS, ids=lambda thing: thing.__name__.strip("_"))
def test_whatever_lies_in_a_run(
    thing: Callable[[Path, Path], None], world: World, capfd: pytest.CaptureFixture[str]
) -> None:
    # One place in five for each thing, each place with two things; HYPOTHESIS_PROFILE=long: all.
    every = 1 if settings.get_current_profile_name() == "long" else 5
    for name in places()[PLANTS.index(thing) % every :: every]:
        world.renew()
        world.plant(name, thing)
        before = world.outside()
        with Fence(world.root, world.canary) as fence, guarded(1 << 20):
            try:
                everything(world)
            except BaseException as error:
                raise AssertionError(f"with {thing.__name__} at {name}") from error
        assert fence.crossed == [], f"with {thing.__name__} at {name}"
        assert world.outside() == before, f"with {thing.__name__} at {name}"
        said = capfd.readouterr()
        assert SECRET.decode().strip() not in said.out + said.err, name
        assert "Traceback (most" not in said.err, name
