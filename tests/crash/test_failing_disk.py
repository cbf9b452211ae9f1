"""The disk is full, or fails, at any one operation of a real session, and is well again after it.

A child process trains with a session of its own (no supervisor) and saves every step. One of the
operations that it does on the store fails once. Training must go on, what was saved stays good, and
the next save works.
"""

from __future__ import annotations

import errno
import io
import itertools
import os
import shutil
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from examine import Promises, examine
from life import NAME, Place, state_at, train
from recorder import Hook, Recorder

import holdfast
from holdfast.errors import StoreUnavailable
from holdfast.snapshot.sets import list_sets

pytestmark = pytest.mark.real

STEPS = 3
REFUSED = 69

Fault = Callable[[str, str], bool]
"""Whether an operation (`write`, `fsync`, …) on a path is one that fails."""


def session(store: Path) -> None:
    """A training script: every step is saved, and waited for."""
    run = holdfast.start(NAME, store=store, keep=holdfast.Keep(last=2))
    state = run.restore(init=lambda: state_at(0))
    for step in run.steps(STEPS):
        train(state["weights"], step)
        state["step"] = step
        run.save(wait=True)
        run.done(step, state)
    run.close()


def child(root: Path, hook: Hook, among: Fault) -> tuple[int, str, int]:
    """Run a session in a child of this process: exit code, what it said, operations `among` all."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        said = io.StringIO()
        code = 1
        sys.stderr = said
        os.environ["HOLDFAST_SCRATCH"] = str(root / "scratch")
        recorder = Recorder(root / "store")
        recorder.also = [root / "scratch"]
        done = itertools.count()

        def counting(what: str, path: str) -> None:
            if among(what, path):
                next(done)
            hook(what, path)

        recorder.hook = counting
        try:
            with recorder:
                session(root / "store")
            code = 0
        except StoreUnavailable as error:
            code = REFUSED
            said.write(f"refused: {error}\n")
        except BaseException:
            traceback.print_exc(file=said)
        finally:
            os.write(write, f"{next(done)}\n{said.getvalue()}".encode()[:60_000])
            os._exit(code)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        count, _, words = pipe.read().decode().partition("\n")
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), words, int(count)


def failing_once(number: int, code: int, among: Fault) -> Hook:
    """A hook that fails the `number`-th of some operations."""
    left = itertools.count()

    def hook(what: str, path: str) -> None:
        if among(what, path) and next(left) == number:
            raise OSError(code, os.strerror(code), path)

    return hook


def takes_space(what: str, _path: str) -> bool:
    return what in ("open", "write", "fsync", "mkdir", "link", "rename")


def is_sync(what: str, _path: str) -> bool:
    return what == "fsync"


@pytest.mark.parametrize(
    ("code", "among", "every"),
    [(errno.ENOSPC, takes_space, 5), (errno.EIO, is_sync, 2)],
    ids=["full", "broken"],
)
def test_one_operation_fails(jail: Path, code: int, among: Fault, every: int, long: bool) -> None:
    fresh(jail / "first")
    result = child(jail / "first", lambda what, path: None, among)
    assert result[0] == 0, result[1]
    wrong = []
    for number in range(0, result[2], 1 if long else every):
        root = jail / str(number)
        fresh(root)
        words = trouble(root, failing_once(number, code, among), among)
        if words:
            wrong.append(f"{number}: {words}")
        shutil.rmtree(root)
    assert wrong == []


def fresh(root: Path) -> None:
    (root / "store").mkdir(parents=True)
    (root / "scratch").mkdir()


def trouble(root: Path, hook: Hook, among: Fault) -> str:
    """What is wrong with a run of which one operation fails; '' if nothing is."""
    code, words, _ = child(root, hook, among)
    lines = words.splitlines()
    if code not in (0, REFUSED):
        return f"exit code {code}: {words}"
    if "Traceback" in words or len(lines) > 3:
        return words
    sets = list_sets(root / "store" / NAME / "ckpt")[0] if (root / "store" / NAME).exists() else ()
    newest = max((one.step for one in sets), default=0)
    if code == 0 and newest != STEPS:
        return f"the last step was not saved: {words}"
    place = Place(root / "store", root / "scratch" / f"holdfast-{os.getuid()}")
    promises = Promises(committed=(0, newest) if newest else None)
    try:
        examine(place, promises, STEPS + 1)
    except Exception as error:
        return f"{type(error).__name__}: {error} after {words}"
    return ""
