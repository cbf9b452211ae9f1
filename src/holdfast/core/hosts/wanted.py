"""What machines a run wants: all that is needed to make them, and to make the same ones again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from holdfast.errors import ConfigurationError

MAX_SLICES = 1024
_PREFIX_CHARS = 40
_ID_CHARS = 6
# A label's key or value, a resource's name, as Google Cloud has them.
_LABEL = re.compile(r"[a-z0-9_-]{0,63}")
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,60}[a-z0-9])?")
_CHIPS = re.compile(r"[a-z0-9]+-(\d{1,5})")
ONE_HOST_CHIPS = 8  # chips or cores, whichever a type's name counts: up to here it is one host
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}")


class Buy(StrEnum):
    """How machines are paid for, and with it how easily they are taken away."""

    ON_DEMAND = "on-demand"
    SPOT = "spot"
    RESERVED = "reserved"
    BEST_EFFORT = "best-effort"


@dataclass(frozen=True, slots=True)
class Machines:
    """One resource of a provider, and what it is made of.

    `prefix` begins the names of its generations; `owner` is the run's id, which is its label.
    `is_queued`: asked for through the provider's queue, as several slices always are. `api`: which
    version of the provider's interface makes them.
    """

    provider: str
    prefix: str
    owner: str
    run: str
    project: str
    zone: str
    accelerator: str
    runtime: str
    slices: int = 1
    is_queued: bool = False
    api: str = "v2alpha1"
    buy: Buy = Buy.ON_DEMAND
    autocheckpoint: bool = True
    script: str = ""
    service_account: str = ""
    network: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    metadata: tuple[tuple[str, str], ...] = ()

    @property
    def is_one_host(self) -> bool:
        """Whether it is certain that no more than one host runs the script.

        From Cloud TPU's tables of accelerator types: of every generation the type with 8 in its
        name is the largest on one host.
        """
        found = _CHIPS.fullmatch(self.accelerator)
        return self.slices == 1 and found is not None and int(found[1]) <= ONE_HOST_CHIPS

    def to_json(self) -> dict[str, Any]:
        """The request as plain data, for a file."""
        pairs = {"labels": dict(self.labels), "metadata": dict(self.metadata)}
        return asdict(self) | pairs | {"buy": str(self.buy)}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Machines:
        """The inverse; raises ValueError, or ConfigurationError as `checked`."""
        kinds = {"slices": int, "is_queued": bool, "autocheckpoint": bool}
        values: dict[str, Any] = {}
        for name in cls.__slots__:
            if name not in raw:
                raise ValueError(f"it has no {name}")
            value = raw[name]
            if name in ("labels", "metadata"):
                is_right = isinstance(value, dict) and all(
                    isinstance(v, str) for v in value.values()
                )
                value = tuple(value.items()) if is_right else None
            elif type(value) is not kinds.get(name, str):
                value = None
            if value is None:
                raise ValueError(f"its {name} is not valid")
            values[name] = Buy(value) if name == "buy" else value
        return checked(cls(**values))


def prefix_for(run: str, run_id: str) -> str:
    """What the names of a run's machines begin with: readable, and unique across stores."""
    words = re.sub(r"[^a-z0-9]+", "-", run.lower()).strip("-")[:_PREFIX_CHARS].rstrip("-")
    stem = words if words[:1].isalpha() else f"run-{words}".rstrip("-")
    return f"{stem}-{run_id[:_ID_CHARS]}"


def checked(machines: Machines) -> Machines:
    """The same; raises ConfigurationError for what no provider would take."""
    for what in ("project", "zone", "accelerator", "runtime"):
        value = getattr(machines, what)
        if not _WORD.fullmatch(value):
            raise ConfigurationError(f"the {what} {value!r} is not valid; name one")
    if not _NAME.fullmatch(machines.prefix):
        raise ConfigurationError(
            f"{machines.prefix!r} cannot begin a machine's name; use small letters, digits and "
            "hyphens, a letter first"
        )
    if not 1 <= machines.slices <= MAX_SLICES:
        raise ConfigurationError(
            f"{machines.slices} slices are not possible; ask for 1 to {MAX_SLICES}"
        )
    if machines.slices > 1 and not machines.is_queued:
        raise ConfigurationError(
            f"{machines.slices} slices are one queued resource, not one node; add --queued"
        )
    if machines.buy is Buy.BEST_EFFORT and not machines.is_queued:
        raise ConfigurationError("a single node cannot be best-effort; add --queued, or use spot")
    for key, value in machines.labels:
        if not key or not _LABEL.fullmatch(key) or not _LABEL.fullmatch(value):
            raise ConfigurationError(
                f"{key}={value} cannot be a label; use small letters, digits, _ and -"
            )
    return machines
