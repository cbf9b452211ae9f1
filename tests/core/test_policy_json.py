"""A run's policy, written into its journal and read back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.exits import ExitCause
from holdfast.core.hang import deadline as hang
from holdfast.core.notices.plan import NoticePolicy, OnNotice
from holdfast.core.run import restart
from holdfast.core.run.as_json import read_policy as decode
from holdfast.core.run.as_json import write_policy as encode
from holdfast.core.run.state import RunPolicy
from holdfast.core.save import policy as saves

whole, some_s = st.integers(1, 10**15), st.floats(0.001, 1e6) | st.integers(1, 10**6)
simple = st.one_of(
    st.just(saves.Never()),
    st.builds(saves.EverySteps, whole),
    st.builds(saves.EverySeconds, some_s),
    st.builds(saves.Optimal, some_s, burst_s=st.none() | some_s, first_steps=whole),
)
save = st.recursive(
    simple,
    lambda part: st.builds(saves.Either, part, part) | st.builds(saves.Both, part, part),
    max_leaves=4,
)
causes = st.lists(st.sampled_from(ExitCause), min_size=1).map(tuple)
restarts = st.lists(
    st.one_of(
        st.builds(restart.HopelessCauses, causes),
        st.builds(restart.SameFailure, st.integers(2, 9), causes),
        st.builds(restart.Budget, st.integers(1, 99)),
        st.builds(restart.BackOff),
        st.builds(restart.CrashLoop, st.integers(2, 9)),
    ),
    min_size=1,
).map(lambda parts: restart.AllOf(tuple(parts)))
policies = st.builds(
    RunPolicy,
    ranks=st.integers(1, 10_000),
    save=save,
    save_in_memory=save,
    restart=restarts,
    hang=st.builds(hang.HangPolicy, st.booleans(), st.none() | whole),
    notice=st.builds(NoticePolicy, st.sampled_from(OnNotice), st.booleans()),
    leave_limit_ns=whole,
    hold_finished_ns=whole,
)


@given(policies)
def test_it_is_read_back(policy: RunPolicy) -> None:
    again = decode(json.loads(json.dumps(encode(policy))))
    assert again == policy
    assert repr(again) == repr(policy)  # 20 is not 20.0 in a sentence
    assert decode({**encode(policy), "mood": "calm"}) == policy  # of a newer version


def test_a_part_of_the_users_own_is_refused_and_not_guessed() -> None:
    class Mine(saves.Never):
        """Of a script that drives the core itself."""

    with pytest.raises(TypeError, match="Mine is no policy"):
        encode(RunPolicy(ranks=1, save=Mine()))


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        [],
        {"policy": "Never"},
        {"policy": "RunPolicy"},
        {"policy": "RunPolicy", "ranks": "2"},
        {"policy": "RunPolicy", "ranks": 2, "save": {"policy": "Budget"}},
        {"policy": "RunPolicy", "ranks": 2, "save": {"policy": "OfTomorrow"}},
        {"policy": "RunPolicy", "ranks": 2, "restart": {"policy": "AllOf", "parts": {}}},
        {"policy": "RunPolicy", "ranks": 2, "notice": {"policy": "NoticePolicy", "then": "fly"}},
    ],
)
def test_rubbish(wrong: object) -> None:
    with pytest.raises(ValueError, match=r"no |missing|not a valid"):
        decode(wrong)
