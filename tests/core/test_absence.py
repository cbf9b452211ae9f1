"""How long a store that is away is waited for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.run.holding import LONGEST_NS, SECOND_NS, Absence


def test_it_is_asked_again_less_and_less_often():
    absence = Absence(100 * SECOND_NS)
    at_ns, asked = 7 * SECOND_NS, []
    while True:
        again_ns, why = absence.again(at_ns)
        if again_ns is None:
            break
        asked.append((again_ns - at_ns) // SECOND_NS)
        at_ns = again_ns
    assert asked == [1, 2, 4, 8, 16, 30, 30, 9]
    assert why == "the run store has been away for 100 s"


def test_an_answer_ends_the_absence():
    absence = Absence(100 * SECOND_NS)
    assert absence.again(0) == (SECOND_NS, "waiting up to 100 s for the run store")
    assert absence.again(SECOND_NS) == (3 * SECOND_NS, "")
    absence.over()
    assert absence.again(500 * SECOND_NS)[0] == 501 * SECOND_NS


@given(st.integers(0, 10**12), st.lists(st.integers(0, 10**11), max_size=20))
def test_it_never_waits_beyond_its_patience(patience_ns, lates_ns):
    absence = Absence(patience_ns)
    at_ns = 0
    for late_ns in lates_ns:
        again_ns, _ = absence.again(at_ns)
        if again_ns is None:
            assert at_ns >= patience_ns
            return
        assert at_ns < again_ns <= min(at_ns + LONGEST_NS, patience_ns)
        at_ns = again_ns + late_ns
