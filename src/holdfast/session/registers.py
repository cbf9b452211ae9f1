"""Registers in a key-value store: their keys, and what is asked of a store that holds them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

LEADER_KEY = "holdfast/leader/state"


def rank_key(rank: int) -> str:
    """The register of a rank other than 0."""
    return f"holdfast/rank/{rank}"


def welcome_key(rank: int) -> str:
    """Where the leader tells a rank that it was heard."""
    return f"holdfast/welcome/{rank}/state"


class ChannelError(Exception):
    """The store cannot be reached; never raised out of the session."""


class Channel(Protocol):
    """Registers by key. Calls may block for a while; only `session.post` makes them."""

    name: str

    def write(self, key: str, value: bytes) -> None:
        """Overwrite a register; raises ChannelError."""

    def read(self, keys: Sequence[str]) -> dict[str, bytes]:
        """The registers that are there; raises ChannelError."""
