"""A working tree as one file whose name is what is in it: the same tree is sent once.

    tree = packed(Path("."), exclude=["*.ckpt"], folder=scratch)
    tree.digest, tree.path, tree.size_bytes

In a checkout of git: what is tracked, and what is neither tracked nor ignored. Elsewhere all files,
without those folders that are made again anyway.
"""

from __future__ import annotations

import fnmatch
import gzip
import hashlib
import os
import stat
import subprocess
import tarfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import ConfigurationError

MOST_BYTES = 1 << 30
MOST_FILES = 100_000
LEFT_OUT = (".git", ".hg", ".svn", ".venv", "venv", "__pycache__", "node_modules", ".holdfast")
_MIB = 1 << 20
_MTIME = 1_000_000_000  # the same for all: of the same tree the same archive


@dataclass(frozen=True, slots=True)
class PackedTree:
    """A working tree, packed. `unpacked_bytes`: of its files."""

    digest: str
    path: Path
    files: int
    size_bytes: int
    unpacked_bytes: int

    @property
    def words(self) -> str:
        """For people, as in "3 files, 0.1 MiB (0.1 MiB packed), tree 1a2b3c4d"."""
        sizes = f"{self.unpacked_bytes / _MIB:.1f} MiB ({self.size_bytes / _MIB:.1f} MiB packed)"
        files = "1 file" if self.files == 1 else f"{self.files} files"
        return f"{files}, {sizes}, tree {self.digest[:8]}"


def listed(root: Path, exclude: Sequence[str] = ()) -> list[str]:
    """The files of a tree, by their paths in it; raises ConfigurationError where it is too much."""
    if not root.is_dir():
        raise ConfigurationError(f"{root} is no folder: name the one to push")
    found = [name for name in _all_files(root) if not _is_excluded(name, exclude)]
    if not found:
        raise ConfigurationError(f"there is nothing to push in {root}")
    sizes = {name: (root / name).lstat().st_size for name in found}
    total = sum(sizes.values())
    if total > MOST_BYTES or len(found) > MOST_FILES:
        by_top: Counter[str] = Counter()
        for name, size in sizes.items():
            by_top[name.partition("/")[0]] += size
        largest = ", ".join(f"{name} ({size // _MIB} MiB)" for name, size in by_top.most_common(3))
        raise ConfigurationError(
            f"{root} has {len(found)} files with {total // _MIB} MiB, which is more than a working "
            f"tree (at most {MOST_FILES} and {MOST_BYTES // _MIB} MiB are pushed); leave out what "
            f"is none with --exclude, or put it into the store. The largest: {largest}"
        )
    return sorted(found)


def packed(root: Path, exclude: Sequence[str], folder: Path) -> PackedTree:
    """The tree as an archive in that folder. Raises ConfigurationError."""
    names = listed(root, exclude)
    draft = folder / "tree.new"
    total = 0
    with (
        draft.open("wb") as out,
        gzip.GzipFile("", "wb", 1, out, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name in names:
            total += _add(tar, root, name)
    with draft.open("rb") as source:
        digest = hashlib.file_digest(source, "sha256").hexdigest()
    path = folder / f"{digest}.tar.gz"
    draft.replace(path)
    return PackedTree(digest, path, len(names), path.stat().st_size, total)


def _add(tar: tarfile.TarFile, root: Path, name: str) -> int:
    path = root / name
    try:
        found = path.lstat()
        about = tarfile.TarInfo(name)
        about.mtime, about.mode = _MTIME, 0o755 if found.st_mode & 0o100 else 0o644
        if stat.S_ISLNK(found.st_mode):
            about.type, about.linkname = tarfile.SYMTYPE, os.readlink(path)  # noqa: PTH115
            _refuse_outside(root, name, about.linkname)
            tar.addfile(about)
            return 0
        about.size = found.st_size
        with path.open("rb") as source:
            tar.addfile(about, source)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be pushed ({error}); see --exclude") from error
    return found.st_size


def _refuse_outside(root: Path, name: str, target: str) -> None:
    """A link out of the tree leads nowhere on another host."""
    leads_to = os.path.normpath(os.path.join(os.path.dirname(name), target))  # noqa: PTH118, PTH120
    if os.path.isabs(target) or leads_to.startswith(".."):  # noqa: PTH117
        raise ConfigurationError(
            f"{root / name} is a link to {target}, out of the tree, which is not on other hosts; "
            "leave it out with --exclude"
        )


def _all_files(root: Path) -> Iterator[str]:
    of_git = _of_git(root)
    names = _walked(root) if of_git is None else of_git
    for name in names:
        try:
            mode = (root / name).lstat().st_mode
        except FileNotFoundError:  # deleted, and git does not know yet
            continue
        if stat.S_ISDIR(mode) and (root / name / ".git").exists():  # a submodule, or the like
            yield from (f"{name.rstrip('/')}/{one}" for one in _all_files(root / name))
        if stat.S_ISREG(mode) or stat.S_ISLNK(mode):
            yield name


def _of_git(root: Path) -> list[str] | None:
    """None: it is no checkout of git's, or there is no git."""
    words = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(words, capture_output=True, stdin=subprocess.DEVNULL, check=False)
    except OSError:
        return None
    if done.returncode:
        return None
    return list(dict.fromkeys(filter(None, os.fsdecode(done.stdout).split("\0"))))


def _walked(root: Path) -> Iterator[str]:
    for folder, folders, files in os.walk(root):
        folders[:] = [one for one in folders if one not in LEFT_OUT]
        base = Path(folder).relative_to(root)
        links = [one for one in folders if (Path(folder) / one).is_symlink()]
        yield from (str(base / one) for one in [*files, *links])


def _is_excluded(name: str, exclude: Sequence[str]) -> bool:
    """By a pattern for the whole path, for one of its folders, or for its last part."""
    parts = name.split("/")
    ends = ["/".join(parts[: n + 1]) for n in range(len(parts))]
    return any(fnmatch.fnmatch(one, p) for p in exclude for one in (*ends, *parts))
