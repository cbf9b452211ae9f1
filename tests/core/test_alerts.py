"""What somebody is told of, and what not."""

from __future__ import annotations

from dataclasses import replace

from holdfast.core.alerts import SECOND_NS, AlertKind, AlertPolicy, Vital, alerts

MIN = 60 * SECOND_NS
WELL = Vital("r", "running", since_step_ns=SECOND_NS, save_age_ns=MIN)
POLICY = AlertPolicy(checkpoint_ns=10 * MIN, loop=3, ended_ns=60 * MIN)


def kinds(**changes: object) -> list[AlertKind]:
    return [one.kind for one in alerts(replace(WELL, **changes), POLICY)[0]]  # type: ignore[arg-type]


def test_a_run_that_is_well_is_no_news() -> None:
    assert alerts(WELL, POLICY) == ((), "it is under way, and well")
    assert kinds(loops=2, save_age_ns=10 * MIN) == []


def test_each_trouble_is_told() -> None:
    assert kinds(is_suspected=True) == [AlertKind.HANG]
    assert kinds(loops=3) == [AlertKind.CRASH_LOOP]
    loop = {"alike": 8, "alike_words": "MemoryError at train.py:41", "alike_age_ns": MIN}
    assert kinds(**loop, loops=9) == [AlertKind.CRASH_LOOP]
    assert alerts(replace(WELL, **loop), POLICY)[0][0].words == (  # type: ignore[arg-type]
        "8 failures in the same way: MemoryError at train.py:41"
    )
    assert kinds(**{**loop, "alike_age_ns": 61 * MIN}) == []
    assert kinds(save_age_ns=10 * MIN + 1) == [AlertKind.OLD_CHECKPOINT]
    assert kinds(announced=(("the host is taken", MIN), ("another", None))) == [
        AlertKind.NOTICE, AlertKind.NOTICE,
    ]  # fmt: skip
    assert kinds(state="silent") == [AlertKind.SILENT]
    found, _ = alerts(replace(WELL, save_age_ns=11 * MIN, has_saved=False), POLICY)
    assert found[0].words == "nothing was saved yet"
    none = AlertPolicy(checkpoint_ns=None)
    assert alerts(replace(WELL, save_age_ns=900 * MIN), none)[0] == ()


def test_the_most_urgent_comes_first() -> None:
    everything = kinds(
        announced=(("soon", MIN),), is_suspected=True, loops=9, save_age_ns=99 * MIN, state="silent"
    )
    assert everything == [one for one in AlertKind if one is not AlertKind.ENDED]


def test_a_bad_end_is_news_for_a_while() -> None:
    for state in ("failed", "interrupted"):
        assert kinds(state=state, seen_age_ns=MIN, why="it broke") == [AlertKind.ENDED]
        assert kinds(state=state, seen_age_ns=61 * MIN) == []
        assert kinds(state=state, seen_age_ns=None) == []
    for state in ("done", "stopped", "new"):
        assert kinds(state=state, seen_age_ns=MIN, is_suspected=True, loops=9) == []
