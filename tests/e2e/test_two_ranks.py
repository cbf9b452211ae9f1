"""Two ranks without collectives: one fate, one step for every save."""

from __future__ import annotations

import re
import signal

import pytest
from processes import (
    EXIT_CONFIGURATION,
    EXIT_DONE,
    EXIT_SAVED,
    FAR,
    House,
    expected_digest,
    is_alive,
    kill,
    ranks_of,
)

pytestmark = pytest.mark.real


def test_both_finish(house: House) -> None:
    out = house.run("--ranks", 2, "--save-every", 4, steps=10).wait(EXIT_DONE)
    for rank in (0, 1):
        assert f"[{rank}] final {expected_digest(10)}" in out
    last = sorted((house.store / "r" / "ckpt").glob("*-000000000010"))[-1]
    assert {path.name for path in last.glob("*.safetensors")} == {
        "rank-00000.safetensors",
        "rank-00001.safetensors",
    }


def test_a_stop_saves_both_at_the_same_step(house: House) -> None:
    saved = house.trained("--ranks", 2)
    out = house.finishes("--ranks", 2)
    assert re.findall(r"\[\d\] from (\d+)", out) == [str(saved)] * 2
    assert len(re.findall(r"\[\d\] final", out)) == 2


def test_one_rank_is_killed_and_both_start_again(house: House) -> None:
    house.allow(7)
    run = house.run("--ranks", 2, "--save-every", 3, steps=10)
    run.saw(r"\[0\] did 7")
    run.saw(r"\[1\] did 7")
    first, second = ranks_of(run)
    kill(second)
    house.allow(10)
    out = run.wait(EXIT_DONE)
    assert "rank 1: killed by SIGKILL" in out
    assert not is_alive(first)
    starts = re.findall(r"\[\d\] from (\d+)", out)
    assert len(starts) == 4
    assert starts[2] == starts[3]
    for rank in (0, 1):
        assert f"[{rank}] final {expected_digest(10)}" in out


@pytest.mark.contract("commit: two ranks stop at one step")
def test_sigterm_to_one_rank_is_a_notice_for_both(house: House) -> None:
    house.allow(5)
    run = house.run("--ranks", 2, steps=FAR)
    run.saw(r"\[0\] did 5")
    run.saw(r"\[1\] did 5")
    kill(ranks_of(run)[1], signal.SIGTERM)
    run.saw("SIGTERM to rank 1")
    house.allow(FAR)
    run.wait(EXIT_SAVED)


def test_another_number_of_ranks_is_refused_and_nothing_is_lost(house: House) -> None:
    house.trained("--ranks", 2)
    assert "DataTopologyChanged" in house.run("--ranks", 1, steps=FAR).wait(EXIT_CONFIGURATION)
    house.finishes("--ranks", 2)
