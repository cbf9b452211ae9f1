"""The functions of `os` by which a run store is reached, with a step of a walk before each."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

FROZEN_NS = 1_700_000_000_000_000_000
# What is a step in the store, by the path inside the run. The rest is nobody else's, or never read.
STEPS = re.compile(
    r"lease|lease/\d+\.(?:json|released)|attempts|attempts/\d+/(?:attempt|end)\.json"
    r"|control|control/[^/.]+\.json|ckpt|ckpt/[\d-]+|ckpt/[\d-]+/(?:manifest\.json|doomed-\d+|rank-\d+\.json)"
)
# These never change once they are there, and stay for ever: to see one again is no news.
LOOKS = ("looks for", "lists", "reads")
FOR_EVER = re.compile(r"lease/\d+\.json|attempts/\d+/attempt\.json")


def tree_of(root: Path) -> dict[str, int]:
    found = {}
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder, name)
            inside = os.fspath(path.relative_to(root))
            if STEPS.fullmatch(inside):
                found[inside] = hash(path.read_bytes())
    return found


now: list[Any] = []  # that is walked


def step(what: str) -> None:
    """For a world: its program is about to do that, beside the store."""
    if now:
        now[0].step(what)


@contextlib.contextmanager
def at_once() -> Iterator[None]:
    """For a world: what its program does in the store is one step with what was before."""
    steps = now[0] if now else None
    before = steps is not None and steps.is_quiet
    if steps is not None:
        steps.is_quiet = True
    try:
        yield
    finally:
        if steps is not None:
            steps.is_quiet = before


class Hooks:
    """The functions of `os` by which the store is reached; a step before each that counts."""

    def __init__(self) -> None:
        self.real = {
            name: getattr(os, name)
            for name in ("stat", "lstat", "listdir", "open", "link", "replace", "rename", "unlink")
        }
        self.rmtree = shutil.rmtree

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Until then every thread of this process goes through them."""
        hooks = {
            "stat": self._looks("stat"),
            "lstat": self._looks("lstat"),
            "listdir": self._listdir,
            "open": self._open,
            "link": self._link,
            "replace": self._moves("replace"),
            "rename": self._moves("rename"),
            "unlink": self._unlink,
        }
        time_ns, fsync = time.time_ns, os.fsync
        try:
            for name, hook in hooks.items():
                setattr(os, name, hook)
            shutil.rmtree = self._rmtree  # type: ignore[assignment]
            time.time_ns = lambda: FROZEN_NS
            os.fsync = lambda _: None  # type: ignore[assignment] # no power is cut here
            yield
        finally:
            for name, real in self.real.items():
                setattr(os, name, real)
            shutil.rmtree = self.rmtree
            time.time_ns, os.fsync = time_ns, fsync

    def _counts(self, path: Any) -> tuple[Any, str] | None:
        if not now or not now[0].is_watched:
            return None
        name = now[0].inside(path)
        return None if name is None else (now[0], name)

    def _digest(self, path: Any) -> int:
        descriptor = self.real["open"](path, os.O_RDONLY)
        try:
            return hash(os.read(descriptor, 1 << 20))
        finally:
            os.close(descriptor)

    def _exists(self, path: Any) -> bool:
        try:
            self.real["lstat"](path)
        except OSError:
            return False
        return True

    def _looks(self, name: str) -> Callable[..., Any]:
        real = self.real[name]

        def look(path: Any, *args: Any, **options: Any) -> Any:
            found = None if options.get("dir_fd") is not None else self._counts(path)
            if found is None or "." not in found[1]:  # that a folder is there is no news
                return real(path, *args, **options)
            steps, inside = found
            if not (FOR_EVER.fullmatch(inside) and self._exists(path)):
                steps.step("looks for", inside)
                steps.meets(steps.tree.get(inside))
            return real(path, *args, **options)

        return look

    def _listdir(self, path: Any = ".") -> Any:
        found = self._counts(path)
        if found is None:
            return self.real["listdir"](path)
        steps, inside = found
        steps.step("lists", inside)
        names = sorted(self.real["listdir"](path))
        steps.meets(tuple(names))
        return names

    def _open(self, path: Any, flags: int, *args: Any, **options: Any) -> Any:
        found = None if options.get("dir_fd") is not None else self._counts(path)
        if found is None:
            return self.real["open"](path, flags, *args, **options)
        steps, inside = found
        if flags & os.O_CREAT:
            steps.step("creates", inside)
            steps.tree.setdefault(inside, 0)
        elif not flags & os.O_DIRECTORY and not (FOR_EVER.fullmatch(inside) and self._exists(path)):
            steps.step("reads", inside)
            steps.meets(steps.tree.get(inside))
        return self.real["open"](path, flags, *args, **options)

    def _link(self, source: Any, path: Any, **options: Any) -> None:
        found = self._counts(path)
        if found is None:
            self.real["link"](source, path, **options)
            return
        steps, inside = found
        steps.step("creates", inside)
        steps.meets(self._exists(path))
        self.real["link"](source, path, **options)
        steps.tree[inside] = self._digest(path)

    def _moves(self, name: str) -> Callable[..., None]:
        real = self.real[name]

        def move(source: Any, path: Any, **options: Any) -> None:
            found = self._counts(path)
            if found is not None:
                found[0].step("writes", found[1])
            real(source, path, **options)
            if found is not None:
                found[0].tree[found[1]] = self._digest(path)

        return move

    def _unlink(self, path: Any, **options: Any) -> None:
        found = None if options.get("dir_fd") is not None else self._counts(path)
        if found is not None and self._exists(path):
            found[0].step("removes", found[1])
            found[0].tree.pop(found[1], None)
        self.real["unlink"](path, **options)

    def _rmtree(self, path: Any, *args: Any, **options: Any) -> None:
        found = self._counts(path)
        if found is not None:
            steps, inside = found
            steps.step("removes", inside)
            for name in [one for one in steps.tree if one.startswith(f"{inside}/")]:
                del steps.tree[name]
        with _unwatched():
            self.rmtree(path, *args, **options)


@contextlib.contextmanager
def _unwatched() -> Iterator[None]:
    steps = now.pop() if now else None
    try:
        yield
    finally:
        if steps is not None:
            now.append(steps)
