"""One recommended command: which, of what is known."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from holdfast.core.durations import SECOND_NS as S
from holdfast.report.advice import RunCondition, advice


@dataclass(frozen=True)
class Broke:
    attempt: int = 3
    rank: int | None = 5
    down_ns: int | None = None


TRAINS = RunCondition("my-run", "running", step_age_ns=S, usual_ns=S, recent_ns=S)
TRAIN = ("python", "train.py", "--tag", "a b")


@pytest.mark.parametrize(
    ("condition", "command", "words", "urgent"),
    [
        (TRAINS, None, "It is training", False),
        (RunCondition("r", "done"), None, "over", False),
        (RunCondition("r", "ended"), None, "over", False),
        (RunCondition("r", "recorded"), None, "Nothing is under way", False),
        (
            RunCondition("r", "new", command=TRAIN),
            "holdfast run --name r -- python train.py --tag 'a b'",
            "never launched",
            False,
        ),
        (
            RunCondition("r", "failed", why="loss is NaN", broke=Broke()),
            "holdfast logs r --attempt 3 --rank 5 --tail 50",
            "loss is NaN",
            True,
        ),
        (
            RunCondition("r", "failed", store="/my stores/x", broke=Broke(rank=None)),
            "holdfast logs r --store '/my stores/x' --attempt 3 --tail 50",
            "gave up",
            True,
        ),
        (
            RunCondition("r", "stopped", command=("train",)),
            "holdfast run --name r -- train",
            "asked to stop",
            False,
        ),
        (RunCondition("r", "interrupted"), None, "supervisor has ended", True),
        (RunCondition("r", "silent"), "holdfast logs r --tail 50", "shows no sign of life", True),
        # Of one that runs: a deadline comes first.
        (replace(TRAINS, deadline_in_ns=20 * S, save_ns=S), None, "by itself", False),
        (
            replace(TRAINS, deadline_in_ns=20 * S, save_ns=15 * S),
            "holdfast save my-run",
            "a save takes 15.0 s",
            True,
        ),
        (
            replace(TRAINS, deadline_in_ns=20 * S, same_again=9),
            "holdfast save my-run",
            "no save was measured",
            True,
        ),
        (replace(TRAINS, deadline_in_ns=-S, save_ns=S), None, "has come", False),
        (
            replace(TRAINS, same_again=3, broke=Broke()),
            "holdfast logs my-run --attempt 3 --rank 5 --tail 50",
            "3 attempts in a row",
            True,
        ),
        (replace(TRAINS, phase_kind="startup", phase_ns=9 * S), None, "nothing to compare", False),
        (
            replace(
                TRAINS,
                phase_kind="backoff",
                phase_ns=9 * S,
                phase_usual_ns=S,
                broke=Broke(),
                why="restarting in 4.2 s, 3 failures in the same way",
            ),
            "holdfast logs my-run --attempt 3 --rank 5 --tail 50",
            "waits on purpose: restarting in 4.2 s, 3 failures in the same way.",
            False,
        ),
        (
            replace(TRAINS, phase_kind="startup", phase_ns=9 * S, phase_usual_ns=8 * S),
            None,
            "usually takes 8.00 s: wait",
            False,
        ),
        (
            replace(TRAINS, phase_kind="startup", phase_ns=99 * S, phase_usual_ns=8 * S),
            "holdfast logs my-run --tail 50",
            "usually takes 8.00 s",
            True,
        ),
        (
            replace(TRAINS, step_age_ns=70 * S),
            "holdfast logs my-run --tail 50",
            "No step for 1 min 10 s",
            True,
        ),
        (
            replace(TRAINS, step_age_ns=70 * S, usual_ns=10 * S, recent_ns=0),
            None,
            "training",
            False,
        ),
        (
            replace(TRAINS, recent_ns=2 * S, straggler=7),
            "holdfast logs my-run --rank 7 --tail 50",
            "2.0 times as long as usual. The others wait for rank 7",
            False,
        ),
    ],
)
def test_what_to_type(
    condition: RunCondition, command: str | None, words: str, urgent: bool
) -> None:
    told = advice(condition)
    assert told.command == command
    assert words in told.reason
    assert told.urgent is urgent


def test_a_name_is_one_word_of_the_shell() -> None:
    told = advice(RunCondition("a; rm -rf /", "silent"))
    assert told.command == "holdfast logs 'a; rm -rf /' --tail 50"
