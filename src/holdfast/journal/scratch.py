"""Local scratch: where live journals and live logs are mapped and appended.

A mapped page of a network filesystem can block or kill the process that touches it, so the scratch
folder is only ever on a local disk or in memory. It is private: others must not be able to read a
run's output, nor to plant a link where we are about to write.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from holdfast.config import scratch_folder
from holdfast.errors import StoreUnavailable
from holdfast.journal.atomic import PRIVATE_FOLDER, make_folder
from holdfast.journal.holder import RunHolder
from holdfast.journal.store import RunFolder

OWNER_FILE = "owner.json"
CACHE_FOLDER = "cache"  # compiled programs, for all attempts of the run on this host
_TRIES = 100  # each but the last is one of another run's ends
BASES = (Path("/var/tmp"), Path("/dev/shm"))  # noqa: S108 - checked for owner, mode and links

# Types in mountinfo that reach over a network or through a process; `fuse.*` comes on top.
REMOTE_FILESYSTEMS = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "coda", "fuse", "fuseblk", "gfs2", "glusterfs", "gpfs"}
    | {"lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "pvfs2", "smb3", "smbfs"}
    | {"virtiofs", "wekafs"}
)


def scratch_dir(key: str, *, uid: int | None = None, bases: Sequence[Path] | None = None) -> Path:
    """`BASE/holdfast-UID/KEY/` on the first of `bases` that is local and ours; created, mode 0700.

    `key` is a run's `scratch_key`, which holds the run id: two stores may have runs of one name.
    `bases` is by default the configured scratch folder, else /var/tmp, else /dev/shm; one that was
    configured is created. Raises StoreUnavailable with the reason for each when none will do.
    """
    uid = os.getuid() if uid is None else uid
    if bases is None:
        configured = scratch_folder()
        bases = BASES if configured is None else (Path(configured),)
    refused = []
    for given in bases:
        base = given.expanduser().absolute()
        reason = _unfit(base)
        if not reason:
            own = base / f"holdfast-{uid}"
            reason = claim_folders(uid, own, own / key)
        if not reason:
            return own / key
        refused.append(reason)
    raise StoreUnavailable(
        f"no local folder for the live journal: {'; '.join(refused)}; "
        "name one with --scratch or HOLDFAST_SCRATCH"
    )


def existing_scratch(key: str, configured: str | None) -> list[Path]:
    """The run's scratch folders that are there and ours, in any of the bases; none is made."""
    bases = BASES if configured is None else (Path(configured),)
    uid = os.getuid()
    found = []
    for base in bases:
        place = base.expanduser().absolute() / f"holdfast-{uid}" / key
        with contextlib.suppress(OSError):
            info = place.lstat()
            if stat.S_ISDIR(info.st_mode) and info.st_uid == uid:
                found.append(place)
    return found


def make_scratch(folder: RunFolder, rank: int, incarnation: str) -> tuple[Path, Path]:
    """A session's own place, and its live journal's path: for a rank without a supervisor.

    It says whose it is, so that `adopt` leaves it alone as long as that process lives.
    """
    place = scratch_dir(folder.scratch_key) / f"alone-{incarnation}"
    place.mkdir(mode=PRIVATE_FOLDER)
    (place / OWNER_FILE).write_text(json.dumps(RunHolder.current().to_json()))
    return place, place / f"rank-{rank:05d}.hfj"


def owner_of(place: Path) -> RunHolder | None:
    """The process whose place this is; None if it does not say."""
    try:
        return RunHolder.from_json(json.loads((place / OWNER_FILE).read_text()))
    except (OSError, KeyError, TypeError, ValueError):
        return None


def remove_scratch(place: Path) -> None:
    """Remove a session's own place; raises OSError."""
    for path in place.iterdir():
        path.unlink()
    place.rmdir()


def filesystem_of(path: Path, mountinfo: str | None = None) -> str:
    """The type of the filesystem that holds `path` (`ext4`, `nfs4`, `fuse.sshfs`); '' if unknown.

    `mountinfo` is the text of /proc/self/mountinfo (proc(5)). The longest mount point above the
    path counts, and of several mounts on one point the last, which hides the others.
    """
    if mountinfo is None:
        try:
            mountinfo = Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
        except OSError:
            return ""
    real = os.path.realpath(path)
    best, kind = -1, ""
    for line in mountinfo.splitlines():
        left, separator, right = line.partition(" - ")
        fields = left.split(" ")
        if not separator or len(fields) < 5:
            continue
        point = _unescape(fields[4])
        above = point == "/" or real == point or real.startswith(point + "/")
        if above and len(point) >= best:
            best, kind = len(point), right.split(" ", 1)[0]
    return kind


def is_remote(filesystem: str) -> bool:
    """Whether a filesystem of that type may answer late or never."""
    return filesystem in REMOTE_FILESYSTEMS or filesystem.startswith("fuse.")


def _unfit(base: Path) -> str:
    if base not in BASES:  # the system's own are there, or are not ours to create
        try:
            make_folder(base)
        except StoreUnavailable as error:
            return str(error)
    if not base.is_dir():
        return f"{base} is not there"
    kind = filesystem_of(base)
    return f"{base} is on {kind}, which is not local" if is_remote(kind) else ""


def claim_folders(uid: int, *folders: Path) -> str:
    """`claim_folder` for each, which lies in the one before it; returns what is wrong, or "".

    Other runs remove what they leave empty, perhaps just before something is put into it: then all
    are made once more.
    """
    reason = ""
    for _ in range(_TRIES):
        try:
            return next((words for folder in folders if (words := _claim(folder, uid))), "")
        except FileNotFoundError as error:
            reason = f"{error.filename} is not there (any more)"
    return reason


def claim_folder(folder: Path, uid: int) -> str:
    """Create a private folder, or check the one that is there; returns what is wrong, or ""."""
    try:
        return _claim(folder, uid)
    except FileNotFoundError:
        return f"{folder} cannot be created (the one that it lies in is not there)"


def _claim(folder: Path, uid: int) -> str:
    """Return what is wrong, or ""; FileNotFoundError where it, or what it lies in, is removed."""
    try:
        folder.mkdir(PRIVATE_FOLDER)
    except FileExistsError:
        pass
    except FileNotFoundError:
        raise
    except OSError as error:
        return f"{folder} cannot be created ({error.strerror})"
    try:
        info = folder.lstat()
        if not stat.S_ISDIR(info.st_mode):
            return f"{folder} is not a folder"
        if info.st_uid != uid:
            return f"{folder} belongs to user id {info.st_uid}"
        if info.st_mode & 0o077:
            folder.chmod(PRIVATE_FOLDER)
        if not os.access(folder, os.W_OK | os.X_OK):
            folder.lstat()  # no access because it is gone is another matter
            return f"{folder} cannot be written"
    except FileNotFoundError:
        raise
    except OSError as error:
        return f"{folder} cannot be checked ({error.strerror})"
    return ""


def _unescape(field: str) -> str:
    """Undo mountinfo's octal escapes of space, tab, newline and backslash."""
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        field = field.replace(code, char)
    return field
