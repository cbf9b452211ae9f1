"""What the user says about old checkpoints. Light: `holdfast.start` imports it, and little else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import ConfigurationError, StoreUnavailable
from holdfast.journal.atomic import read_json

KEEP_MAX_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Keep:
    """Keep the `last` newest sets and, with `every`, the first set of each `every` steps.

    Tagged and best ones are kept besides. Raises ConfigurationError for what keeps nothing.
    """

    last: int = 3
    every: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("last", self.last), ("every", self.every)):
            if name == "every" and value is None:
                continue
            if type(value) is not int or value < 1:
                raise ConfigurationError(
                    f"Keep({name}={value!r}): give a whole number of at least 1"
                )


def read_keep(path: Path) -> Keep | None:
    """The retention that a script asked for; None: it asked for none, or the file is damaged."""
    try:
        wish = read_json(path, KEEP_MAX_BYTES)
        return Keep(last=wish["last"], every=wish["every"])
    except (FileNotFoundError, StoreUnavailable, ConfigurationError, KeyError):
        return None
