"""When a kept program is compared with its function."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.kept_programs import LONGEST_S, SETTLE_S, SHARE, compare_in_s


@pytest.mark.parametrize(
    ("trace_s", "ago_s", "in_s"),
    [
        (0.4, None, SETTLE_S),  # never with these variables
        (0.4, -3600.0, SETTLE_S),  # the clock was set back
        (0.4, 0.0, 400.0),
        (0.4, 300.0, 100.0),
        (0.4, 399.5, SETTLE_S),
        (0.4, 1e6, SETTLE_S),
        (60.0, 0.0, LONGEST_S),  # beside the training it costs no more than a core
        (60.0, 500.0, 100.0),
        (0.0, 0.0, SETTLE_S),  # what it took is not known
    ],
)
def test_it_is_due(trace_s: float, ago_s: float | None, in_s: float) -> None:
    assert compare_in_s(trace_s, ago_s) == in_s


@given(st.floats(0, 1e6), st.none() | st.floats(-1e9, 1e9))
def test_it_is_never_at_once_and_never_late(trace_s: float, ago_s: float | None) -> None:
    in_s = compare_in_s(trace_s, ago_s)
    assert SETTLE_S <= in_s <= LONGEST_S
    if ago_s is not None and ago_s >= 0 and in_s > SETTLE_S:
        assert in_s + ago_s <= trace_s * SHARE * (1 + 1e-9) + 1e-6
