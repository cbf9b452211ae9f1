"""What is said while a run waits for its hosts."""

from __future__ import annotations

import pytest

from holdfast.core.hosts.waiting import why_nobody_comes

S = 1_000_000_000


@pytest.mark.parametrize(
    ("heard", "waited_ns", "is_said"),
    [
        ({3}, 120 * S, True),
        ({3}, 119 * S, False),
        ({0, 3}, 600 * S, False),  # the store is shared
        (set(), 600 * S, False),  # this host's own agent is cut off: it says so itself
    ],
)
def test_one_host_that_stays_alone_is_told_that_the_store_may_not_be_shared(
    heard: set[int], waited_ns: int, is_said: bool
) -> None:
    words = why_nobody_comes(heard, waited_ns, 120 * S, "/data/runs")
    assert ("than host 3 has come in 2 min: if" in words and "/data/runs" in words) == is_said
    assert is_said or not words
