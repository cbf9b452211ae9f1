"""A program that ends the process that loads it is put aside after the second time."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.cache.entry import CacheEntry
from holdfast.cache.home import Homing
from holdfast.cache.loads import Loads, aside
from holdfast.cache.tier import CacheTier

ENTRY = CacheEntry("jit_f-1", b"a program")


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def tier(tmp_path: Path, said: list[str]) -> CacheTier:
    tier = CacheTier(tmp_path / "local", said.append)
    tier.put(ENTRY)
    return tier


def test_two_attempts_that_ended_while_loading_it_are_enough(
    tier: CacheTier, said: list[str]
) -> None:
    for attempt in (3, 4):
        for rank in (0, 1):  # both load it, and both end: that is once
            assert Loads(tier, attempt, rank).begin(ENTRY.name)
    third = Loads(tier, 5, 0)
    assert not third.begin(ENTRY.name)
    assert tier.get(ENTRY.key) is None
    assert third.is_aside(ENTRY.name)
    assert not Loads(tier, 5, 1).begin(ENTRY.name)
    assert not Loads(tier, 6, 0).begin(ENTRY.name)
    assert len(said) == 1
    assert "is put aside, and compiled at every start" in said[0]
    assert {path.name for path in tier.folder.iterdir()} == {f"{ENTRY.name}.bad"}


def test_one_that_was_loaded_since_is_innocent(tier: CacheTier) -> None:
    assert Loads(tier, 3, 0).begin(ENTRY.name)  # and its host was taken
    for attempt in (4, 5, 6):
        loads = Loads(tier, attempt, 0)
        assert loads.begin(ENTRY.name)
        loads.end(ENTRY.name)
    assert [path.name for path in tier.folder.iterdir()] == [ENTRY.name]


def test_nothing_is_left_of_a_process_that_ends_in_good_order(tier: CacheTier) -> None:
    loads = Loads(tier, 3, 0)
    assert loads.begin(ENTRY.name)
    assert loads.begin("jit_g-" + "0" * 32 + ".hfx")  # which is not there
    loads.close()
    assert [path.name for path in tier.folder.iterdir()] == [ENTRY.name]


def test_a_tier_that_is_not_there_stops_nobody(tmp_path: Path) -> None:
    loads = Loads(CacheTier(tmp_path / "nowhere"), 3, 0)
    assert loads.begin(ENTRY.name)
    loads.end(ENTRY.name)
    assert not (tmp_path / "nowhere").exists()


def test_what_was_put_aside_leaves_the_store_and_is_not_seeded_again(
    tmp_path: Path, tier: CacheTier
) -> None:
    (tmp_path / "store").mkdir()
    home = CacheTier(tmp_path / "store" / "cache")
    assert Homing(tier, home, 1 << 20)._bring_home(home)
    for attempt in (3, 4):
        Loads(tier, attempt, 0).begin(ENTRY.name)
    assert not Loads(tier, 5, 0).begin(ENTRY.name)
    assert aside(tier.folder) == {ENTRY.name}
    homing = Homing(tier, home, 1 << 20)
    homing.start()
    assert homing.wait_seeded(60)
    assert tier.entries() == []
    assert homing.close(60, is_done=True)
    assert home.entries() == []
    assert not tier.folder.exists()
