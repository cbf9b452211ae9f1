"""Entries and tiers: what was written comes back, what was changed on the way does not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cache.entry import CacheEntry, EntryError, decode, is_name, name_of
from holdfast.cache.tier import CacheTier

ENTRY = CacheEntry("jit_step-00ff", b"program" * 9, {"compile_ns": 12})


@given(st.text(max_size=300), st.binary(max_size=300))
def test_an_entry_comes_back_as_it_was(key: str, program: bytes) -> None:
    entry = CacheEntry(key, program, {"compile_ns": 3, "kept_unix_ns": 4})
    assert decode(entry.encode()) == entry


@given(st.text(max_size=300))
def test_every_key_has_a_name_that_is_a_plain_file_name(key: str) -> None:
    assert is_name(name_of(key))


def test_names_show_the_program_and_tell_keys_apart() -> None:
    assert name_of("jit_step-00ff").startswith("jit_step-")
    assert name_of("jit_step-00ff") != name_of("jit_step-00fe")


def test_no_bit_can_be_flipped_unnoticed() -> None:
    data = ENTRY.encode()
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(EntryError):
            decode(bytes(changed))


def test_no_cut_goes_unnoticed() -> None:
    data = ENTRY.encode()
    for length in range(len(data)):
        with pytest.raises(EntryError):
            decode(data[:length])


def test_a_tier_gives_what_it_was_given(tmp_path: Path) -> None:
    tier = CacheTier(tmp_path / "cache")
    assert tier.get(ENTRY.key) is None
    assert tier.put(ENTRY)
    assert tier.get(ENTRY.key) == ENTRY
    assert tier.get("another") is None


def test_a_damaged_entry_is_said_and_removed(tmp_path: Path) -> None:
    said: list[str] = []
    tier = CacheTier(tmp_path, said.append)
    tier.put(ENTRY)
    path = tmp_path / ENTRY.name
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    path.chmod(0o600)
    assert tier.get(ENTRY.key) is None
    assert not path.exists()
    assert len(said) == 1
    assert "its checksum is wrong" in said[0]


def test_an_entry_under_another_ones_name_is_removed(tmp_path: Path) -> None:
    tier = CacheTier(tmp_path)
    tier.put(ENTRY)
    other = tmp_path / name_of("jit_other-1")
    (tmp_path / ENTRY.name).rename(other)
    assert tier.get("jit_other-1") is None
    assert not other.exists()


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_code_that_others_may_write_is_not_taken(tmp_path: Path, mode: int) -> None:
    said: list[str] = []
    tier = CacheTier(tmp_path / "cache", said.append)
    tier.put(ENTRY)
    (tier.folder / ENTRY.name).chmod(mode)
    assert tier.get(ENTRY.key) is None
    assert "may be written by others" in said[0]


def test_nor_from_a_folder_that_others_may_write(tmp_path: Path) -> None:
    said: list[str] = []
    tier = CacheTier(tmp_path / "cache", said.append)
    tier.put(ENTRY)
    tier.folder.chmod(0o777)
    assert tier.get(ENTRY.key) is None
    assert tier.get(ENTRY.key) is None
    assert said == [
        f"{tier.folder} may be written by others: no compiled program is taken from there"
    ]


def test_nor_through_a_link(tmp_path: Path) -> None:
    tier = CacheTier(tmp_path / "real")
    tier.put(ENTRY)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert CacheTier(tmp_path / "link").get(ENTRY.key) is None
    (tier.folder / ENTRY.name).rename(tmp_path / "elsewhere")
    (tier.folder / ENTRY.name).symlink_to(tmp_path / "elsewhere")
    assert tier.get(ENTRY.key) is None


def test_a_pipe_in_an_entrys_place_keeps_nobody_waiting(tmp_path: Path) -> None:
    tier = CacheTier(tmp_path)
    os.mkfifo(tmp_path / ENTRY.name, 0o600)
    assert tier.get(ENTRY.key) is None


def test_where_nothing_can_be_written_that_is_said_and_no_more(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said: list[str] = []
    tier = CacheTier(tmp_path / "file" / "cache", said.append)
    assert not tier.put(ENTRY)
    assert len(said) == 1


def test_a_use_is_remembered_and_the_bound_removes_what_was_unused_longest(
    tmp_path: Path,
) -> None:
    tier = CacheTier(tmp_path)
    entries = [CacheEntry(f"jit_{n}-0", bytes(100)) for n in range(4)]
    for age, entry in enumerate(entries):
        tier.put(entry)
        os.utime(tmp_path / entry.name, (1000 - age, 1000 - age))
    assert tier.get(entries[3].key)  # the oldest, and used now
    size_bytes = len(entries[0].encode())
    assert tier.bound(2 * size_bytes) == 2
    assert {kept.name for kept in tier.entries()} == {entries[0].name, entries[3].name}


def test_drafts_of_the_killed_are_swept_in_time(tmp_path: Path) -> None:
    tier = CacheTier(tmp_path)
    draft = tmp_path / f".{ENTRY.name}.00.tmp"
    draft.touch()
    os.utime(draft, (5000, 5000))
    tier.sweep(6000)
    assert draft.exists()
    tier.sweep(50_000)
    assert not draft.exists()
