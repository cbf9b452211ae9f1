"""In what the hosts of a run differ, told without what they run."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.hosts.alike import command_told, differences

RUN = ["python", "train.py", "--key", "hunter2"]


def digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (RUN, []),
        ([*RUN[:3], "hunter3"], ["another command (word 4 of 4)"]),
        (["python3", "t.py", *RUN[2:]], ["another command (words 1, 2 of 4)"]),
        ([*RUN, "--fast"], ["another command (of 5 words, not 4)"]),
        (["python train.py", *RUN[2:]], ["another command (of 3 words, not 4)"]),
    ],
)
def test_another_command_is_told_by_the_place_where_it_differs(
    argv: list[str], words: list[str]
) -> None:
    assert differences((command_told(RUN, digest),), (command_told(argv, digest),)) == words


def test_of_long_commands_the_first_words_are_compared_one_by_one() -> None:
    long = [f"--option-{number}" for number in range(100)]
    here = (command_told(long, digest),)
    late = (command_told([*long[:-1], "x"], digest),)
    early = (command_told(["x" * 9] * 100, digest),)
    assert "option" not in late[0][1]
    assert differences(here, late) == ["another command (it differs behind word 32)"]
    assert differences(here, early) == ["another command (words 1, 2, 3, 4, 5 … of 100)"]
    assert len(late[0][1]) < 300  # it is said twice a second


WORDS = st.lists(st.text(st.characters(exclude_characters="\0"), max_size=9), max_size=40)


@given(WORDS, WORDS)
def test_two_commands_are_alike_if_they_are_equal(one: list[str], other: list[str]) -> None:
    here, there = ((command_told(argv, digest),) for argv in (one, other))
    assert (differences(here, there) == []) == (one == other)


@given(st.text())
def test_what_a_host_tells_may_be_anything(told: str) -> None:
    here = command_told(RUN, digest)
    assert differences((here,), ((here[0], told),)) != []


def test_all_that_differs_is_told_and_what_is_not_told_is_not() -> None:
    here = (("Holdfast", "2"), ("Python", "3.12.1"), ("--hosts", "2"))
    there = (("Holdfast", "1"), ("--hosts", "3"), ("another", "x"))
    assert differences(here, there) == ["Holdfast '1', not '2'", "--hosts '3', not '2'"]
