"""Which hosts fail again and again, and what is to become of them. Pure.

    suspicion = HostSuspicion(SuspicionPolicy())
    suspicion.lay(at_ns, index=3, words="killed by SIGBUS")
    wanted, reason = suspicion.judge(at_ns, index=3, can_be_spared=True)

A loss or failure is laid at one host: what all hosts do alike is the script's, and so is what the
script raises by itself (`laid_at`). One that has failed so often within a time is to have no part
any more, where another host can take it; else it is tried again, each time after a longer wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from holdfast.core import exits
from holdfast.core.durations import SECOND_NS, in_words
from holdfast.core.exits import Exit, ExitCause

HOUR_NS = 3600 * SECOND_NS


@dataclass(frozen=True, slots=True)
class SuspicionPolicy:
    """`times` failures `within_ns` are too many; 0: nothing follows, however many there are.

    A host that nobody can replace waits `first_ns` then, and twice as long after each more.
    """

    times: int = 3
    within_ns: int = HOUR_NS
    first_ns: int = 5 * SECOND_NS
    cap_ns: int = 300 * SECOND_NS


class HostVerdict(StrEnum):
    """What becomes of a host."""

    TRUSTED = "trusted"
    QUARANTINE = "quarantine"
    WAIT = "wait"  # it has failed too often, and nobody can take its place


# What the hardware, the kernel or somebody on that host did, and neither the script nor the run.
OF_A_HOST = (
    ExitCause.CRASHED,
    ExitCause.KILLED,
    ExitCause.ACCELERATOR,
    ExitCause.HANG,
    ExitCause.OUT_OF_MEMORY,
    ExitCause.UNKNOWN,
)
# These say more of a host than that somebody has ended a process there.
GRAVE = (ExitCause.CRASHED, ExitCause.ACCELERATOR, ExitCause.HANG)


def laid_at(
    cause: ExitCause, rank: int | None, ends: Mapping[int, Exit], hosts: tuple[int, ...]
) -> tuple[int | None, str]:
    """At which host the end of an attempt is laid, by its number in the placement, and why.

    `cause` and `rank`: as the attempt's verdict has them. `ends`: by rank. `hosts`: where each rank
    was. A host that was lost is no matter of this.
    """
    if rank is None or rank not in ends or cause not in OF_A_HOST:
        return None, f"nobody's host is to blame for an attempt that ended as {cause}"
    end, where = ends[rank], hosts[rank]
    if exits.is_from_script(cause, end):
        return None, "the script itself ended so"
    if cause is not ExitCause.HANG:
        own = exits.signature(cause, end)
        for other, its in ends.items():
            if hosts[other] != where and _failed_alike(own, its):
                return None, f"rank {other} failed in the same way on another host"
    return where, exits.classify(end)[1] if cause is not ExitCause.HANG else "a rank hung there"


def _failed_alike(own: str, other: Exit) -> bool:
    """Whether that is the same failure. SIGKILL says nothing: we send it to ranks that are left."""
    cause, _ = exits.classify(other)
    return cause is not ExitCause.KILLED and exits.signature(cause, other) == own


@dataclass(slots=True)
class _Marks:
    """Of one host: when it failed of late, and how it did last.

    `tries`: since it was too often. `is_doubtful`: nobody has tried it out since.
    """

    at_ns: deque[int]
    words: str = ""
    tries: int = 0
    is_doubtful: bool = False


@dataclass(slots=True)
class HostSuspicion:
    """What was laid at each host, by its index. A host costs as much as `times` numbers."""

    policy: SuspicionPolicy = field(default_factory=SuspicionPolicy)
    _records: dict[int, _Marks] = field(default_factory=dict)

    def lay(self, at_ns: int, index: int, words: str, *, is_grave: bool = True) -> None:
        """That host was lost, or an attempt has failed there.

        Not `is_grave`: it may be chance, and the next attempt is not to wait until the host is
        tried out; if it happens again soon, it is.
        """
        kept = max(2, self.policy.times)
        one = self._records.setdefault(index, _Marks(deque(maxlen=kept)))
        is_again = bool(one.at_ns) and at_ns - one.at_ns[-1] <= self.policy.within_ns
        one.is_doubtful |= is_grave or is_again
        one.at_ns.append(at_ns)
        one.words = words
        if self._is_too_often(at_ns, one):
            one.tries += 1
        else:
            one.tries = 0

    def forget(self, index: int) -> None:
        """Somebody trusts it again: the count begins anew, and it is tried out."""
        self._records[index] = _Marks(deque(maxlen=max(2, self.policy.times)), is_doubtful=True)

    def is_fit(self, index: int) -> None:
        """It was tried out."""
        if (one := self._records.get(index)) is not None:
            one.is_doubtful = False

    def doubt(self, index: int) -> None:
        """It is to be tried out."""
        one = self._records.setdefault(index, _Marks(deque(maxlen=max(2, self.policy.times))))
        one.is_doubtful = True

    @property
    def doubtful(self) -> frozenset[int]:
        """Those that are to be tried out before they have a part of an attempt."""
        return frozenset(n for n, one in self._records.items() if one.is_doubtful)

    def blamed(self, at_ns: int) -> tuple[int, ...]:
        """Those that have failed too often of late."""
        found = (n for n, one in self._records.items() if self._is_too_often(at_ns, one))
        return tuple(sorted(found))

    def judge(self, at_ns: int, index: int, *, can_be_spared: bool) -> tuple[HostVerdict, str]:
        """What is to become of that host. `can_be_spared`: another one can take its part."""
        one = self._records.get(index)
        if one is None or not self._is_too_often(at_ns, one):
            return HostVerdict.TRUSTED, ""
        times = self.policy.times
        span = in_words(at_ns - one.at_ns[-times])
        words = f"lost or failed {times} times within {span}, at last: {one.words}"
        return (HostVerdict.QUARANTINE if can_be_spared else HostVerdict.WAIT), words

    def wait_ns(self, at_ns: int) -> int:
        """How long the next attempt waits for the sake of hosts that cannot be replaced."""
        policy, longest_ns = self.policy, 0
        for index in self.blamed(at_ns):
            grown_ns = policy.first_ns << min(self._records[index].tries - 1, 32)
            longest_ns = max(longest_ns, min(policy.cap_ns, grown_ns))
        return longest_ns

    def _is_too_often(self, at_ns: int, one: _Marks) -> bool:
        times = self.policy.times
        return bool(times) and (
            len(one.at_ns) >= times and at_ns - one.at_ns[-times] <= self.policy.within_ns
        )
