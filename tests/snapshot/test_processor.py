"""What a thread took from others, by how long it ran and waited."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from holdfast.snapshot.processor import ProcessorUse

spans = st.integers(0, 1 << 50)


def test_on_a_processor_that_nobody_wants_it_takes_nothing() -> None:
    assert ProcessorUse(1000, 0).taken_ns == 0
    assert ProcessorUse().taken_ns == 0


def test_shared_evenly_half_of_it_would_have_been_another_ones() -> None:
    assert ProcessorUse(1000, 1000).taken_ns == 500


@given(spans, spans, spans)
def test_it_takes_no_more_than_it_used_and_more_the_longer_it_waited(
    ran_ns: int, waited_ns: int, more_ns: int
) -> None:
    taken_ns = ProcessorUse(ran_ns, waited_ns).taken_ns
    assert 0 <= taken_ns <= ran_ns
    assert taken_ns <= ProcessorUse(ran_ns, waited_ns + more_ns).taken_ns


def test_the_kernel_keeps_this_threads_account() -> None:
    before, until_ns = ProcessorUse.of_this_thread(), time.thread_time_ns() + 50_000_000
    while time.thread_time_ns() < until_ns:
        pass
    use = ProcessorUse.of_this_thread().since(before)
    assert use.ran_ns > 0
    assert use.waited_ns >= 0
