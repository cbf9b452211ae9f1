"""Which words of which ranks ask for a save that nobody has asked for before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.hosts.pages import Asked


def test_the_same_save_is_asked_for_once() -> None:
    asked = Asked()
    assert asked.is_new(0, 1, at_step=4, ordered_step=0)
    assert not asked.is_new(1, 1, at_step=4, ordered_step=5), "it is ordered: step 5 is under way"
    assert not asked.is_new(2, 1, at_step=5, ordered_step=5), "it is done"


def test_each_count_of_the_one_that_asked_last_is_a_save() -> None:
    asked = Asked()
    assert asked.is_new(0, 1, at_step=4, ordered_step=0)
    assert asked.is_new(0, 2, at_step=4, ordered_step=5), "two in one step: the second comes after"


def test_a_count_nobody_has_had_is_a_save_whatever_is_ordered() -> None:
    asked = Asked()
    assert asked.is_new(0, 1, at_step=4, ordered_step=0)
    assert asked.is_new(1, 2, at_step=4, ordered_step=9)


def test_one_that_lags_asks_for_a_step_that_is_not_ordered() -> None:
    asked = Asked()
    assert asked.is_new(0, 1, at_step=4, ordered_step=0)
    assert asked.is_new(1, 1, at_step=9, ordered_step=5)
    assert not asked.is_new(0, 1, at_step=9, ordered_step=10), "now rank 1 asked last"


def test_what_is_heard() -> None:
    asked = Asked()
    assert asked.is_heard(1, 0)
    assert not asked.is_heard(1, 1)
    asked.is_new(1, 1, at_step=0, ordered_step=0)
    assert asked.is_heard(1, 1)
    assert not asked.is_heard(0, 1), "each rank has a count of its own"


@given(
    ranks=st.integers(1, 4),
    saves=st.integers(1, 6),
    order=st.randoms(use_true_random=False),
)
def test_ranks_of_one_script_get_one_save_each_time(ranks: int, saves: int, order: object) -> None:
    """All ask in step 10n, in any order of their words: n saves, each of its own step."""
    asked = Asked()
    ordered = 0
    steps = []
    for count in range(1, saves + 1):
        at_step = 10 * count
        names = list(range(ranks))
        order.shuffle(names)
        for rank in names:
            if asked.is_new(rank, count, at_step, ordered):
                ordered = at_step + 1
                steps.append(ordered)
    assert steps == [10 * count + 1 for count in range(1, saves + 1)]
