"""How the hosts of a run stand, in a line. Pure.

hosts_words(3, members) == "2 of 3 train, 1 spare; suspect: 2; lost: 1"
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.core.hosts.membership import JoinedHost, MemberState

MOST = 8  # numbers that are told of one state
TOLD = (MemberState.SUSPECT, MemberState.LOST, MemberState.QUARANTINED, MemberState.WAITING,
        MemberState.REFUSED)  # fmt: skip


def hosts_words(slots: int, members: Iterable[JoinedHost]) -> str:
    """Of a host that came several times the last one counts. `slots`: how many are to train."""
    newest = {one.index: one for one in members}
    of_state: dict[MemberState, list[int]] = {}
    for index, one in sorted(newest.items()):
        of_state.setdefault(one.state, []).append(index)
    trains = sum(one.slot is not None for one in newest.values())
    spares = len(of_state.get(MemberState.SPARE, []))
    found = [f"{trains} of {slots} train" + (f", {spares} spare" if spares else "")]
    for state in TOLD:
        if numbers := of_state.get(state):
            more = " …" if len(numbers) > MOST else ""
            found.append(f"{state}: {', '.join(map(str, numbers[:MOST]))}{more}")
    return "; ".join(found)
