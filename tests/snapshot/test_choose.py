from __future__ import annotations

import fcntl
import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.save.choose import NoChoice, newest_good
from holdfast.errors import ConfigurationError, StoreUnavailable
from holdfast.snapshot import retention
from holdfast.snapshot.retention import Keep, collect, pin, plan, read_pins, unpin
from holdfast.snapshot.sets import SetInfo, newest_sound, set_name

HELD: Any = SimpleNamespace(epoch=1, check=lambda: None)  # a lease that nobody else takes


def info(attempt: int, step: int) -> SetInfo:
    return SetInfo(Path("/s") / set_name(attempt, step), attempt, step, 1, 10, 0, ())


LINEAGE = [(7, None), (6, 300), (2, 100)]


@pytest.mark.parametrize(
    ("sets", "bad", "chosen"),
    [
        ([], [], None),
        ([(7, 400), (7, 500), (6, 300)], [], (7, 500)),
        ([(7, 400), (7, 500), (6, 300)], [(7, 500)], (7, 400)),
        ([(7, 400), (6, 300), (6, 350)], [(7, 400)], (6, 300)),  # 350 was abandoned
        ([(6, 250), (5, 900), (8, 999)], [], (6, 250)),  # neither attempt is on the lineage
        ([(2, 100), (2, 150)], [(6, 300)], (2, 100)),  # 6's set is damaged, not listed
        ([(5, 900)], [], None),
        ([(7, 400)], [(5, 900)], (7, 400)),
        ([], [(5, 900)], None),
    ],
)
def test_choices(
    sets: list[tuple[int, int]], bad: list[tuple[int, int]], chosen: tuple[int, int] | None
) -> None:
    found, reason = newest_good(
        [info(*one) for one in sets], LINEAGE, {set_name(*one): "torn" for one in bad}
    )
    assert not isinstance(found, NoChoice)
    assert (found and (found.attempt, found.step)) == chosen
    assert reason
    if chosen and bad and bad[0] > chosen and bad[0][0] in (7, 6, 2):
        assert f"{set_name(*bad[0])} (torn)" in reason


def test_none_ever_is_not_none_good() -> None:
    assert newest_good([], LINEAGE, {})[1] == "starting from scratch (no checkpoint yet)"
    assert "abandoned" in newest_good([info(5, 900)], LINEAGE, {})[1]
    found, why = newest_good([info(7, 5)], LINEAGE, {set_name(7, 5): "torn"})
    assert found is NoChoice.NONE_GOOD
    assert "torn" in why
    found, why = newest_good([], LINEAGE, {set_name(6, 5): "torn"})
    assert found is NoChoice.NONE_GOOD
    assert "none can be trusted" in why


positions = st.tuples(st.integers(0, 4), st.integers(0, 6))


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[int | None], list[int]]:
    """Parents and resume steps of attempts 0..n."""
    count = draw(st.integers(1, 5))
    parents: list[int | None] = [None]
    parents += [draw(st.none() | st.integers(0, n - 1)) for n in range(1, count)]
    return parents, [draw(st.integers(0, 6)) for _ in range(count)]


@given(histories(), st.sets(positions), st.sets(positions))
def test_choice_against_walking_the_parents(
    history: tuple[list[int | None], list[int]],
    made: set[tuple[int, int]],
    bad: set[tuple[int, int]],
) -> None:
    parents, resumed = history
    chain: list[tuple[int, int | None]] = []
    attempt: int | None = len(parents) - 1
    limit: int | None = None
    while attempt is not None:
        chain.append((attempt, limit))
        limit = resumed[attempt] if limit is None else min(limit, resumed[attempt])
        attempt = parents[attempt]

    # The dumb way: follow the run backwards, step by step.
    expected, any_bad = None, False
    for one, up_to in chain:
        for step in range(6 if up_to is None else up_to, -1, -1):
            if (one, step) in bad:
                any_bad = True
            elif (one, step) in made and expected is None:
                expected = (one, step)
    reasons = {set_name(*one): "torn" for one in bad}
    found, _ = newest_good([info(*one) for one in made], chain, reasons)
    if expected is None and any_bad:
        assert found is NoChoice.NONE_GOOD
    else:
        assert not isinstance(found, NoChoice)
        assert (found and (found.attempt, found.step)) == expected


# ---- retention


def kept(steps: list[int], keep: Keep, **more: object) -> list[int]:
    sets = [info(0, step) for step in steps]
    doomed, reasons = plan(sets, more.pop("pins", {}), keep, **more)  # type: ignore[arg-type]
    assert set(reasons) == {one.name for one in sets}
    for one in sets:
        assert reasons[one.name].startswith("deleted" if one in doomed else "kept")
    return [one.step for one in sets if one not in doomed]


def test_what_is_kept() -> None:
    steps = [100, 200, 300, 400, 500]
    assert kept(steps, Keep(last=2)) == [400, 500]
    assert kept(steps, Keep(last=9)) == steps
    assert kept(steps, Keep(last=1, every=200)) == [100, 200, 400, 500]
    assert kept([90, 210, 290, 405, 500], Keep(last=1, every=200)) == [90, 210, 405, 500]
    assert kept(steps, Keep(last=1), pins={"best": set_name(0, 100)}) == [100, 500]
    assert kept(steps, Keep(last=1), in_use=[set_name(0, 300)]) == [300, 500]
    assert kept([], Keep()) == []


def test_abandoned_sets_never_push_out_the_lineage() -> None:
    """Rolled back from 400 to 100: the new branch has one set, and 100 is still its fallback."""
    sets = [info(0, step) for step in (100, 200, 300, 400)] + [info(1, 150)]
    chain = [(1, None), (0, 100)]
    doomed, _ = plan(sets, {}, Keep(last=3), chain=chain)
    assert doomed == ()  # the lineage has two; nothing goes yet
    doomed, reasons = plan(sets, {}, Keep(last=2), chain=chain)
    assert [one.step for one in doomed] == [200, 300, 400]
    assert "abandoned" in reasons[set_name(0, 400)]


@given(st.sets(positions), st.integers(1, 4), st.none() | st.integers(1, 4))
def test_the_newest_is_never_deleted(
    made: set[tuple[int, int]], last: int, every: int | None
) -> None:
    sets = sorted((info(*one) for one in made), key=lambda one: (one.attempt, one.step))
    doomed, _ = plan(sets, {}, Keep(last, every))
    assert not set(doomed) & set(sets[-last:])


@pytest.mark.parametrize("bad", [{"last": 0}, {"last": -1}, {"last": None}, {"every": 0}])
def test_keeping_nothing_is_refused(bad: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(bad))):
        Keep(**bad)


def test_pins_and_collecting(tmp_path: Path, save: object) -> None:
    made = [save({"w": step}, step=step) for step in range(1, 6)]  # type: ignore[operator]
    ckpt, pins = tmp_path / "ckpt", tmp_path / "pins.json"
    assert read_pins(pins) == {}
    pin(pins, "best", made[0].name)
    pin(pins, "release", made[1].name)
    pin(pins, "best", made[1].name)  # a tag moves
    assert unpin(pins, "release")
    assert not unpin(pins, "release")
    gone = collect(ckpt, pins, Keep(last=2), HELD, in_use=[made[2].name])
    assert gone == (made[0].name,)
    assert collect(ckpt, pins, Keep(last=2), HELD) == (made[2].name,)
    pins.write_text("{ nonsense")
    with pytest.raises(StoreUnavailable, match="no checkpoint will be deleted"):
        collect(ckpt, pins, Keep(last=1), HELD)
    assert sorted(one.name for one in ckpt.iterdir() if one.is_dir()) == [
        made[n].name for n in (1, 3, 4)
    ]


def test_the_newest_sound_set_is_found_without_reading_the_others(
    tmp_path: Path, save: object
) -> None:
    made = {at: save({"w": 1}, attempt=at[0], step=at[1])  # type: ignore[operator]
            for at in [(2, 100), (6, 250), (6, 350), (7, 400), (7, 500)]}  # fmt: skip
    ckpt = tmp_path / "ckpt"
    assert newest_sound(ckpt, LINEAGE) == (made[7, 500], {})
    for at in [(2, 100), (7, 500), (7, 400)]:
        (made[at].path / "manifest.json").write_text("{")
    found, damage = newest_sound(ckpt, LINEAGE)
    assert found == made[6, 250]  # 350 was abandoned
    assert set(damage) == {made[7, 500].name, made[7, 400].name}  # 100 is older: it is not asked
    (made[6, 250].path / "manifest.json").unlink()
    assert newest_sound(ckpt, LINEAGE)[0] is None
    assert newest_sound(ckpt, [])[1] == {}
    for one in made.values():
        shutil.rmtree(one.path)
    assert "none is left" in str(newest_sound(ckpt, LINEAGE)[1])
    assert newest_sound(tmp_path / "no", LINEAGE) == (None, {})


def test_two_that_pin_at_once_lose_no_tag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, a_set = tmp_path / "pins.json", set_name(0, 1)
    pin(path, "first", a_set)
    other = os.open(tmp_path, os.O_RDONLY)  # of a supervisor, that has read them just now
    fcntl.flock(other, fcntl.LOCK_EX)

    def it_writes(_: float) -> None:
        said = {"pins": {"first": a_set, "best": a_set}, "tagged_up_to": [0, 1]}
        path.write_text(json.dumps(said))
        fcntl.flock(other, fcntl.LOCK_UN)

    monkeypatch.setattr(retention, "time", SimpleNamespace(sleep=it_writes))
    pin(path, "mine", a_set)
    os.close(other)
    assert sorted(read_pins(path)) == ["best", "first", "mine"]


def test_nothing_is_pinned_while_sets_are_deleted(tmp_path: Path, save: object) -> None:
    made = [save({"w": step}, step=step) for step in (1, 2)]  # type: ignore[operator]
    other = os.open(tmp_path, os.O_RDONLY)

    def try_to_pin() -> None:
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)

    lease = SimpleNamespace(epoch=1, check=try_to_pin)
    gone = collect(tmp_path / "ckpt", tmp_path / "pins.json", Keep(last=1), lease)
    assert gone == (made[0].name,)
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(other)
