"""What this user has agreed that a run's machines are made of: a record on this host.

Whoever can write into a run's store can change what is written there of its machines: the script
they run, the account they run it as, the project that pays. They are made with the rights of the
user who asks for them here, so the store's word counts only as far as it says what `holdfast up`
was told here, or what the user has seen and agreed to.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from holdfast.config import agreed_folder
from holdfast.core.hosts.wanted import Machines
from holdfast.errors import ConfigurationError, StoreUnavailable
from holdfast.journal.atomic import encode_json, make_folder, read_json, write_atomic
from holdfast.journal.store import RunFolder

_DIGEST_CHARS = 12
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


def agree(folder: RunFolder, machines: Machines) -> None:
    """Remember that these are agreed to; raises StoreUnavailable."""
    path = agreed_path(folder)
    make_folder(path.parent)
    write_atomic(path, encode_json(machines.to_json()))


def agreed(folder: RunFolder) -> Machines | None:
    """What was agreed to; None: nothing, or nothing that can be read."""
    path = agreed_path(folder)
    with contextlib.suppress(OSError, StoreUnavailable, ConfigurationError, ValueError):
        if not (is_only_mine(path.parent) and is_only_mine(path)):
            return None
        return Machines.from_json(read_json(path))
    return None


def differences(known: Machines | None, stored: Machines) -> Iterator[str]:
    """What the store says that is not agreed to, line by line."""
    from difflib import unified_diff

    for one in fields(Machines):
        old, new = (None if of is None else getattr(of, one.name) for of in (known, stored))
        if known is None and not new:
            continue
        if one.name != "script":
            if old != new:
                yield f"{one.name}: {new!r}" + ("" if known is None else f", agreed: {old!r}")
            continue
        lines = unified_diff((old or "").splitlines(), stored.script.splitlines(), n=2, lineterm="")
        for number, line in enumerate(lines):
            yield "script:" if number == 0 else f"  {line}"


def is_only_mine(place: Path) -> bool:
    """Whether nobody else may write there; raises OSError where there is nothing."""
    found = place.lstat()
    return found.st_uid == os.geteuid() and not found.st_mode & _OTHERS_MAY_WRITE


def agreed_path(folder: RunFolder) -> Path:
    """Of the store's place and the run's name: its id is the store's word, too."""
    place = f"{folder.store}\0{folder.name}"
    digest = hashlib.sha256(place.encode(errors="surrogateescape")).hexdigest()[:_DIGEST_CHARS]
    return agreed_folder() / f"{folder.name}-{digest}.json"
