"""Two tiers kept in step: a fresh host is seeded, what it compiles comes home."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.cache import home as home_module
from holdfast.cache.entry import CacheEntry
from holdfast.cache.home import Homing
from holdfast.cache.tier import CacheTier
from holdfast.cache.traced import is_void, void

LIMIT_BYTES = 1 << 20


@pytest.fixture(autouse=True)
def _no_round_but_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is brought home, and when, is the test's to say; seeding takes as long as it takes."""
    monkeypatch.setattr(home_module, "PERIOD_S", 3600.0)
    monkeypatch.setattr(home_module, "SEED_LIMIT_S", 3600.0)


@pytest.fixture
def local(tmp_path: Path) -> CacheTier:
    return CacheTier(tmp_path / "local")


@pytest.fixture
def home(tmp_path: Path) -> CacheTier:
    (tmp_path / "store").mkdir()
    return CacheTier(tmp_path / "store" / "cache")


def entry(number: int, size_bytes: int = 10) -> CacheEntry:
    return CacheEntry(f"jit_{number}-{number:x}", bytes([number]) * size_bytes)


def keep(local: CacheTier, home: CacheTier, limit_bytes: int = LIMIT_BYTES) -> Homing:
    homing = Homing(local, home, limit_bytes)
    homing.start()
    assert homing.wait_seeded(60)
    return homing


def test_a_fresh_host_gets_what_the_store_has(local: CacheTier, home: CacheTier) -> None:
    home.put(entry(1))
    homing = keep(local, home)
    assert local.get(entry(1).key) == entry(1)
    assert homing.close(60)


def test_what_a_host_compiles_comes_home(local: CacheTier, home: CacheTier) -> None:
    home.put(entry(1))
    homing = keep(local, home)
    local.put(entry(2))
    assert homing.close(60)
    assert home.get(entry(2).key) == entry(2)
    assert home.get(entry(1).key) == entry(1)


def test_a_host_takes_what_was_used_last_as_far_as_there_is_room(
    local: CacheTier, home: CacheTier
) -> None:
    for number in range(4):
        home.put(entry(number, 1000))
        home.mark_used(entry(number).name, (1000 + number) * 10**9)
    size_bytes = len(entry(0, 1000).encode())
    keep(local, home, 2 * size_bytes).close(60)
    assert {kept.name for kept in local.entries()} == {entry(2).name, entry(3).name}


def test_the_store_is_told_what_was_used(local: CacheTier, home: CacheTier) -> None:
    home.put(entry(1))
    home.mark_used(entry(1).name, 1000)
    homing = keep(local, home)
    assert local.get(entry(1).key)
    assert homing.close(60)
    assert home.entries()[0].used_unix_ns > 1000


def test_when_the_run_is_done_its_programs_leave_this_host(
    local: CacheTier, home: CacheTier
) -> None:
    homing = keep(local, home)
    local.put(entry(1))
    assert homing.close(60, is_done=True)
    assert not local.folder.exists()
    assert home.get(entry(1).key) == entry(1)


def test_but_not_what_could_not_be_brought_home(tmp_path: Path, local: CacheTier) -> None:
    homing = keep(local, CacheTier(tmp_path / "nowhere" / "cache"))
    local.put(entry(1))
    assert homing.close(60, is_done=True)
    assert local.get(entry(1).key) == entry(1)


def test_damage_spreads_neither_way(local: CacheTier, home: CacheTier) -> None:
    home.put(entry(1))
    (home.folder / entry(1).name).write_bytes(b"HFCACHE1 nonsense")
    homing = keep(local, home)
    assert local.entries() == []
    local.put(entry(2))
    (local.folder / entry(2).name).write_bytes(b"HFCACHE1 nonsense")
    local.put(entry(3))
    assert homing.close(60)
    assert [kept.name for kept in home.entries()] == [entry(3).name]


def test_both_stay_within_their_bound(local: CacheTier, home: CacheTier) -> None:
    size_bytes = len(entry(0, 1000).encode())
    for number in range(8):
        local.put(entry(number, 1000))
        local.mark_used(entry(number).name, (1000 + number) * 10**9)
    keep(local, home, 3 * size_bytes).close(60)
    wanted = {entry(number).name for number in (5, 6, 7)}
    assert {kept.name for kept in local.entries()} == wanted
    assert {kept.name for kept in home.entries()} == wanted


def test_a_store_that_is_away_costs_nothing_but_the_copy(tmp_path: Path, local: CacheTier) -> None:
    said: list[str] = []
    home = CacheTier(tmp_path / "nowhere" / "cache", said.append)
    homing = keep(local, home)
    local.put(entry(1))
    assert homing.close(60)
    assert local.get(entry(1).key) == entry(1)
    assert not (tmp_path / "nowhere").exists()
    assert len(said) == 1


def test_what_is_void_is_void_on_every_host(local: CacheTier, home: CacheTier) -> None:
    here, there = "ab" * 32, "cd" * 32
    home.put(entry(1))
    void(home.folder, there)
    homing = keep(local, home)
    assert is_void(local.folder, there)
    void(local.folder, here)
    assert homing.close(60)
    assert is_void(home.folder, here)
