"""The envelopes in which ranks without a supervisor send their reports and orders. Pure.

Each process has one register in the framework's key-value store, and overwrites it: rank 0, which
leads, with `LeaderSays`, every other rank with `FollowerSays`. In it are the order to the hosts, or
the report of a host of one rank (`core.hosts`), and beside them who speaks to whom, and which set
all are to begin with. A register holds the whole state: what is overwritten before it is read has
only been overtaken.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

from holdfast.journal.fields import load_json

PROTOCOL = 4
MAX_MESSAGE_BYTES = 65_536
MAX_WORD = (1 << 64) - 1


class _Message:
    """Encoding that the two kinds share."""

    def to_bytes(self) -> bytes:
        """Compact JSON."""
        return json.dumps({"v": PROTOCOL, **asdict(self)}, separators=(",", ":")).encode()  # type: ignore[call-overload]

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The inverse; ignores keys it does not know. Raises ValueError saying what is wrong."""
        if len(data) > MAX_MESSAGE_BYTES:
            raise ValueError(f"a message of {len(data)} bytes")
        raw = load_json(data)
        if not isinstance(raw, dict):
            raise ValueError("not an object")
        if raw.get("v") != PROTOCOL:
            raise ValueError(f"it speaks protocol {raw.get('v')!r}, this Holdfast {PROTOCOL}")
        values = {}
        for rule in fields(cls):  # type: ignore[arg-type]
            if rule.name not in raw:
                raise ValueError(f"no {rule.name}")
            values[rule.name] = _checked(rule.name, str(rule.type), raw[rule.name])
        return cls(**values)


@dataclass(frozen=True, slots=True)
class FollowerSays(_Message):
    """A rank's report. `me` and `to` are incarnations: who speaks, and to which leader ('': any).

    `sent_ns`: when, on the sender's clock, on which the report's times are. `choice` is the last
    choice of a checkpoint that it has dealt with, `refused` why it could not be read.
    """

    rank: int
    me: str
    to: str
    number: int  # counts this sender's messages
    run: str
    world_size: int
    holder: dict[str, Any]  # journal.holder.Holder as JSON: is it still alive?
    sent_ns: int = 0
    choice: int = 0
    refused: str | None = None
    report: dict[str, Any] = field(default_factory=dict)  # HostReport; empty: there is none yet


@dataclass(frozen=True, slots=True)
class LeaderSays(_Message):
    """Rank 0's order. `lease_epoch` and `holder` are those of the run's lease in the store.

    `sent_ns`: when, on the sender's clock, on which the order's times are. `choice` numbers the
    choices of a checkpoint (0: none yet), `refusal` is why there is none. `closing`: the leader
    ends.
    """

    me: str
    number: int
    run: str
    world_size: int
    attempt: int
    lease_epoch: int
    holder: dict[str, Any]
    sent_ns: int = 0
    choice: int = 0
    set_name: str | None = None
    set_step: int = 0
    set_parent: int | None = None
    skip_batches: int = 0
    ended_until: int | None = None
    refusal: str | None = None
    closing: bool = False
    order: dict[str, Any] = field(default_factory=dict)  # HostOrder; empty: there is none yet


@dataclass(frozen=True, slots=True)
class Welcome(_Message):
    """The leader has heard this very process: what it says from now on is meant for it."""

    leader: str
    follower: str


def _checked(name: str, kind: str, value: Any) -> Any:
    """The value, if it is of the field's type; whole numbers fit in a word."""
    optional = kind.endswith(" | None")
    if value is None and optional:
        return None
    kind = kind.removesuffix(" | None").partition("[")[0]
    wanted = {"int": int, "str": str, "bool": bool, "dict": dict}[kind]
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        raise ValueError(f"{name} is {value!r}, not {kind}")
    if isinstance(value, int) and not 0 <= value <= MAX_WORD:
        raise ValueError(f"{name} is {value}")
    return value
