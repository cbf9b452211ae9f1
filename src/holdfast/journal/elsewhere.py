"""Where a run's checkpoint sets are, if not in its `ckpt` folder.

The sets of a working copy (`journal.remote`) are in the object store alone. A process knows that by
itself: it has opened that store by its URL, or the supervisor that started it did, and tells it in
its environment. What lies in a store is never followed: whoever may write there could choose where
checkpoints go, and have this machine's own credentials used for it. The note `elsewhere.json` in
the folder is for people who open a working copy as if it were a store.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.config import WORKING_COPY_VARIABLE, inherited_working_copy
from holdfast.errors import ConfigurationError, StoreUnavailable
from holdfast.journal.atomic import encode_json, read_json, write_atomic
from holdfast.journal.names import shown
from holdfast.journal.remote import copied_from

if TYPE_CHECKING:
    from holdfast.journal.objects import Place

ELSEWHERE = "elsewhere.json"


def note_elsewhere(folder: Path, place: Place) -> None:
    """Leave a note in this folder that its sets are at `place`; raises StoreUnavailable."""
    path, said = folder / ELSEWHERE, {"url": str(place)}
    with contextlib.suppress(FileNotFoundError, StoreUnavailable):
        if read_json(path) == said:
            return
    write_atomic(path, encode_json(said))


def telling(root: Path) -> dict[str, str]:
    """The variable by which other processes know what `root` is a working copy of, if it is one."""
    place = copied_from(root)
    if place is None:
        return {}
    place_fields = {"folder": str(root), "url": str(place), "instance_credentials": place.instance}
    return {WORKING_COPY_VARIABLE: json.dumps(place_fields)}


def elsewhere(folder: Path) -> Place | None:
    """Where the sets of this folder are; None: in it.

    Raises StoreUnavailable when only the store itself says that they are not.
    """
    place = copied_from(folder)
    if place is None and (text := inherited_working_copy()):
        place = _below(*_place_of(text), folder)
    if place is None and os.path.lexists(path := folder / ELSEWHERE):
        raise StoreUnavailable(_not_followed(path))
    return place


@functools.cache
def _place_of(text: str) -> tuple[Path, Place]:
    from holdfast.journal.objects import parse_place  # most folders hold their sets themselves

    try:
        said = json.loads(text)
        instance = said["instance_credentials"] is True
        return Path(said["folder"]), parse_place(said["url"], instance=instance)
    except (ValueError, KeyError, TypeError, ConfigurationError) as error:
        raise StoreUnavailable(
            f"the variable {WORKING_COPY_VARIABLE} is {shown(text)}: the environment that "
            "`holdfast run` gave to this process was changed on the way; pass it on unchanged"
        ) from error


def _below(root: Path, place: Place, folder: Path) -> Place | None:
    if not folder.is_relative_to(root):
        return None
    return functools.reduce(lambda at, part: at / part, folder.relative_to(root).parts, place)


def _not_followed(path: Path) -> str:
    """What the note says, and how to agree with it."""
    from holdfast.journal.objects import parse_place

    try:
        place = parse_place(str(read_json(path).get("url")))
    except FileNotFoundError:  # gone since we looked
        return f"{path} vanished; try again"
    except ConfigurationError as error:
        return f"{path} names no object store ({error}); move it away"
    store = str(place).removesuffix("/".join(("", *path.parent.parts[-2:])))
    return (
        f"{path} says that the checkpoints are in {place}, and what a store says of another is not "
        f"followed; if that is right, name it yourself: --store {store}; else move the file away"
    )
