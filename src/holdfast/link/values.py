"""What the two ends of the link and their owners speak of."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from holdfast.config.secret_file import MIN_CHARS
from holdfast.errors import ConfigurationError

if TYPE_CHECKING:
    from holdfast.link.certificate import Certificate

BEAT_S = 0.5
BEATS_PER_S = 4000  # that one controller answers, however many hosts there are
MANY = 100  # hosts, of which so much comes that it is taken together
REST_S, LONGEST_REST_S = 5e-6, 0.01  # for each host, and of all
SILENT_S = 2.0
GIVE_UP_S = 10.0  # then a connection is closed: a host that was frozen connects anew
INCARNATION_BYTES = 16
MAX_INDEX = 2**32 - 1


@dataclass(frozen=True, order=True)
class Peer:
    """One life of one host's agent."""

    index: int
    incarnation: str  # 32 hexadecimal digits, drawn when the agent starts

    def __post_init__(self) -> None:
        if not 0 <= self.index <= MAX_INDEX:
            raise ValueError(f"the index of a host is {self.index}: it must be 0 to {MAX_INDEX}")
        if self.raw_incarnation().hex() != self.incarnation:
            raise ValueError(f"{self.incarnation!r} is no incarnation: 32 hexadecimal digits are")

    def raw_incarnation(self) -> bytes:
        """Its bytes; empty for what is no incarnation."""
        try:
            raw = bytes.fromhex(self.incarnation)
        except ValueError:
            return b""
        return raw if len(raw) == INCARNATION_BYTES else b""


@dataclass(frozen=True)
class Claim:
    """Where the controller of a term listens; the lease holds it."""

    addresses: tuple[str, ...]
    port: int
    term: int
    certificate: str = ""  # the digest of the one that it shows; "": it speaks in the clear


@dataclass(frozen=True)
class Trust:
    """How each end proves to the other that it belongs to the run.

    `certificate`: the controller's own; None: it speaks in the clear, and proves all the same.
    """

    secret: bytes | None = field(default=None, repr=False)
    certificate: Certificate | None = None

    @property
    def is_none(self) -> bool:
        """Whoever can connect is believed: fit for tests on loopback only."""
        return self.secret is None

    def check(self) -> None:
        """Raise ConfigurationError for what is no secret."""
        if self.secret is not None and len(self.secret) < MIN_CHARS:
            raise ConfigurationError(
                f"the run's secret has {len(self.secret)} bytes, and needs {MIN_CHARS} or more"
            )


class LinkState(Enum):
    """How the link to one peer stands."""

    UP = "up"
    SILENT = "silent"
    DOWN = "down"
    REFUSED = "refused"


@dataclass(frozen=True)
class LinkChange:
    """How a link stands since it last changed."""

    state: LinkState
    words: str = ""
    silence_s: float = 0.0  # since the peer was last heard, when this was found
    connection: int = 0  # counts the connections of this end


@dataclass(frozen=True)
class Refusals:
    """Strangers that were turned away; they are not told why."""

    count: int = 0
    words: str = ""  # about the newest


@dataclass(frozen=True)
class ServerNews:
    """What the controller's end has to tell since the last look."""

    messages: dict[Peer, dict[str, Any]]
    changes: dict[Peer, LinkChange]
    refused: Refusals


@dataclass(frozen=True)
class DialerNews:
    """What the agent's end has to tell since the last look."""

    message: dict[str, Any] | None
    change: LinkChange | None
    term: int


def beat_s(hosts: int) -> float:
    """How often each agent of so many says that it lives."""
    return max(BEAT_S, hosts / BEATS_PER_S)


def rest_s(hosts: int) -> float:
    """How long the controller's end rests before it looks what has come; of few hosts: not at all.

    No message waits longer for that.
    """
    return min(LONGEST_REST_S, hosts * REST_S) if hosts >= MANY else 0.0


def silent_after_s(hosts: int) -> float:
    """How long a peer may be unheard before its link is called silent."""
    return max(SILENT_S, 2.5 * beat_s(hosts))


def give_up_after_s(hosts: int) -> float:
    """How long before the connection is closed."""
    return max(GIVE_UP_S, 4 * beat_s(hosts))


def is_measured(round_trip_s: float) -> bool:
    """Whether a peer has told a round trip."""
    return math.isfinite(round_trip_s) and round_trip_s >= 0
