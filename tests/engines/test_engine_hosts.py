"""Hosts of an engine in plain parts: what is written down is read back, and looks become events."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.hosts.engine import (
    EngineHost,
    HostChange,
    HostStage,
    Submission,
    changes,
)

WORDS = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12)
SUBMISSIONS = st.builds(
    Submission,
    engine=WORDS,
    run=WORDS,
    run_id=WORDS,
    store=WORDS,
    hosts=st.integers(1, 1000),
    spares=st.integers(0, 9),
    command=st.lists(WORDS, min_size=1, max_size=4).map(tuple),
    ranks=st.none() | st.integers(1, 8),
    flags=st.lists(WORDS, max_size=3).map(tuple),
    options=st.dictionaries(WORDS, WORDS, max_size=3).map(lambda found: tuple(found.items())),
    save_ns=st.none() | st.integers(0, 10**12),
    checkpoint_bytes=st.none() | st.integers(0, 10**15),
)
LOOKS = st.lists(
    st.builds(
        EngineHost,
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from(list(HostStage)),
        reason=st.sampled_from(["", "repair"]),
    ),
    max_size=3,
    unique_by=lambda one: one.name,
)


@given(SUBMISSIONS)
def test_what_is_written_down_is_read_back(wanted: Submission) -> None:
    assert Submission.from_json(wanted.to_json()) == wanted


@given(SUBMISSIONS, st.data())
def test_rubbish_is_a_value_error(wanted: Submission, data: st.DataObject) -> None:
    raw = wanted.to_json()
    key = data.draw(st.sampled_from(sorted(raw)))
    raw[key] = data.draw(st.sampled_from([3.5, -1, True, [1], {"x": 1}, object()]))
    with pytest.raises(ValueError, match=key):
        Submission.from_json(raw)


def test_every_host_runs_the_same_command() -> None:
    wanted = Submission(
        "slurm", "lm", "id", "/runs", 7, 1, ("python", "t.py"), 8, ("--grace", "25")
    )
    said = " ".join(wanted.run_words())
    options = "--hosts 7 --spares 1 --ranks 8 --grace 25 --known"
    assert said == f"holdfast run --name lm --store /runs {options} -- python t.py"


@given(st.lists(LOOKS, max_size=6))
def test_the_events_of_all_looks_together_are_the_last_look(looks: list[list[EngineHost]]) -> None:
    """Whoever begins with nothing and follows the events knows what the last look said."""
    before: list[EngineHost] = []
    known: dict[str, EngineHost] = {}
    for now in looks:
        for event in changes(before, now):
            old = known.get(event.host.name)
            is_new = old is None or event.before is None
            assert is_new or old.stage == event.before
            known[event.host.name] = event.host
        before = now
    told = {one.name: one for one in before}
    gone = {name: one for name, one in known.items() if name not in told}
    assert {name: one for name, one in known.items() if name in told} == told
    assert all(one.stage is HostStage.GONE for one in gone.values())


@given(LOOKS)
def test_a_look_that_says_the_same_is_no_event(look: list[EngineHost]) -> None:
    assert changes(look, look) == ()


def test_a_host_that_is_told_gone_and_then_not_at_all_is_gone_once() -> None:
    ready, gone = EngineHost("a", HostStage.READY), EngineHost("a", HostStage.GONE)
    assert changes([ready], [gone]) == (HostChange(gone, HostStage.READY),)
    assert changes([gone], []) == ()
