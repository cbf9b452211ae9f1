"""Two ranks with torch.distributed and no supervisor: one step for every save and every stop."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import sys

import pytest
from pairs import Pair, both_did, ends, finals, goes_on, starts
from processes import (
    EXIT_CONFIGURATION,
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_SAVED,
    EXIT_UNAVAILABLE,
    FAR,
    House,
)
from together import FULL, Together

from holdfast.session import channel_torch

pytestmark = pytest.mark.real

torch = pytest.importorskip("torch")


@pytest.fixture
def pair(house: House) -> Pair:
    return Pair(house, "rank_torch.py")


def straight(steps: int) -> list[str]:
    """The digests of a run that nothing disturbs: the same arithmetic, with no Holdfast near it."""
    noises = [torch.Generator().manual_seed(rank) for rank in (0, 1)]
    weights = torch.zeros(64, dtype=torch.float64)
    for step in range(1, steps + 1):
        one, other = (
            torch.rand(64, dtype=torch.float64, generator=noise) * step for noise in noises
        )
        weights += one + other
    return [hashlib.sha256(weights.numpy().tobytes()).hexdigest()[:16]] * 2


@pytest.mark.parametrize("start", ["before", "after"])
def test_both_finish_and_all_is_on_record(house: House, pair: Pair, start: str) -> None:
    outputs = pair.run(12, START=start, HOLDFAST_SAVE_EVERY_STEPS=5)
    assert len(set(finals(outputs))) == 1
    assert house.saved_step() == 12
    (last,) = [folder for folder in house.sets() if folder.name.endswith("-000000000012")]
    assert len(list(last.glob("rank-*.safetensors"))) == 2
    assert [end["cause"] for end in ends(house)] == ["done"]
    journals = (house.store / "r" / "attempts" / "0000" / "journal").glob("*.hfj")
    assert sorted(path.name for path in journals) == ["rank-00000.hfj", "rank-00001.hfj"]
    report = house.holdfast("report", "r").wait(EXIT_DONE)
    assert "done · 1 attempt · 2 chips" in report
    assert "12 steps kept, 0 lost" in report
    left = [names for _, _, names in os.walk(os.environ["HOLDFAST_SCRATCH"]) if names]
    assert left == []


@pytest.mark.parametrize(
    ("whom", "times"),
    [((1,), 1), ((0,), 1), ((0, 1), 1), ((1, 0), 2)] if FULL else [((0,), 1), ((1, 0), 2)],
    ids=str,
)
def test_sigterm_stops_both_at_one_step(
    house: House, pair: Pair, whom: tuple[int, ...], times: int
) -> None:
    house.allow(5)
    ranks = pair.start(FAR)
    both_did(ranks, 5)
    for _ in range(times):
        for rank in whom:
            ranks[rank].send(signal.SIGTERM)
    ranks[0].saw("saving at the next step, then stopping")
    house.allow(FAR)
    for process in ranks:
        process.wait(EXIT_SAVED)
    saved = house.saved_step()
    assert saved >= 5
    (end,) = ends(house)
    assert end["cause"] == "preempted"
    outputs = pair.run(saved + 4)
    assert starts(outputs) == [saved, saved]
    assert finals(outputs) == straight(saved + 4)
    assert "1 disruption" in house.holdfast("report", "r").wait(EXIT_DONE)


def test_a_rank_killed_during_a_stop_does_not_hold_the_other(house: House, pair: Pair) -> None:
    ranks, _ = pair.trained()
    ranks[0].send(signal.SIGTERM)
    ranks[0].saw("saving at the next step, then stopping")
    ranks[1].send(signal.SIGKILL)
    ranks[1].wait(-signal.SIGKILL)
    house.allow(FAR)
    ranks[0].wait()
    saved = house.saved_step()
    outputs = pair.run(saved + 20)
    goes_on(outputs, saved)
    assert finals(outputs) == straight(saved + 20)


@pytest.mark.parametrize("victim", [0, 1] if FULL else [1])
def test_sigkill_of_a_rank_and_the_result_is_the_same(
    house: House, pair: Pair, victim: int
) -> None:
    ranks, did = pair.trained()
    ranks[victim].send(signal.SIGKILL)
    house.allow(FAR)
    for process in ranks:
        process.wait()
    saved = house.saved_step()
    outputs = pair.run(did + 5)
    goes_on(outputs, saved)
    assert finals(outputs) == straight(did + 5)


@pytest.mark.parametrize("rank", [0, 1])
def test_the_record_names_the_rank_that_failed_first(house: House, pair: Pair, rank: int) -> None:
    for process in pair.start(9, CRASH_AT=f"{rank}:4"):
        process.wait(EXIT_FAILED)
    (end,) = ends(house)
    assert end["cause"] == "failed"
    told = "the loss is not a number at step 4"
    who = "" if rank == 0 else "rank 1: "
    assert re.fullmatch(rf"{who}ValueError at \S+gates\.py:\d+: {told}", str(end["words"]))
    report = house.store / "r" / "attempts" / "0000" / "ranks" / f"rank-{rank:05d}.json"
    assert told in json.loads(report.read_text())["message"]


def test_ranks_of_a_run_that_is_held_end_alike(house: House, pair: Pair) -> None:
    house.allow(3)
    ranks = pair.start(FAR)
    both_did(ranks, 3)
    late = pair.start(FAR)
    assert "is held by" in late[0].wait(EXIT_UNAVAILABLE)
    assert "HoldfastError" in late[1].wait(EXIT_FAILED)
    for process in ranks:
        process.send(signal.SIGTERM)
    house.allow(FAR)
    for process in ranks:
        process.wait(EXIT_SAVED)


def test_without_a_process_group_it_says_what_to_do(pair: Pair) -> None:
    for out in pair.run(3, code=EXIT_CONFIGURATION, START="never"):
        assert "neither jax.distributed nor torch.distributed is initialised" in out
        assert "holdfast run --ranks 2" in out


def test_torchrun(house: House, pair: Pair) -> None:
    words = ("--standalone", "--nproc-per-node", 2, "--max-restarts", 0, pair.script)
    house.allow(5)
    run = house.start(
        sys.executable, "-m", "torch.distributed.run", *words, FAR,
        HOLDFAST_NAME="r", ALLOW=house.allow_file,
    )  # fmt: skip
    run.saw(r"\[0\] did 5")
    run.saw(r"\[1\] did 5")
    run.send(signal.SIGTERM)
    run.saw("saving at the next step, then stopping")
    house.allow(FAR)
    run.wait()
    saved = house.saved_step()
    assert saved >= 5
    out = house.start(
        sys.executable, "-m", "torch.distributed.run", *words, saved + 4, HOLDFAST_NAME="r",
    ).wait(EXIT_DONE)  # fmt: skip
    assert re.findall(r"\[\d\] from (\d+)", out) == [str(saved)] * 2
    assert sorted(set(re.findall(r"final (\w+)", out))) == sorted(set(straight(saved + 4)))


if FULL:

    class TestTogether(Together):
        straight = staticmethod(straight)


class OldStore:
    """With a prefix, as PyTorch before 2.8 gives it: it cannot be cloned."""

    def __init__(self, underlying: object) -> None:
        self.underlying_store = underlying


def test_a_store_that_cannot_be_cloned_is_connected_to_anew() -> None:
    served = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    one, other = (channel_torch._second_connection(OldStore(served)) for _ in range(2))
    one.set("key", b"value")
    assert other.get("key") == b"value"
    assert not served.check(["key"]), "the script's own keys are others"
    assert channel_torch._second_connection(OldStore(OldStore(object()))) is None
    assert channel_torch._second_connection(None) is None
