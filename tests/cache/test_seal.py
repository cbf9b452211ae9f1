"""Seals: a store that others may write gives only what bears one; a key that leaks is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from holdfast.cache import home as home_module
from holdfast.cache.entry import CacheEntry
from holdfast.cache.home import Homing, keep_in_step
from holdfast.cache.seal import MAGIC, FileSealer, SealError, read_seal
from holdfast.cache.tier import CacheTier
from holdfast.errors import ConfigurationError
from holdfast.journal import ownerless, remote

LIMIT_BYTES = 1 << 20
KEY = b"k" * 40
ENTRY = CacheEntry("jit_f-1", b"a program")


@pytest.fixture(autouse=True)
def _no_round_but_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home_module, "PERIOD_S", 3600.0)
    monkeypatch.setattr(home_module, "SEED_LIMIT_S", 3600.0)


class Host:
    """One host's tier, beside the store's: what it says, and what it has after a start."""

    def __init__(self, scratch: Path, store: Path, seal: FileSealer | None) -> None:
        self.said: list[str] = []
        self.tier = CacheTier(scratch, self.said.append)
        self._store, self._seal = store, seal

    def start(self) -> Homing:
        homing = keep_in_step(self.tier, self._store, LIMIT_BYTES, self._seal, self.said.append)
        homing.start()
        assert homing.wait_seeded(60)
        return homing

    def end(self, homing: Homing) -> None:
        assert homing.close(60)

    def compiles(self, entry: CacheEntry = ENTRY) -> None:
        """One start, in which it compiles a program."""
        homing = self.start()
        assert self.tier.put(entry)
        self.end(homing)

    def finds(self, entry: CacheEntry = ENTRY) -> bytes | None:
        """What a start of it has of a program."""
        self.end(self.start())
        found = self.tier.get(entry.key)
        return None if found is None else found.program


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "store").mkdir()
    return tmp_path / "store" / "cache"


@pytest.fixture
def bucket(store: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, as the working copy of an object store."""

    class Bucket:
        """Stands in for one: what is written is written."""

        place = "s3://bucket/runs"

        def put(self, path: Path, data: bytes) -> None: ...

        written = remove = lambda self, path: None

    monkeypatch.setattr(remote, "_remotes", {store.parent: Bucket()})
    return store


def tampered(data: bytes) -> bytes:
    """Another program in the same file, with a checksum that is right again."""
    at = data.index(b"HFCACHE1")
    rest = data[at + 16 :].replace(b"a program", b"an attack")
    return data[: at + 8] + xxh3_64_intdigest(rest).to_bytes(8, "little") + rest


@given(st.binary(max_size=100), st.integers(0), st.integers(0, 7))
def test_no_bit_of_what_is_sealed_can_be_flipped(data: bytes, place: int, bit: int) -> None:
    sealed = bytearray(FileSealer(KEY).close("name", data))
    assert FileSealer(KEY).open("name", bytes(sealed)) == data
    sealed[place % len(sealed)] ^= 1 << bit
    with pytest.raises(SealError):
        FileSealer(KEY).open("name", bytes(sealed))


def test_a_seal_is_of_one_key_and_one_name() -> None:
    sealed = FileSealer(KEY).close("name", b"data")
    for seal, name, data in (
        (FileSealer(b"other" * 8), "name", sealed),
        (FileSealer(KEY), "another", sealed),
        (FileSealer(KEY), "name", b"data"),
        (FileSealer(KEY), "name", MAGIC),
        (FileSealer(KEY), "name", b""),
    ):
        with pytest.raises(SealError):
            seal.open(name, data)


def test_two_hosts_with_one_key_share_what_they_compile(tmp_path: Path, bucket: Path) -> None:
    Host(tmp_path / "a", bucket, FileSealer(KEY)).compiles()
    (kept,) = bucket.glob("*.hfx")
    assert kept.read_bytes().startswith(MAGIC)
    other = Host(tmp_path / "b", bucket, FileSealer(KEY))
    assert other.finds() == b"a program"
    assert other.said == []


def test_a_program_that_was_changed_in_the_store_is_refused_and_compiled_anew(
    tmp_path: Path, bucket: Path
) -> None:
    Host(tmp_path / "a", bucket, FileSealer(KEY)).compiles()
    (kept,) = bucket.glob("*.hfx")
    sealed = kept.read_bytes()
    for changed in (tampered(sealed), tampered(sealed[40:])):
        kept.write_bytes(changed)
        victim = Host(tmp_path / "b", bucket, FileSealer(KEY))
        assert victim.finds() is None
        assert [said for said in victim.said if "is not used" in said] != []
    victim.compiles()
    assert kept.read_bytes() == sealed  # what it compiled itself took its place
    assert Host(tmp_path / "c", bucket, FileSealer(KEY)).finds() == b"a program"


def test_another_key_finds_nothing_and_says_so(tmp_path: Path, bucket: Path) -> None:
    Host(tmp_path / "a", bucket, FileSealer(KEY)).compiles()
    other = Host(tmp_path / "b", bucket, FileSealer(b"another" * 8))
    assert other.finds() is None
    (said,) = other.said
    assert said.endswith("is not used: its seal is not of this key")


def test_without_a_key_programs_stay_on_the_host_and_that_is_said_once(
    tmp_path: Path, bucket: Path
) -> None:
    planted = Host(tmp_path / "attacker", bucket, None)
    CacheTier(bucket).put(ENTRY)
    host = Host(tmp_path / "a", bucket, None)
    assert host.finds() is None
    assert host.said == []  # nobody has compiled anything
    host.compiles(CacheEntry("jit_g-1", b"mine"))
    host.compiles(CacheEntry("jit_h-1", b"mine"))
    assert len(list(bucket.glob("*.hfx"))) == 1
    assert len(host.said) == 1
    assert "stay on this host: others may write s3://bucket/runs" in host.said[0]
    assert "--cache-key-file" in host.said[0]
    assert planted.tier.entries() == []


def test_when_the_run_is_done_they_go(tmp_path: Path, bucket: Path) -> None:
    host = Host(tmp_path / "a", bucket, None)
    homing = host.start()
    host.tier.put(ENTRY)
    assert homing.close(60, is_done=True)
    assert not host.tier.folder.exists()


def test_a_folder_needs_no_key_where_its_owner_tells_who_wrote_it(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Host(tmp_path / "a", store, None).compiles()
    assert Host(tmp_path / "b", store, None).finds() == b"a program"
    monkeypatch.setattr(ownerless, "filesystem_of", lambda _: "fuse.gcsfuse")
    mounted = Host(tmp_path / "c", store, None)
    mounted.compiles(CacheEntry("jit_g-1", b"mine"))
    assert mounted.tier.get(ENTRY.key) is None
    assert "(fuse.gcsfuse, whose files all seem to be ours)" in mounted.said[0]


def test_what_is_sealed_in_a_folder_is_left_there_by_a_host_without_the_key(
    tmp_path: Path, store: Path
) -> None:
    Host(tmp_path / "a", store, FileSealer(KEY)).compiles()
    (kept,) = store.glob("*.hfx")
    sealed = kept.read_bytes()
    other = Host(tmp_path / "b", store, None)
    assert other.finds() is None
    assert other.said == [f"{store} has sealed programs: they need --cache-key-file"]
    other.compiles()
    assert kept.read_bytes() == sealed


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_key_is_read_from_a_file_of_ours_through_links_too(tmp_path: Path, mode: int) -> None:
    path, link = tmp_path / "..data", tmp_path / "key"
    path.write_bytes(KEY + b"\n")
    path.chmod(mode)
    link.symlink_to(path)
    assert read_seal(str(link)).open("n", FileSealer(KEY).close("n", b"data")) == b"data"


@pytest.mark.parametrize(
    ("text", "mode", "why"),
    [
        (KEY, 0o640, "others may open it (mode 0640): chmod 600 it"),
        (KEY, 0o604, "others may open it (mode 0604)"),
        (b"short", 0o600, "it holds 5 characters, and needs 32 or more"),
        (b"x" * 70_000, 0o600, "characters, and needs 32 or more"),
        (None, 0o600, "it cannot be read: No such file or directory"),
    ],
)
def test_a_key_that_others_know_or_guess_is_refused(
    tmp_path: Path, text: bytes | None, mode: int, why: str
) -> None:
    path = tmp_path / "key"
    if text is not None:
        path.write_bytes(text)
        path.chmod(mode)
    with pytest.raises(ConfigurationError) as error:
        read_seal(str(path))
    assert why in str(error.value)
    assert "secrets.token_urlsafe" in str(error.value)


def test_nor_one_that_is_no_file_or_somebody_elses(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigurationError, match="no regular file"):
        read_seal(str(tmp_path / "pipe"))
    if os.geteuid() == 0:
        path = tmp_path / "key"
        path.write_bytes(KEY)
        path.chmod(0o600)
        os.chown(path, 12345, -1)
        with pytest.raises(ConfigurationError, match="it belongs to user id 12345"):
            read_seal(str(path))
