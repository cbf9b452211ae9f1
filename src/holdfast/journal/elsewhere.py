"""Where a run's checkpoint sets are, if not in its `ckpt` folder: a word in that folder says so."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import ConfigurationError, StoreUnavailable
from holdfast.journal.atomic import encode_json, read_json, write_atomic

if TYPE_CHECKING:
    from holdfast.journal.objects import Place

ELSEWHERE = "elsewhere.json"


def keep_elsewhere(folder: Path, place: Place) -> None:
    """Have the sets of this folder kept at `place` instead; raises StoreUnavailable."""
    if elsewhere(folder) != place:
        said = {"url": str(place), "instance_credentials": place.instance}
        write_atomic(folder / ELSEWHERE, encode_json(said))


def elsewhere(folder: Path) -> Place | None:
    """Where the sets of this folder are; None: in it. Raises StoreUnavailable."""
    path = folder / ELSEWHERE
    if not os.path.lexists(path):
        return None
    try:
        said = read_json(path)
    except FileNotFoundError as error:  # gone since we looked
        raise StoreUnavailable(f"{path} vanished; try again") from error
    from holdfast.journal.objects import parse_place  # most folders hold their sets themselves

    url = said.get("url")
    try:
        return parse_place(str(url), instance=said.get("instance_credentials") is True)
    except ConfigurationError as error:
        raise StoreUnavailable(f"{path} names no object store ({error})") from error
