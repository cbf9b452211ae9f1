"""How the hosts of a run stand, in a line."""

from __future__ import annotations

from holdfast.core.hosts.in_words import MOST, hosts_words
from holdfast.core.hosts.membership import HostLimits, Membership

S = 1_000_000_000


def words(members: Membership) -> str:
    return hosts_words(members.slots, members.members.values())


def test_who_trains_who_waits_and_who_does_not_count() -> None:
    members = Membership(3, 1, HostLimits())
    assert words(members) == "0 of 3 train"
    for index in range(4):
        members.joined(0, index, f"host {index}")
    assert words(members) == "3 of 3 train, 1 spare"
    members.gone(S, "host 1", "its node is gone")
    assert words(members) == "3 of 3 train; lost: 1"
    for index in (0, 3):
        members.heard(4 * S, f"host {index}")
    members.look(4 * S)
    assert words(members) == "3 of 3 train; suspect: 2; lost: 1"
    members.joined(5 * S, 1, "host 1 again")  # what was before it does not count any more
    assert words(members) == "3 of 3 train, 1 spare; suspect: 2"
    members.set_quarantine(5 * S, {1: "slow"})
    assert words(members) == "3 of 3 train; suspect: 2; quarantined: 1"


def test_of_many_the_first_are_told() -> None:
    members = Membership(1000, 0, HostLimits())
    for index in range(1000):
        members.joined(0, index, f"host {index}")
    members.look(3 * S)
    numbers = ", ".join(map(str, range(MOST)))
    assert words(members) == f"1000 of 1000 train; suspect: {numbers} …"
