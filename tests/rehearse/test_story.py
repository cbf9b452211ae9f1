"""The verdict on a rehearsal, and its sentences."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.rehearse.story import RehearsalStory, Rehearsed, lines, verdict
from holdfast.rehearse.tale import Tale

S = 10**9
TALE = Tale(
    attempt=0,
    step=14,
    heard_ns=100 * S + 12_000_000,
    deadline_ns=106 * S,
    told_deadline_ns=106 * S,
    ordered_ns=101 * S,
    agreed_step=14,
    saved_ns=101 * S + 250_000_000,
)
WELL = RehearsalStory(
    Rehearsed.PREEMPTION,
    100 * S,
    TALE,
    at_step=10,
    exit_code=75,
    resumed_step=14,
    new_steps=3,
    lost_steps=0,
)
SHORT = replace(TALE, need_ns=7 * S, saved_ns=None)
DIED = Tale(noticed_ns=101 * S)
STAYED = replace(WELL, exit_code=None, resumed_step=None, new_steps=0, lost_steps=None)


@pytest.mark.parametrize(
    ("story", "is_well", "why"),
    [
        (WELL, True, "no step was lost"),
        (replace(WELL, lost_steps=1), False, "1 step lost, though the deadline allowed a save"),
        (replace(WELL, lost_steps=9, tale=SHORT), True, "9 steps lost: the deadline left less"),
        (replace(WELL, lost_steps=9, tale=replace(SHORT, need_ns=5 * S)), False, "allowed"),
        # How long a save takes was never measured: then nothing excuses a loss.
        (replace(WELL, lost_steps=9, tale=replace(SHORT, need_ns=0)), False, "allowed"),
        (replace(WELL, done_ns=None, exit_code=0), False, "a smaller --after"),
        (replace(WELL, done_ns=None, exit_code=78), False, "exit code 78 before anything"),
        (replace(WELL, at_step=0), False, "no step that Holdfast could see"),
        (replace(WELL, tale=Tale()), False, "it was not noticed"),
        (replace(WELL, resumed_step=None), False, "did not go on"),
        (replace(WELL, new_steps=0), False, "did not go on"),
        (replace(STAYED, exit_code=0), True, "done before it had to leave"),
        (replace(WELL, exit_code=1), False, "failed by itself, with exit code 1"),
        (replace(STAYED, tale=replace(TALE, is_withdrawn=True)), True, "withdrawn"),
        (replace(STAYED, is_taken=True), False, "did not go on"),
        (replace(WELL, tale=DIED), False, "it was not noticed"),
        (replace(WELL, what=Rehearsed.KILL), False, "it was not noticed"),
        (
            replace(WELL, what=Rehearsed.KILL, tale=DIED, lost_steps=9, exit_code=None),
            True,
            "by itself",
        ),
        (
            replace(WELL, what=Rehearsed.HANG, tale=DIED, exit_code=None, new_steps=0),
            False,
            "did not go on",
        ),
    ],
)
def test_verdicts(story, is_well, why):
    got, words = verdict(story)
    assert got is is_well
    assert why in words


def test_the_story_is_told_in_its_order():
    assert lines(WELL) == [
        "preemption at step 10",
        "notice heard after 12 ms",
        "deadline 6 s after that; no save measured yet",
        "all ranks agreed on step 14",
        "saved 0.2 s after the order, 4.8 s before the deadline",
        "left with exit code 75 (start me again)",
        "resumed from step 14",
        "no step lost",
    ]
    taken = lines(replace(WELL, tale=SHORT, is_taken=True, lost_steps=14, resumed_step=0))
    assert "that step was not saved" in taken
    assert taken[-3:] == [
        "still there at the deadline: killed, as the host would have been",
        "resumed from the beginning",
        "14 steps lost",
    ]
