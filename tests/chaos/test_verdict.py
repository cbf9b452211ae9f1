"""The judge of a night must be able to say no; and one short night, killed for real."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.journal.attempts import AttemptEnd, AttemptRecord

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
import campaign
from campaign import Kill, Night, spend
from verdict import judge, last_blow_unix_ns

sys.path.pop(0)


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Night:
    """Two ranks, killed until two attempts were hit."""
    folder = tmp_path_factory.mktemp("night")
    (folder / "scratch").mkdir()
    seeds = iter(range(100))
    while True:
        night = Night(0, next(seeds), ranks=2, save_every=20, folder=folder)
        spend(night)
        assert night.problems == []
        if len({kill.attempt for kill in night.kills} - {None}) >= 2:
            return night
        shutil.rmtree(folder / "store")


def wrong_result(night: Night) -> Night:
    return replace(night, output=[*night.output, "[0] final 0123456789abcdef"])


def rank_missing(night: Night) -> Night:
    return replace(night, output=[line for line in night.output if "[1] final" not in line])


def kill_untold(night: Night) -> Night:
    """An attempt ended that, as far as anybody knows, nobody killed."""
    later = night.kills[-1].over_unix_ns + 10**15
    return replace(night, kills=[Kill("tree", later, later, None, frozenset())])


def first_attempt(night: Night) -> Path:
    return night.folder / "store" / "night" / "attempts" / "0000"


def no_incident(night: Night) -> Night:
    (first_attempt(night) / "incidents" / "incident.json").unlink()
    return night


def wrong_story(night: Night) -> Night:
    path = first_attempt(night) / "incidents" / "incident.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "cause": "done"}))
    return night


def no_end(night: Night) -> Night:
    (first_attempt(night) / "end.json").unlink()
    return night


def torn_journal(night: Night) -> Night:
    """The last attempt's steps are cut off: the ledger cannot know of them."""
    attempts = sorted((night.folder / "store" / "night" / "attempts").iterdir())
    for journal in (attempts[-1] / "journal").glob("*.hfj"):
        journal.write_bytes(journal.read_bytes()[:4096])
    return night


@pytest.mark.real
@pytest.mark.parametrize(
    "tamper",
    [wrong_result, rank_missing, kill_untold, no_incident, wrong_story, no_end, torn_journal],
    ids=lambda tamper: tamper.__name__,
)
def test_what_is_wrong_is_found(
    night: Night, tamper: Callable[[Night], Night], tmp_path: Path
) -> None:
    shutil.copytree(night.folder / "store", tmp_path / "store")
    copy = replace(night, folder=tmp_path, problems=[])
    judge(copy, campaign.STEPS)
    assert copy.problems == []
    tampered = tamper(copy)
    judge(tampered, campaign.STEPS)
    assert tampered.problems


def attempt(created_unix_ns: int, *, exits: tuple[int | None, ...] = ()) -> AttemptRecord:
    end = AttemptEnd("killed", "", exits, ended_unix_ns=1_500)
    return AttemptRecord(0, None, 0, None, 1, 1, 1, "", created_unix_ns, end=end)


def test_what_a_successor_found_dead_may_be_struck_after_its_last_sign_of_life() -> None:
    following = attempt(1_900)
    assert last_blow_unix_ns(attempt(1_000, exits=(None, None)), following) == 1_900
    assert last_blow_unix_ns(attempt(1_000, exits=(None, -9)), following) == 1_500
    assert last_blow_unix_ns(attempt(1_000, exits=(None, None)), None) == 1_500
