"""What is said of hosts that are silent: one sentence for all that are overdue at a look. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from holdfast.core.durations import in_words
from holdfast.core.hosts.members import JoinedHost

MOST = 8  # numbers that are told


def few(numbers: Iterable[int]) -> str:
    """The first of them: "1, 2, 3"."""
    found = sorted(numbers)
    return ", ".join(map(str, found[:MOST])) + (" …" if len(found) > MOST else "")


def suspect_words(at_ns: int, silent: Collection[JoinedHost]) -> str:
    """They have been silent for a while."""
    if len(silent) == 1:
        (one,) = silent
        return f"Nothing was heard of host {one.index} for {in_words(at_ns - one.heard_ns)}"
    return f"Nothing was heard of {len(silent)} hosts for {_least(at_ns, silent)}: {_which(silent)}"


def lost_words(at_ns: int, lost: Collection[JoinedHost]) -> str:
    """Several are lost."""
    silence = f"nothing was heard of them for {_least(at_ns, lost)}"
    return f"{len(lost)} hosts are lost, {_which(lost)}: {silence}"


def again_words(indices: Collection[int]) -> str:
    """They speak."""
    if len(indices) == 1:
        return f"Host {next(iter(indices))} is heard again"
    return f"{len(indices)} hosts are heard again: {few(indices)}"


def _least(at_ns: int, silent: Collection[JoinedHost]) -> str:
    return f"{in_words(at_ns - max(one.heard_ns for one in silent))} or longer"


def _which(hosts: Collection[JoinedHost]) -> str:
    return few(one.index for one in hosts)
