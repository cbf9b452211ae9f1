"""run.json: what a run is. It is created once, and changed by a new name only."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

from holdfast.core.value import value
from holdfast.errors import ConfigurationError, StoreUnavailable
from holdfast.journal.atomic import create_exclusive, encode_json, read_json, write_atomic
from holdfast.journal.clocks import boot_id, now_ns
from holdfast.journal.fields import text, texts, whole
from holdfast.journal.names import is_name, shown

FORMAT_VERSION = 1
RUN_FILE = "run.json"
_RUN_ID = re.compile(r"[0-9a-f]{1,64}")


@value
class RunIdentity:
    """What run.json says. Times are unix nanoseconds of the host that created the run."""

    name: str
    run_id: str
    created_unix_ns: int
    requested_unix_ns: int  # when the run's resources were first asked for: its time line's origin
    command: tuple[str, ...]
    code_hash: str | None = None  # not computed yet; kept so that old readers know the key
    requested_boot_id: str = ""  # the same instant on the clock of that boot, which nobody sets
    requested_boot_ns: int = 0
    first_name: str = ""  # under which it was created, if it was renamed since

    def requested_ns(self) -> int:
        """When the run's resources were asked for, on this boot's clock (`clocks.now_ns`).

        On another boot the wall clocks of then and now are all there is; never later than now.
        """
        if self.requested_boot_id == boot_id():
            return self.requested_boot_ns
        return max(0, now_ns() - max(0, time.time_ns() - self.requested_unix_ns))


def read_identity(path: Path, *, is_hidden: bool = False) -> RunIdentity:
    """What run.json in `path` says; FileNotFoundError when there is none."""
    file = path / RUN_FILE
    raw = read_json(file)
    version = raw.get("format")
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise ConfigurationError(
            f"the run {path.name!r} was written by a newer Holdfast (format {version}, this one "
            f"reads up to {FORMAT_VERSION}); install a newer Holdfast"
        )
    try:
        identity = RunIdentity(
            name=text(raw, "name"),
            run_id=_run_id(raw),
            created_unix_ns=whole(raw, "created_unix_ns"),
            requested_unix_ns=whole(raw, "requested_unix_ns"),
            command=texts(raw, "command"),
            code_hash=None if raw.get("code_hash") is None else text(raw, "code_hash"),
            requested_boot_id=text({"requested_boot_id": "", **raw}, "requested_boot_id"),
            requested_boot_ns=whole({"requested_boot_ns": 0, **raw}, "requested_boot_ns"),
            first_name=_first_name(raw),
        )
    except ValueError as error:
        raise StoreUnavailable(f"{file} is damaged ({error}); move it away") from error
    if identity.name != path.name and not is_hidden:
        raise StoreUnavailable(
            f"{file} says that it is run {shown(identity.name)}: the folder was renamed or copied; "
            "give it its old name (and rename runs with holdfast mv)"
        )
    return identity


def create_identity(path: Path, identity: RunIdentity) -> None:
    """Write run.json into `path`; FileExistsError when there is one, else StoreUnavailable."""
    create_exclusive(path / RUN_FILE, encode_json(_to_json(identity)))


def replace_identity(path: Path, identity: RunIdentity) -> None:
    """Write it anew; raises StoreUnavailable."""
    write_atomic(path / RUN_FILE, encode_json(_to_json(identity)))


def _to_json(identity: RunIdentity) -> dict[str, Any]:
    return {
        "format": FORMAT_VERSION,
        "name": identity.name,
        "run_id": identity.run_id,
        "created_unix_ns": identity.created_unix_ns,
        "requested_unix_ns": identity.requested_unix_ns,
        "command": list(identity.command),
        "code_hash": identity.code_hash,
        "requested_boot_id": identity.requested_boot_id,
        "requested_boot_ns": identity.requested_boot_ns,
        **({"first_name": identity.first_name} if identity.first_name else {}),
    }


def _first_name(raw: dict[str, Any]) -> str:
    """The name that it had at first; it becomes part of a folder's name."""
    name = text({"first_name": "", **raw}, "first_name")
    if name and not is_name(name):
        raise ValueError(f"its first_name is {shown(name)}")
    return name


def _run_id(raw: dict[str, Any]) -> str:
    """The run's id; it becomes part of a folder's name, so nothing but what `new_id` gives."""
    run_id = text(raw, "run_id")
    if not _RUN_ID.fullmatch(run_id):
        raise ValueError(f"its run_id is {shown(run_id)}")
    return run_id
