"""Hosts that say in the store that they have no link to the controller."""

from __future__ import annotations

from pathlib import Path

from holdfast.journal.lease import acquire, view
from holdfast.journal.store import RunStore
from holdfast.journal.unlinked import tell_linked, tell_unlinked, unlinked_hosts


def test_who_has_no_link_says_so_of_one_lease_and_takes_it_back(tmp_path: Path) -> None:
    folder = RunStore(tmp_path).create("r")
    assert unlinked_hosts(folder, 7) == frozenset()
    for index in (2, 12, 2):
        tell_unlinked(folder, 7, index)
    tell_unlinked(folder, 6, 3)
    assert unlinked_hosts(folder, 7) == {2, 12}
    tell_linked(folder, 7, 2)
    tell_linked(folder, 7, 99)
    assert unlinked_hosts(folder, 7) == {12}


def test_a_mark_is_no_claim_of_the_lease(tmp_path: Path) -> None:

    folder = RunStore(tmp_path).create("r")
    lease = acquire(folder)
    tell_unlinked(folder, lease.epoch, 1)
    assert view(folder).epoch == lease.epoch
    lease.check()
