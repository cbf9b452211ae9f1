"""Settings: one table, four sources. Pure of the process's own environment, which is an argument.

A setting is one field of `Settings`, with its flag, its kind and its meaning; the variable
`HOLDFAST_<NAME>`, the key in holdfast.toml, `holdfast config` and the table in
docs/reference/configuration.md all follow from that field. A value's source, weakest first: the
default, holdfast.toml, the environment, a flag.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from holdfast.errors import ConfigurationError

if TYPE_CHECKING:
    from holdfast.core.hang import HangPolicy
    from holdfast.core.restart import RestartPolicy
    from holdfast.core.saves import SavePolicy

CONFIG_FILE = "holdfast.toml"
FILE_MAX_BYTES = 1 << 20
NAME_MAX_CHARS = 100  # of a misspelled name that is compared with ours
CONFIG_VARIABLE = "HOLDFAST_CONFIG"
PREFIX = "HOLDFAST_"
_T = TypeVar("_T")


class Kind(NamedTuple):
    """What values a setting takes: in words, and a parser that raises ValueError for others."""

    words: str
    parse: Callable[[object], Any]


def _text(value: object) -> str:
    if not isinstance(value, str) or not value or not value.isprintable():
        raise ValueError
    return value


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError
    return int(value)


def _count(least: int) -> Kind:
    def parse(value: object) -> int:
        number = _whole(value)
        if number < least:
            raise ValueError
        return number

    return Kind(f"a whole number, {least} or more", parse)


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError
    try:
        number = float(value)
    except OverflowError:
        raise ValueError from None
    if not 0 <= number < 1e9:
        raise ValueError
    return number


def _period(value: object) -> float:
    number = _seconds(value)
    if not number:
        raise ValueError
    return number


def _choice(*words: str) -> Kind:
    def parse(value: object) -> str:
        if value not in words:
            raise ValueError
        return str(value)

    return Kind(" or ".join(f"`{word}`" for word in words), parse)


def _hang(value: object) -> str | float:
    if isinstance(value, str):
        if value in (AUTO, OFF):
            return value
        word, colon, least = value.partition(":")
        if colon and word == AUTO:
            return f"{AUTO}:{_period(least):g}"
    return _period(value)


def _buffers(value: object) -> str:
    """How many snapshots are held in memory, as text."""
    if isinstance(value, str) and value in (AUTO, OFF):
        return value
    number = _whole(value)
    if not 1 <= number <= MOST_BUFFERS:
        raise ValueError
    return str(number)


def _cache(value: object) -> str | int:
    if value in (AUTO, OFF):
        return str(value)
    size_bytes = _whole(value)
    if size_bytes < 1:
        raise ValueError
    return size_bytes


AUTO, OFF = "auto", "off"
MOST_BUFFERS = 3
BUFFERS = Kind("`auto`, `off`, or how many snapshots, 1 to 3", _buffers)
CACHE_BYTES = 2 << 30
CACHE = Kind("`auto` (2 GiB), `off`, or a number of bytes, 1 or more", _cache)
ENVIRONMENT, INSTANCE = "environment", "instance"
HANG = Kind("`auto`, `auto:SECONDS` (the least), `off`, or seconds, more than 0", _hang)
TEXT = Kind("text", _text)
FOLDER = Kind("a folder", _text)
PLACE = Kind("a folder or a URL", _text)
SECONDS = Kind("seconds", _seconds)
PERIOD = Kind("seconds, more than 0", _period)


def _setting(default: _T, flag: str, kind: Kind, doc: str, default_words: str = "") -> _T:
    shown_default = f"{default:g}" if isinstance(default, float) else str(default)
    words = default_words or f"`{shown_default}`"
    return field(
        default=default,
        metadata={"flag": flag, "kind": kind, "doc": doc, "default_words": words},
    )


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that can be set. None: as the table says under "default"."""

    store: str = _setting(
        "~/.holdfast/store",
        "--store",
        PLACE,
        "Where runs live: a folder, or a URL: file://, s3://, gs:// or az://.",
    )
    store_credentials: str = _setting(
        ENVIRONMENT,
        "--store-credentials",
        _choice(ENVIRONMENT, INSTANCE),
        "Whose credentials open an object store: those in variables, or this machine's too.",
    )
    mirror: str = _setting(
        "~/.holdfast/mirror",
        "--mirror",
        FOLDER,
        "Where this host keeps the records of runs in object stores: a local disk.",
    )
    name: str | None = _setting(
        None, "--name", TEXT, "The run's name.", default_words="the script's name"
    )
    scratch: str | None = _setting(
        None,
        "--scratch",
        FOLDER,
        "Where live journals and logs are written: a local disk or memory, never NFS or FUSE.",
        default_words="`/var/tmp`, else `/dev/shm`",
    )
    ranks: int = _setting(1, "--ranks", _count(1), "Training processes on this host.")
    chips: int | None = _setting(
        None,
        "--chips",
        _count(1),
        "Accelerators that the run occupies; goodput counts their time.",
        default_words="one per rank",
    )
    grace_s: float = _setting(
        30.0,
        "--grace",
        SECONDS,
        "From a SIGTERM to the moment by which all must be saved and gone.",
    )
    save_every_s: float | None = _setting(
        None,
        "--save-every-s",
        PERIOD,
        "Save that often, instead of at the optimum.",
        default_words="the optimum of measured cost and failure rate",
    )
    save_every_steps: int | None = _setting(
        None,
        "--save-every",
        _count(1),
        "Save every that many steps, instead of at the optimum.",
        default_words="the optimum of measured cost and failure rate",
    )
    snapshot_every_s: float | None = _setting(
        None,
        "--snapshot-every-s",
        PERIOD,
        "Copy to memory that often, instead of at the optimum.",
        default_words="the optimum of measured cost and failure rate",
    )
    snapshot_every_steps: int | None = _setting(
        None,
        "--snapshot-every",
        _count(1),
        "Copy to memory every that many steps, instead of at the optimum.",
        default_words="the optimum of measured cost and failure rate",
    )
    keep_last: int = _setting(
        3, "--keep", _count(1), "How many of the newest checkpoints stay; pinned ones always do."
    )
    memory: str = _setting(
        AUTO,
        "--memory",
        BUFFERS,
        "How many snapshots each rank holds in shared memory, from which a restart resumes at "
        "once; `auto` is 3, or none where they do not fit.",
    )
    memory_dir: str = _setting(
        "/dev/shm",  # noqa: S108 - checked for owner, mode and links
        "--memory-dir",
        FOLDER,
        "Where these are held: a folder in memory.",
    )
    max_failures: int = _setting(
        10,
        "--max-failures",
        _count(1),
        "Give up after that many failures in a row without a new step.",
    )
    hang: str | float = _setting(
        AUTO,
        "--hang",
        HANG,
        "After how long without a step the run is hung, and started again: learned, or as set.",
    )
    compile_cache: str | int = _setting(
        AUTO,
        "--compile-cache",
        CACHE,
        "Keep compiled programs (JAX) on this host and in the run's store, up to that size.",
    )
    standby: str = _setting(
        AUTO,
        "--standby",
        _choice(AUTO, OFF),
        "Interpreters that have imported what a rank needs wait for the next attempt; or none do.",
    )
    status: str = _setting(
        "auto",
        "--status",
        _choice("auto", "live", "plain", "off"),
        "The status block: live on a terminal, plain lines elsewhere; or as named.",
    )
    log_level: str = _setting(
        "info",
        "--log-level",
        _choice("error", "warning", "info"),
        "Which of the supervisor's sentences are printed.",
    )

    @property
    def total_chips(self) -> int:
        """The chips whose time is counted: as set, else one per rank."""
        return self.ranks if self.chips is None else self.chips

    @property
    def memory_buffers(self) -> int:
        """How many buffers of the memory tier each rank makes; 0: there is no such tier."""
        if self.memory == OFF:
            return 0
        return MOST_BUFFERS if self.memory == AUTO else int(self.memory)

    @property
    def compile_cache_bytes(self) -> int | None:
        """How much may be kept of compiled programs; None: nothing."""
        if isinstance(self.compile_cache, str):
            return CACHE_BYTES if self.compile_cache == AUTO else None
        return self.compile_cache

    def save_policy(self) -> SavePolicy:
        """When to save: at the intervals that were set, whichever is due; else the optimum."""
        from holdfast.core import saves

        return _fixed(self.save_every_s, self.save_every_steps) or saves.Optimal()

    def snapshot_policy(self) -> SavePolicy:
        """When to copy to memory, likewise."""
        from holdfast.core import saves

        return _fixed(self.snapshot_every_s, self.snapshot_every_steps) or saves.IN_MEMORY

    def hang_policy(self) -> HangPolicy:
        """When a run counts as hung: learned, never, or after so many seconds without a step."""
        from holdfast.core.hang import OFF as NEVER
        from holdfast.core.hang import HangPolicy

        if not isinstance(self.hang, str):
            return HangPolicy(step_ns=round(self.hang * 1e9))
        word, _, least = self.hang.partition(":")
        if word != AUTO:
            return NEVER
        return HangPolicy(floor_ns=round(float(least) * 1e9)) if least else HangPolicy()

    def restart_policy(self) -> RestartPolicy:
        """When to start again after a failure: `max_failures` is the budget."""
        from holdfast.core import restart

        return (
            restart.HopelessCauses()
            | restart.SameFailure()
            | restart.SAME_HANG
            | restart.Budget(self.max_failures)
            | restart.BackOff()
        )


def _fixed(seconds: float | None, steps: int | None) -> SavePolicy | None:
    """The policy of the intervals that were set, whichever is due; None: none was."""
    from holdfast.core import saves

    by_time = None if seconds is None else saves.EverySeconds(seconds)
    by_steps = None if steps is None else saves.EverySteps(steps)
    return by_time | by_steps if by_time and by_steps else by_time or by_steps


class Setting(NamedTuple):
    """One row of the table: a field of `Settings`, and how to set it."""

    name: str
    default: Any
    default_words: str
    flag: str
    kind: Kind
    doc: str

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return PREFIX + self.name.upper()


TABLE: tuple[Setting, ...] = tuple(
    Setting(
        f.name, f.default, **{k: f.metadata[k] for k in ("default_words", "flag", "kind", "doc")}
    )
    for f in fields(Settings)
)


class Source(Enum):
    """Where a value came from; later ones win."""

    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"
    FLAG = "flag"


class Origin(NamedTuple):
    """A value's source, and its name there: a path, a variable, a flag."""

    source: Source
    where: str


@dataclass(frozen=True, slots=True)
class Resolved:
    """The settings in force, and where each came from."""

    settings: Settings
    origins: Mapping[str, Origin]


def resolve(
    environ: Mapping[str, str], flags: Mapping[str, Any], config_file: str | None
) -> Resolved:
    """The settings from all sources; see `holdfast.config.resolve`."""
    values = {row.name: row.default for row in TABLE}
    origins = {row.name: Origin(Source.DEFAULT, "default") for row in TABLE}
    named = config_file or environ.get(CONFIG_VARIABLE)
    for row, origin, value in (
        *_from_file(Path(named or CONFIG_FILE), must_exist=bool(named)),
        *_from_variables(environ),
        *_from_flags(flags),
    ):
        try:
            values[row.name] = row.kind.parse(value)
        except ValueError:
            raise ConfigurationError(
                f"{row.name} = {shown(value)} ({origin.where}) cannot be meant: "
                f"give {row.kind.words.replace('`', '')}"
            ) from None
        origins[row.name] = origin
    return Resolved(Settings(**values), origins)


_Given = tuple[Setting, Origin, object]


def _from_file(path: Path, *, must_exist: bool) -> list[_Given]:
    try:
        # A pipe is fine (`--config <(…)`), as long as it comes to an end within reason.
        with path.open("rb") as file:
            data = file.read(FILE_MAX_BYTES + 1)
        text = data.decode("utf-8")
    except FileNotFoundError:
        if must_exist:
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
            rows[key].kind in (FOLDER, PLACE)
            and isinstance(value, str)
            and value
            and "://" not in value
        ):
            # Relative to the file, not to us. Unlike Path's, this leaves `~nobody` as it is.
            value = str(path.parent / os.path.expanduser(value))  # noqa: PTH111
        given.append((rows[key], Origin(Source.FILE, str(path)), value))
    return given


def _from_variables(environ: Mapping[str, str]) -> list[_Given]:
    """An empty variable is one that is not set, as shells and launchers mean it."""
    return [
        (row, Origin(Source.ENVIRONMENT, row.variable), environ[row.variable])
        for row in TABLE
        if environ.get(row.variable)
    ]


def _from_flags(flags: Mapping[str, Any]) -> list[_Given]:
    rows = {row.name: row for row in TABLE}
    return [
        (rows[name], Origin(Source.FLAG, rows[name].flag), value)
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
