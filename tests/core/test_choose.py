"""Which set the next attempt restores, of what was seen."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.events import Resume
from holdfast.core.run.rollback import Wish
from holdfast.core.save.choose import (
    FETCHES,
    LATELY_NS,
    NoChoice,
    Rejected,
    SealedSet,
    SeenSets,
    Skip,
    StoredSet,
    choose,
    set_name,
)
from holdfast.errors import EXIT_CONFIGURATION, EXIT_UNAVAILABLE

NOTHING = SeenSets("r", -1)
SEEN = SeenSets(
    "r",
    2,
    ((2, None), (1, 30), (0, 10)),
    stored=(StoredSet(0, 10, ("best",)), StoredSet(1, 20), StoredSet(1, 40), StoredSet(2, 40)),
    sealed=(SealedSet(2, 40, 0), SealedSet(2, 44, 1), SealedSet(1, 90, 2)),
)
AT_10, AT_20, AT_44 = set_name(0, 10), set_name(1, 20), set_name(2, 44)
IN_BUFFER_1 = Resume(AT_44, 44, 2, buffer=1, committed_step=40)
IN_BUFFER_0 = Resume(set_name(2, 40), 40, 2, buffer=0, committed_step=40)


def wish(to: int | str | None, skip: int = 0) -> Wish:
    return Wish("w", to, skip, "the loss has a spike", is_from_script=False)


def rejected(*sealed: str, stored: tuple[str, ...] = ()) -> Rejected:
    found = Rejected()
    for name in sealed:
        found = found.add(name, "a bit is flipped", in_memory=True)
    for name in stored:
        found = found.add(name, "here too", in_memory=False)
    return found


@pytest.mark.parametrize(
    ("seen", "wanted", "bad", "resume", "words"),
    [
        (NOTHING, None, rejected(), Resume(None, 0, None), "from scratch (no checkpoint yet)"),
        (SEEN, None, rejected(), IN_BUFFER_1, "step 44 of attempt 2, the newest checkpoint; it is"),
        (SEEN, None, rejected(AT_44), IN_BUFFER_0, "passed over in memory: 0002-000000000044 (a b"),
        (replace(SEEN, sealed=()), None, rejected(), Resume(set_name(2, 40), 40, 2), "step 40"),
        # On attempt 1's branch step 40 was given up when attempt 2 resumed at 30.
        (replace(SEEN, sealed=()), None, rejected(stored=(set_name(2, 40),)),
         Resume(AT_20, 20, 1), "that is good; skipped 0002-000000000040 (here too)"),
        (SEEN, wish(25), rejected(), Resume(AT_20, 20, 1), "up to step 25, as asked"),
        (SEEN, wish("best", 3), rejected(), Resume(AT_10, 10, 0, 3), "; 3 batches from there are"),
        (SEEN, wish(0), rejected(), Resume(None, 0, None), "starting from scratch, as asked"),
        (replace(SEEN, pins=(("best", AT_20),)), wish("best"), rejected(), Resume(AT_20, 20, 1),
         "the checkpoint tagged best"),
        # What started from there passes over as many batches as the attempt that did so before.
        (replace(SEEN, skips=(Skip(AT_44, 44, 5),)), None, rejected(),
         replace(IN_BUFFER_1, skip_batches=5), "; 5 batches from there are skipped"),
        (replace(SEEN, skips=(Skip(AT_44, 44, 5),)), None, rejected(AT_44), IN_BUFFER_0,
         "the 5 batches after step 44 were to be skipped, and are not"),
        # A copy in memory stands in for one that is damaged in the store.
        (replace(SEEN, stored=(), bad=((set_name(2, 40), "torn"),)), None, rejected(AT_44),
         replace(IN_BUFFER_0, committed_step=0), "it is read from memory"),
    ],
)  # fmt: skip
def test_choices(
    seen: SeenSets, wanted: Wish | None, bad: Rejected, resume: Resume, words: str
) -> None:
    found, why = choose(seen, wanted, bad)
    assert found == resume
    assert words in why


@pytest.mark.parametrize(
    ("seen", "wanted", "bad", "found", "words"),
    [
        (replace(NOTHING, newest_attempt=0, chain=((0, None),), bad=((set_name(0, 5), "torn"),)),
         None, rejected(), NoChoice.NONE_GOOD, "none can be trusted: 0000-000000000005 (torn)"),
        (replace(NOTHING, newest_attempt=0, chain=((0, None),)), None,
         rejected(stored=(set_name(0, 5),)), NoChoice.NONE_GOOD, "(here too)"),
        (SEEN, wish(5), rejected(), NoChoice.NONE_SUCH,
         "the loss has a spike: no checkpoint of the lineage is as old as step 5; the lineage has "
         "steps 10, 20, 40, 44; to begin again from scratch, ask for 0 (holdfast rollback r --to"),
        (SEEN, wish("worst"), rejected(), NoChoice.NONE_SUCH, "is tagged worst"),
        # Never silently from step 0, where it is not known what counts.
        (replace(SEEN, unread=((2, "attempts/0002/attempt.json"),)), None, rejected(),
         NoChoice.NONE_GOOD, "bring attempts/0002/attempt.json back"),
        (SeenSets("r", 0, ((0, None),), stored=(StoredSet(3, 9),), unread=((3, "there"),)), None,
         rejected(), NoChoice.NONE_GOOD, "the record of attempt 3 cannot be read"),
    ],
)  # fmt: skip
def test_where_there_is_no_choice(
    seen: SeenSets, wanted: Wish | None, bad: Rejected, found: NoChoice, words: str
) -> None:
    chosen, why = choose(seen, wanted, bad)
    assert chosen is found
    assert words in why


def test_exit_codes() -> None:
    assert NoChoice.NONE_GOOD.exit_code == EXIT_UNAVAILABLE
    assert NoChoice.NONE_SUCH.exit_code == EXIT_CONFIGURATION


def test_a_part_that_did_not_come_is_asked_for_once_more_and_again_after_a_while() -> None:
    once = rejected().not_fetched(AT_44, "host 1 does not answer", 100)
    assert choose(SEEN, None, once.now(100))[0] == IN_BUFFER_1
    twice = once.not_fetched(AT_44, "host 1 does not answer", 200)
    chosen, words = choose(SEEN, None, twice.now(300))
    assert chosen == IN_BUFFER_0
    why = "not fetched 2 times of late: host 1 does not answer"
    assert f"passed over in memory: {AT_44} ({why})" in words
    assert choose(SEEN, None, twice.now(100 + LATELY_NS))[0] == IN_BUFFER_1
    # Of another set, or long ago: neither counts.
    other = once.not_fetched(set_name(2, 40), "no room", 200)
    assert choose(SEEN, None, other.now(300))[0] == IN_BUFFER_1
    late = once.not_fetched(AT_44, "no room", 100 + LATELY_NS)
    assert choose(SEEN, None, late.now(101 + LATELY_NS))[0] == IN_BUFFER_1
    assert len(late.unfetched) == 1


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, LATELY_NS)), max_size=12))
def test_what_is_passed_over_is_what_failed_as_often_of_late(
    failures: list[tuple[int, int]],
) -> None:
    known, all_of_them, at_ns = Rejected(), [], 0
    for number, wait_ns in failures:
        at_ns += wait_ns
        known = known.not_fetched(set_name(0, number), f"at {at_ns}", at_ns)
        all_of_them.append((number, at_ns))
        of_late = [one for one, when in all_of_them if at_ns - when < LATELY_NS]
        expected = {set_name(0, one) for one in of_late if of_late.count(one) >= FETCHES}
        assert {name for name, _ in known.now(at_ns).sealed} == expected
        assert known.sealed == ()  # nothing is for ever
