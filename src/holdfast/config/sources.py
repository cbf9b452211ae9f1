"""Where the values of settings come from: four sources. The environment's is an argument.

A value's source, weakest first: the default, holdfast.toml, the environment, a flag.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.config.kinds import FILE, FOLDER, PLACE
from holdfast.config.settings import TABLE, Setting, Settings
from holdfast.config.trusted import name_of
from holdfast.errors import ConfigurationError

CONFIG_FILE = "holdfast.toml"
FILE_MAX_BYTES = 1 << 20
NAME_MAX_CHARS = 100  # of a misspelled name that is compared with ours
CONFIG_VARIABLE = "HOLDFAST_CONFIG"


class ValueSource(Enum):
    """Where a value came from; later ones win."""

    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"
    FLAG = "flag"


class Origin(NamedTuple):
    """A value's source, and its name there: a path, a variable, a flag."""

    source: ValueSource
    where: str


@dataclass(frozen=True, slots=True)
class Resolved:
    """The settings in force, and where each came from."""

    settings: Settings
    origins: Mapping[str, Origin]


def resolve(
    environ: Mapping[str, str],
    flags: Mapping[str, Any],
    config_file: str | None,
    trusted_uids: Collection[int] = (),
) -> Resolved:
    """The settings from all sources; see `holdfast.config.resolve`.

    `trusted_uids`: whose file is read that nobody has named.
    """
    values = {row.name: row.default for row in TABLE}
    origins = {row.name: Origin(ValueSource.DEFAULT, "default") for row in TABLE}
    named = config_file or environ.get(CONFIG_VARIABLE)
    for row, origin, value in (
        *_from_file(Path(named or CONFIG_FILE), None if named else trusted_uids),
        *_from_variables(environ),
        *_from_flags(flags),
    ):
        try:
            values[row.name] = row.kind.parse(value)
        except ValueError:
            raise ConfigurationError(
                f"{row.name} = {shown(value)} ({origin.where}) is not valid: "
                f"give {row.kind.words.replace('`', '')}"
            ) from None
        origins[row.name] = origin
    return Resolved(Settings(**values), origins)


_Given = tuple[Setting, Origin, object]


def _from_file(path: Path, trusted_uids: Collection[int] | None) -> list[_Given]:
    """What a file says; `trusted_uids` None: it was named, and is there, whoever wrote it."""
    try:
        # A pipe is fine (`--config <(…)`), as long as it comes to an end within reason.
        with open(path, "rb", opener=None if trusted_uids is None else _without_waiting) as file:
            if trusted_uids is not None:
                _check_owners(path, file.fileno(), trusted_uids)
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise ConfigurationError(f"{path} is no file: remove it, or name another one")
            data = file.read(FILE_MAX_BYTES + 1)
        text = data.decode("utf-8")
    except FileNotFoundError:
        if trusted_uids is None:
            raise ConfigurationError(f"there is no configuration file {path}") from None
        return []
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from error
    if len(data) > FILE_MAX_BYTES:
        raise ConfigurationError(f"{path} has more than {FILE_MAX_BYTES} bytes: name another file")
    import tomllib  # 10 ms, and most runs have no file

    try:
        raw = tomllib.loads(text)
    except RecursionError:
        raise ConfigurationError(f"{path} is not TOML: it is nested too deep") from None
    except ValueError as error:  # TOMLDecodeError is one; so is that for a number of 5,000 digits
        raise ConfigurationError(f"{path} is not TOML: {error}") from error
    rows = {row.name: row for row in TABLE}
    given = []
    for key, value in raw.items():
        if key not in rows:
            raise ConfigurationError(f"{path}: {shown(key)} is not a setting{near(key, rows)}")
        if (
            rows[key].kind in (FILE, FOLDER, PLACE)
            and isinstance(value, str)
            and value
            and "://" not in value
        ):
            if "\0" in value:
                raise ConfigurationError(f"{path}: {key} holds a zero byte, which no path does")
            # Relative to the file, not to us. Unlike Path's, this leaves `~nobody` as it is.
            value = str(path.parent / os.path.expanduser(value))  # noqa: PTH111
        given.append((rows[key], Origin(ValueSource.FILE, str(path)), value))
    return given


def _without_waiting(path: str, flags: int) -> int:
    """Open what nobody has named: a pipe that somebody has put there would be waited for."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def _check_owners(path: Path, descriptor: int, trusted_uids: Collection[int]) -> None:
    """Of the file, and of the link that may lead to it."""
    for uid in (os.fstat(descriptor).st_uid, path.lstat().st_uid):
        if uid not in trusted_uids:
            raise ConfigurationError(
                f"{path} in the working folder belongs to {name_of(uid)}, who is neither you, nor "
                "root, nor the owner of the script: run elsewhere, or name the file "
                f"(--config, {CONFIG_VARIABLE}) if you trust it"
            )


def _from_variables(environ: Mapping[str, str]) -> list[_Given]:
    """An empty variable is one that is not set, as shells and launchers mean it."""
    return [
        (row, Origin(ValueSource.ENVIRONMENT, row.variable), environ[row.variable])
        for row in TABLE
        if environ.get(row.variable)
    ]


def _from_flags(flags: Mapping[str, Any]) -> list[_Given]:
    rows = {row.name: row for row in TABLE}
    return [
        (rows[name], Origin(ValueSource.FLAG, rows[name].flag), value)
        for name, value in flags.items()
        if value is not None
    ]


def near(name: str, known: Iterable[str]) -> str:
    """What may have been meant instead of `name`, as the end of a sentence."""
    from difflib import get_close_matches

    found = get_close_matches(name[:NAME_MAX_CHARS], list(known), n=1)
    return f"; did you mean {found[0]}?" if found else "; see `holdfast config`"


def shown(value: object) -> str:
    """A value quoted, escaped and shortened for a message."""
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
