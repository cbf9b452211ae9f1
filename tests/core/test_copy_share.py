"""How fast a part of a set is copied beside the training."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.hosts.copy_share import LEAST, MOST, CopySeen, copy_share

MS, S = 1_000_000, 1_000_000_000
FREE = CopySeen(100 * MS, 100, 300, 1 * S, 50 * MS, 1 * MS)  # 200 ms more, in a second


@pytest.mark.parametrize(
    ("seen", "share", "why"),
    [
        (FREE, 0.2, "it will be there in time"),
        (FREE._replace(left_ns=400 * MS), 0.5, "it will be there in time"),
        (FREE._replace(left_ns=10 * S), LEAST, "it will be there in time"),
        (FREE._replace(left_ns=100 * MS), MOST, "it will be late"),
        (FREE._replace(left_ns=-1), MOST, "it is late"),
        (FREE._replace(waited_ns=51 * MS), LEAST, "others want the cores"),
        (
            FREE._replace(ran_ns=0, waited_ns=0),
            LEAST,
            "nobody knows whether others want the cores",
        ),
    ],
)
def test_what_it_may_use(seen: CopySeen, share: float, why: str) -> None:
    assert copy_share(seen) == (pytest.approx(share), why)


@given(
    cost_ns=st.integers(1, 20 * MS),
    blocks=st.integers(2, 2000),
    within_ns=st.integers(1 * S, 100 * S),
)
def test_it_is_there_in_time_or_goes_as_fast_as_it_may(
    cost_ns: int, blocks: int, within_ns: int
) -> None:
    """Each block takes as much processor time, and what the share says of the time after it."""
    at_ns, shares = 0, []
    for done in range(1, blocks + 1):
        seen = CopySeen(done * cost_ns, done, blocks, within_ns - at_ns, 100, 0)
        share, _ = copy_share(seen)
        shares.append(share)
        at_ns += round(cost_ns / share)
    assert all(LEAST <= share <= MOST for share in shares)
    assert at_ns <= within_ns + cost_ns / LEAST or set(shares) == {MOST}
    if at_ns < within_ns // 2:
        assert set(shares) == {LEAST}
