"""What the user says about old checkpoints. Light: `holdfast.start` imports it, and little else."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.errors import ConfigurationError


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
