"""The agreement word's flags: which buffer an order's copy goes into."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.save.word import MAX_BUFFERS, Order, buffer_of, pack, unpack, with_buffer

flags = st.integers(0, 0xFF)
buffers = st.none() | st.integers(0, MAX_BUFFERS - 1)


@given(flags=flags, buffer=buffers, step=st.integers(0, 2**40 - 1), epoch=st.integers(0, 0xFFFF))
def test_a_buffer_travels_in_the_flags_and_touches_no_other(
    flags: int, buffer: int | None, step: int, epoch: int
) -> None:
    word = unpack(pack(epoch, step, with_buffer(flags, buffer)))
    assert buffer_of(word.flags) == buffer
    others = ~(Order.BUFFER_1 | Order.BUFFER_2)
    assert word.flags & others == flags & others
    assert (word.epoch, word.step) == (epoch, step)


def test_an_order_of_old_goes_into_no_buffer() -> None:
    assert buffer_of(Order.STOP | Order.EARLY) is None
    assert with_buffer(0, None) == 0


@pytest.mark.parametrize("buffer", [-2, -1, 3, 7])
def test_a_buffer_that_cannot_be_is_refused(buffer: int) -> None:
    with pytest.raises(ValueError, match="there is no buffer"):
        with_buffer(0, buffer)
