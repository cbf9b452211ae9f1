"""Reads files into the page cache, and does nothing else with them (`holdfast.agent.preload`).

A program of its own, run by the interpreter that the user's command has: that one knows where its
packages are. Plain Python of the standard library, as all of `holdfast.standby`. In: one line of
JSON on standard input. Out: lines of JSON, twice a second and at the end of each part.

A byte is *from disk* when the kernel did not have it at hand (preadv2's RWF_NOWAIT); where a file
system does not say so, nothing is known of that.
"""

from __future__ import annotations

import ctypes
import errno
import importlib.machinery
import importlib.util
import json
import os
import signal
import stat
import sys
import threading
import time
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

PIECE_BYTES = 8 << 20  # what a thread takes at a time
BLOCK_BYTES = 1 << 20
TELL_S = 0.5
SAFELY = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
NOT_DISKS = ("/proc/", "/sys/", "/dev/")
LOADED = (".py", ".pyc", ".so")
LEFT_OUT = frozenset(["tests", "test", "include", "share"])  # folders of packages
PR_SET_PDEATHSIG = 1


class FilesPart:
    """One kind of files, in their order, and how far it has come; for several threads.

    `in_turn`: files are read side by side, as ranks read their shards; else one after the other.
    """

    def __init__(
        self,
        what: str,
        files: Iterable[Sequence[str]],
        most_bytes: int,
        *,
        in_turn: bool = False,
    ) -> None:
        """`files`: each as one path or more: the first that is there is read."""
        self.what = what
        self.left_bytes = most_bytes
        self.files = self.nbytes = self.missing = self.unread = 0
        self.from_disk: int | None = 0
        self.why = ""
        self.is_cut = False
        self.reading: dict[int, str] = {}
        self._listed: set[str] = set()
        self._todo = deque((tuple(paths), 0) for paths in files)
        self._in_turn = in_turn
        self._lock = threading.Lock()

    def work(self) -> None:
        """Until nothing is left, or the bound is met; for a thread."""
        view = memoryview(bytearray(BLOCK_BYTES))
        while not self.is_cut:
            with self._lock:
                if not self._todo:
                    return
                paths, offset = self._todo.popleft()
            self._read(paths, offset, view)

    def _read(self, paths: Sequence[str], offset: int, view: memoryview) -> None:
        path = paths[0]
        try:
            path, descriptor = self._open(paths)
        except (OSError, ValueError) as error:  # ValueError: no path at all
            self._failed(path, error)
            return
        self.reading[threading.get_ident()] = path
        try:
            length = self._claim(path, offset, os.fstat(descriptor).st_size)
            # Else the kernel reads ahead by itself, and that would pass for what was at hand.
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
            for start in range(offset, offset + length, BLOCK_BYTES):
                self._block(descriptor, start, view[: min(BLOCK_BYTES, offset + length - start)])
        except OSError as error:
            self._failed(path, error)
        finally:
            os.close(descriptor)
            self.reading.pop(threading.get_ident(), None)

    def _open(self, paths: Sequence[str]) -> tuple[str, int]:
        """The first that is there. An import looks at the others, and lists the folder, too."""
        found = None
        for path in paths:
            try:
                if found is None:
                    if not stat.S_ISREG(os.stat(path).st_mode):  # to open a device may do something
                        raise OSError(errno.ENXIO, "is no file on a disk", path)
                    found = path, os.open(path, SAFELY)
                else:
                    os.stat(path)
            except FileNotFoundError:
                continue
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), paths[0])
        kind = os.fstat(found[1]).st_mode
        if not stat.S_ISREG(kind) or found[0].startswith(NOT_DISKS):
            os.close(found[1])
            raise OSError(errno.ENXIO, "is no file on a disk", found[0])
        if len(paths) > 1 and (folder := os.path.dirname(paths[-1])) not in self._listed:
            self._listed.add(folder)
            os.listdir(folder)
        return found

    def _claim(self, path: str, offset: int, size_bytes: int) -> int:
        """How much of the file this thread reads; the rest of it is for the next."""
        with self._lock:
            wanted = min(PIECE_BYTES, size_bytes - offset)
            length = max(0, min(wanted, self.left_bytes))
            self.left_bytes -= length
            self.is_cut = self.is_cut or length < wanted
            self.files += offset == 0 and not (wanted and not length)
            if offset + PIECE_BYTES < size_bytes:
                put = self._todo.append if self._in_turn else self._todo.appendleft
                put(((path,), offset + PIECE_BYTES))
            return length

    def _block(self, descriptor: int, start: int, view: memoryview) -> None:
        there = 0
        if self.from_disk is not None:
            try:
                there = os.preadv(descriptor, [view], start, os.RWF_NOWAIT)
            except BlockingIOError:
                pass
            except OSError as error:
                if error.errno != errno.EOPNOTSUPP:
                    raise
                self.from_disk = None
        done = there
        while done < len(view):
            count = os.preadv(descriptor, [view[done:]], start + done)
            if not count:
                break  # it has become shorter
            done += count
        with self._lock:
            self.nbytes += done
            if self.from_disk is not None:
                self.from_disk += done - there

    def _failed(self, path: str, error: OSError | ValueError) -> None:
        with self._lock:
            if isinstance(error, FileNotFoundError):
                self.missing += 1
            else:
                self.unread += 1
                self.why = self.why or f"{path}: {getattr(error, 'strerror', None) or error}"

    def told(self, since_s: float, *, is_over: bool) -> dict[str, Any]:
        """How it stands, for whoever asked for it."""
        with self._lock:
            took_ns = round((time.monotonic() - since_s) * 1e9)
            names = ("what", "files", "nbytes", "from_disk", "missing", "unread", "why", "is_cut")
            told = {name: getattr(self, name) for name in names}
            at = next(iter(self.reading.copy().values()), "")
            return told | {"took_ns": took_ns, "is_over": is_over, "at": at}


def learned_files(modules: Iterable[Any], mapped: Iterable[str]) -> list[tuple[str, ...]]:
    """What Python reads of these modules, in the order in which they were imported.

    `mapped`: what their process had mapped: the libraries that they load come with the first
    module of the package.
    """
    libraries: dict[str, list[str]] = {}
    for path in mapped:
        if ".so" in os.path.basename(path):
            libraries.setdefault(_package(path), []).append(path)
    found: dict[tuple[str, ...], None] = {(path,): None for path in libraries.pop("", ())}
    for _, file in modules:
        if not isinstance(file, str) or not file.endswith(LOADED):
            continue
        for path in libraries.pop(_package(file), ()):
            found[(path,)] = None
        found[_read_of(file)] = None
    for paths in libraries.values():
        found |= {(path,): None for path in paths}
    return list(found)


def _package(path: str) -> str:
    """Whose file it is: the name that follows site-packages; "": the interpreter's own."""
    for site in ("/site-packages/", "/dist-packages/"):
        _, found, rest = path.rpartition(site)
        if found:
            return rest.partition("/")[0].removesuffix(".libs")
    return ""


def _read_of(file: str) -> tuple[str, ...]:
    """What an import reads of a module's file, and looks at."""
    if not file.endswith(".py"):
        return (file,)
    return importlib.util.cache_from_source(file), file


def guessed_files(names: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """What Python may read of these packages, and of those that they say they need."""
    to_do = deque(dict.fromkeys(name.partition(".")[0] for name in names))
    seen: set[str] = set()
    while to_do:
        name = to_do.popleft()
        if name in seen or name in sys.stdlib_module_names:
            continue
        seen.add(name)
        to_do.extend(_needed_by(name))
        for folder in (name, f"{name}.libs"):
            yield from _files_of(folder)


def _files_of(name: str) -> Iterator[tuple[str, ...]]:
    for place in sys.path:
        root = os.path.join(place, name)
        if os.path.isfile(f"{root}.py"):
            yield _read_of(f"{root}.py")
            return
        if os.path.isdir(root):
            for folder, folders, files in os.walk(root):
                folders[:] = sorted(set(folders) - LEFT_OUT - {"__pycache__"})
                for file in sorted(files):
                    if file.endswith(".py") or ".so" in file:
                        yield _read_of(os.path.join(folder, file))
            return


def _needed_by(name: str) -> Iterator[str]:
    """The top folders of the distributions that one needs, extras left out."""
    from importlib import metadata

    try:
        needs = metadata.distribution(name).requires or []
    except metadata.PackageNotFoundError:
        return
    for need in needs:
        if "extra ==" in need:
            continue
        word = "".join(c if c.isalnum() or c in "-_." else " " for c in need).split()[0]
        try:
            files = metadata.distribution(word).files or []
        except metadata.PackageNotFoundError:
            continue
        tops = {str(file).partition("/")[0].removesuffix(".py") for file in files}
        yield from sorted(top for top in tops if top.isidentifier() and top != "__pycache__")


def files_below(places: Iterable[str]) -> Iterator[tuple[str]]:
    """Files as they are, and those below folders, sorted."""
    for place in places:
        if not os.path.isdir(place):
            yield (place,)
            continue
        for folder, folders, files in os.walk(place):
            folders.sort()
            for file in sorted(files):
                yield (os.path.join(folder, file),)


def parts_of(asked: dict[str, Any]) -> Iterator[FilesPart]:
    """The parts that are asked for. Each is bounded by what those before it have left."""
    left_bytes = int(asked["most_bytes"])
    for one in asked["parts"]:
        most_bytes = min(left_bytes, one.get("most_bytes", left_bytes))
        if "modules" in one:
            files: Iterable[Sequence[str]] = learned_files(one["modules"], one["mapped"])
        elif "guessed" in one:
            files = guessed_files(one["guessed"])
        else:
            files = files_below(one["files"])
        part = FilesPart(one["what"], files, most_bytes, in_turn=one.get("in_turn", False))
        yield part
        left_bytes -= most_bytes - part.left_bytes


def depend() -> None:
    """Die with whoever started this; signals of a terminal are for that one."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def main() -> None:
    """Read what is asked for, and tell of it."""
    asked = json.loads(sys.stdin.readline())
    depend()
    for part in parts_of(asked):
        since_s = time.monotonic()
        threads = [threading.Thread(target=part.work, daemon=True) for _ in range(asked["threads"])]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(TELL_S)
                print(json.dumps(part.told(since_s, is_over=False)), flush=True)
        print(json.dumps(part.told(since_s, is_over=True)), flush=True)


if __name__ == "__main__":
    sys.path.pop(0)  # this folder, which is no user's
    main()
