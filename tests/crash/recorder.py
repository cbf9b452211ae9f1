"""What a program does to a folder, recorded at the calls that it makes of the operating system.

While a `Recorder` is in force, the functions of `os` that change files are ours: they do the same,
and tell a `Disk`. What goes around them would be missing from the record; so after each recorded
life `matches` compares the folder with what the record says must be in it, byte for byte.

It can also break things: `hook` is called before each change and may raise the error that the
kernel would give, or `Killed`, after which nothing happens any more: no `finally` cleans up.
"""

from __future__ import annotations

import builtins
import io
import itertools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any
from unittest import mock

from disk import ROOT, Disk, Made, Named, Op, State, Synced, Wrote

Hook = Callable[[str, str], None]
"""Called with what is about to be done (`write`, `fsync`, …) and the path below the root."""


class Killed(BaseException):
    """The process is dead: whatever it does from now on does not happen."""


class Recorder:
    """Records the changes below `root`, which holds `initial` at first. Use it as a context."""

    def __init__(self, root: Path, initial: State | None = None) -> None:
        self.root = root
        self.ops: list[Op] = []
        self.disk = Disk()
        self.hook: Hook = lambda _what, _path: None
        self.outside: list[str] = []  # changes elsewhere, other than below `also`
        self.also: list[Path] = []
        self._dead = False
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        self._nodes: dict[str, int] = {"": ROOT}  # path below the root → node
        self._open: dict[int, tuple[int | None, str]] = {}  # descriptor → node and path
        self._real: dict[str, Callable[..., Any]] = {}
        self._patches: list[Any] = []
        for path, data in sorted((initial or {}).items()):
            self._found(path, data)

    def _found(self, path: str, data: bytes | None) -> None:
        """Something that is there already, and durable."""
        node = next(self._numbers)
        folder, name = self._parent(path)
        for op in (
            Made(node, is_folder=data is None),
            Wrote(node, 0, data or b"", path),
            Synced(node, path),
            Named(folder, ((name, node),), path),
            Synced(folder, path),
        ):
            if data is not None or not isinstance(op, Wrote):
                self.disk.apply(op)
        self._nodes[path] = node

    # --- in force ---------------------------------------------------------------------------

    def __enter__(self) -> Recorder:
        ours = {
            "open": self._do_open,
            "close": self._do_close,
            "write": self._do_write,
            "pwrite": self._do_pwrite,
            "ftruncate": self._do_ftruncate,
            "fsync": self._do_sync,
            "fdatasync": self._do_sync,
            "link": self._do_link,
            "unlink": self._do_unlink,
            "remove": self._do_unlink,
            "rename": self._do_rename,
            "replace": self._do_rename,
            "mkdir": self._do_mkdir,
            "rmdir": self._do_rmdir,
        }
        for name, function in ours.items():
            self._real[name] = getattr(os, name)
            patch = mock.patch.object(os, name, function)
            patch.start()
            self._patches.append(patch)
        real_open = io.open
        for module in (io, builtins):
            patch = mock.patch.object(module, "open", partial(self._do_io_open, real_open))
            patch.start()
            self._patches.append(patch)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for patch in self._patches:
            patch.stop()
        self._patches.clear()

    def kill(self) -> None:
        """The process dies now."""
        self._dead = True
        raise Killed

    def revive(self) -> None:
        """Another process goes on with the same folder."""
        self._dead = False
        self._open.clear()
        self.hook = lambda _what, _path: None

    def matches(self) -> list[str]:
        """Paths in which the folder differs from the record; they must be none."""
        real, recorded = read_tree(self.root), self.disk.now()
        return sorted(
            p for p in real.keys() | recorded.keys() if real.get(p, 0) != recorded.get(p, 0)
        )

    # --- where something is -----------------------------------------------------------------

    def _below(self, path: Any, dir_fd: int | None = None) -> str | None:
        """The path below the root; None when it is elsewhere."""
        text = os.path.abspath(self._text(path, dir_fd))
        if text == str(self.root):
            return ""
        return text[len(str(self.root)) + 1 :] if text.startswith(f"{self.root}/") else None

    @staticmethod
    def _text(path: Any, dir_fd: int | None) -> str:
        text = os.fsdecode(path)
        if dir_fd is not None and not text.startswith("/"):
            text = os.path.join(os.readlink(f"/proc/self/fd/{dir_fd}"), text)
        return text

    def _elsewhere(self, what: str, path: Any, dir_fd: int | None = None) -> None:
        text = os.path.abspath(self._text(path, dir_fd))
        if not any(text.startswith(f"{place}/") for place in self.also):
            self.outside.append(f"{what} {text}")

    def _parent(self, path: str) -> tuple[int, str]:
        folder, _, name = path.rpartition("/")
        return self._nodes[folder], name

    @contextmanager
    def _doing(self, what: str, path: str) -> Iterator[None]:
        with self._lock:
            if self._dead:
                raise Killed
            self.hook(what, path)
            yield

    def _note(self, op: Op) -> None:
        self.ops.append(op)
        self.disk.apply(op)

    def _name(self, path: str, node: int | None) -> None:
        folder, name = self._parent(path)
        self._note(Named(folder, ((name, node),), path))
        if node is None:
            self._nodes.pop(path, None)
        else:
            self._nodes[path] = node

    # --- the functions ----------------------------------------------------------------------

    def _do_open(
        self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None
    ) -> int:
        below = self._below(path, dir_fd)
        writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if below is None and writes:
            self._elsewhere("open", path, dir_fd)
        if below is None or not writes:
            if self._dead:
                raise Killed
            fd = self._real["open"](path, flags, mode, dir_fd=dir_fd)
            if below is not None:
                self._open[fd] = (self._nodes.get(below), below)
            return fd
        with self._doing("open", below):
            existed = below in self._nodes
            fd = self._real["open"](path, flags, mode, dir_fd=dir_fd)
            if not existed:
                node = next(self._numbers)
                self._note(Made(node, is_folder=False))
                self._name(below, node)
            elif flags & os.O_TRUNC:
                raise NotImplementedError("the disk knows no truncation")
            self._open[fd] = (self._nodes[below], below)
            return fd

    def _do_close(self, fd: int) -> None:
        self._open.pop(fd, None)
        self._real["close"](fd)

    def _do_write(self, fd: int, data: Any) -> int:
        if fd not in self._open:
            return self._real["write"](fd, data)
        node, path = self._open[fd]
        with self._doing("write", path):
            offset = os.lseek(fd, 0, os.SEEK_CUR)
            if self._appends(fd):
                offset = self.disk.size(node)
            count = self._real["write"](fd, data)
            self._note(Wrote(node, offset, bytes(memoryview(data).cast("B")[:count]), path))
            return count

    @staticmethod
    def _appends(fd: int) -> bool:
        import fcntl

        return bool(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_APPEND)

    def _do_pwrite(self, fd: int, data: Any, offset: int) -> int:
        if fd not in self._open:
            return self._real["pwrite"](fd, data, offset)
        node, path = self._open[fd]
        with self._doing("write", path):
            count = self._real["pwrite"](fd, data, offset)
            self._note(Wrote(node, offset, bytes(memoryview(data).cast("B")[:count]), path))
            return count

    def _do_ftruncate(self, fd: int, length: int) -> None:
        if fd in self._open:
            raise NotImplementedError("the disk knows no truncation")
        self._real["ftruncate"](fd, length)

    def _do_sync(self, fd: int) -> None:
        if fd not in self._open:
            os.stat(fd)  # no need to wait for a disk that is only looked at
            return
        node, path = self._open[fd]
        with self._doing("fsync", path):
            self._note(Synced(node, path))

    def _do_link(self, source: Any, target: Any, *, follow_symlinks: bool = True) -> None:
        old, new = self._below(source), self._below(target)
        if new is None:
            self._elsewhere("link", target)
            self._real["link"](source, target, follow_symlinks=follow_symlinks)
            return
        with self._doing("link", new):
            self._real["link"](source, target, follow_symlinks=follow_symlinks)
            self._name(new, self._nodes[old])

    def _do_unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        below = self._below(path, dir_fd)
        if below is None:
            self._elsewhere("unlink", path, dir_fd)
            self._real["unlink"](path, dir_fd=dir_fd)
            return
        with self._doing("unlink", below):
            self._real["unlink"](path, dir_fd=dir_fd)
            self._name(below, None)

    def _do_rename(self, source: Any, target: Any) -> None:
        old, new = self._below(source), self._below(target)
        if old is None or new is None:
            self._elsewhere("rename", target)
            self._real["replace"](source, target)
            return
        with self._doing("rename", new):
            self._real["replace"](source, target)
            (folder, old_name), (other, new_name) = self._parent(old), self._parent(new)
            node = self._nodes.pop(old)
            assert folder == other, "no product code moves anything to another folder"
            assert not self.disk.is_folder(node)
            self._nodes[new] = node
            self._note(Named(folder, ((old_name, None), (new_name, node)), new))

    def _do_mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        below = self._below(path, dir_fd)
        if below is None:
            self._elsewhere("mkdir", path, dir_fd)
            self._real["mkdir"](path, mode, dir_fd=dir_fd)
            return
        with self._doing("mkdir", below):
            self._real["mkdir"](path, mode, dir_fd=dir_fd)
            node = next(self._numbers)
            self._note(Made(node, is_folder=True))
            self._name(below, node)

    def _do_rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        below = self._below(path, dir_fd)
        if below is None:
            self._elsewhere("rmdir", path, dir_fd)
            self._real["rmdir"](path, dir_fd=dir_fd)
            return
        with self._doing("rmdir", below):
            self._real["rmdir"](path, dir_fd=dir_fd)
            self._name(below, None)

    def _do_io_open(
        self, real: Callable[..., Any], file: Any, mode: str = "r", *more: Any, **named: Any
    ) -> Any:
        if not isinstance(file, int) and set(mode) & set("wax+"):
            below = self._below(file)
            if below is not None:
                raise NotImplementedError(f"write {below} by functions of os: others are not seen")
            self._elsewhere("open", file)
        return real(file, mode, *more, **named)


def read_tree(root: Path) -> State:
    """What is in a folder."""
    found: State = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        found[name] = None if path.is_dir() else path.read_bytes()
    return found


def write_tree(root: Path, tree: State) -> None:
    """Make a folder hold exactly this."""
    root.mkdir(parents=True)
    for name, data in sorted(tree.items()):
        if data is None:
            (root / name).mkdir()
        else:
            (root / name).write_bytes(data)
