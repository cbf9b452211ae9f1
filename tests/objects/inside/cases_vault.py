"""Sets in a real S3 server: the same promises as in a folder, and what a network can do to them."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from holdfast.errors import CorruptCheckpoint, StoreUnavailable
from holdfast.journal import objects
from holdfast.journal.flow import Flow
from holdfast.journal.objects import Bucket, parse_place
from holdfast.snapshot import vault as vaults
from holdfast.snapshot.reader import verify
from holdfast.snapshot.receipt import Receipt
from holdfast.snapshot.removal import remove
from holdfast.snapshot.restore import load_path, read_set
from holdfast.snapshot.sets import (
    commit,
    finish_commits,
    list_sets,
    set_name,
)
from holdfast.snapshot.shard import write_shard
from holdfast.snapshot.staging import GLOBAL, Staging
from holdfast.snapshot.vault import open_vault

MIB = 1 << 20
FLOATS_PER_MIB = MIB // 4
HELD: Any = SimpleNamespace(epoch=1, check=lambda: None)  # a lease that nobody else takes


@pytest.fixture(autouse=True)
def fresh() -> None:
    """No connection of an earlier test, whose proxy is gone."""
    vaults._vault_at.cache_clear()


@pytest.fixture
def ckpt(tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of sets that are in the bucket."""
    folder = tmp_path / "ckpt"
    folder.mkdir()
    told = {"folder": str(folder), "url": f"s3://{bucket}/team/run/ckpt"}
    told_json = json.dumps(told | {"instance_credentials": False})
    monkeypatch.setenv("HOLDFAST_WORKING_COPY", told_json)
    return folder


def write(ckpt: Path, tree: Any, *, rank: int = 0, ranks: int = 1, step: int = 1) -> Receipt:
    captured = Staging().capture(tree, rank, ranks, GLOBAL)
    try:
        return write_shard(
            ckpt / set_name(0, step), captured, attempt=0, step=step, rank=rank, world_size=ranks
        )
    finally:
        captured.release()


def saved(ckpt: Path, tree: Any, step: int = 1) -> Path:
    write(ckpt, tree, step=step)
    return commit(ckpt / set_name(0, step), 1).path


def big(mib: int, seed: int = 0) -> dict[str, Any]:
    values = np.random.default_rng(seed).random(mib * FLOATS_PER_MIB, np.float32)
    return {"state": {"w": values, "small": np.arange(10.0), "step": 3}}


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(np.array_equal(one["state"][key], other["state"][key]) for key in one["state"])


def test_a_set_comes_back_as_it_was(ckpt: Path, bucket: str, moto: Any) -> None:
    tree = big(20)
    place = saved(ckpt, tree)
    assert same(read_set(place), tree)
    assert verify(place) == ()
    ((found,), damage) = list_sets(ckpt)
    assert (found.attempt, found.step, found.path, damage) == (0, 1, place, {})
    assert not list(ckpt.iterdir()), "nothing lies here"
    assert moto.uploads(bucket) == 0


def test_the_bytes_are_those_of_a_folder(ckpt: Path, tmp_path: Path, bucket: str) -> None:
    tree = big(9)
    folder = tmp_path / "plain"
    folder.mkdir()
    write(folder, tree)
    write(ckpt, tree)
    commit(ckpt / set_name(0, 1), 1)
    there = Bucket(parse_place(f"s3://{bucket}/team/run/ckpt"))
    shard = "0000-000000000001/rank-00000.safetensors"
    assert there.get(shard, 1 << 30) == (folder / shard).read_bytes()


def test_a_buffer_goes_there_as_it_is(ckpt: Path, tmp_path: Path) -> None:
    """What the memory tier does: bytes whose checksums are known already."""
    folder = tmp_path / "buffer"
    folder.mkdir()
    tree = big(12)
    receipt = write(folder, tree)
    name = set_name(0, 1)
    data = (folder / name / "rank-00000.safetensors").read_bytes()
    vault = open_vault(ckpt)
    vault.put_data(name, 0, [memoryview(data)[:1000], memoryview(data)[1000:]])
    vault.put_receipt(name, receipt)
    assert same(read_set(commit(ckpt / name, 1).path), tree)


def test_a_partial_set_is_no_set(ckpt: Path) -> None:
    write(ckpt, big(1), rank=0, ranks=2)
    with pytest.raises(CorruptCheckpoint, match=r"rank-00001\.receipt\.json is missing"):
        commit(ckpt / set_name(0, 1), 2)
    assert list_sets(ckpt) == ((), {})
    assert list(open_vault(ckpt).look()) == [set_name(0, 1)]
    write(ckpt, big(1), rank=1, ranks=2)
    assert [one.step for one in finish_commits(ckpt).done] == [1]
    write(ckpt, big(1), ranks=2, step=2)
    assert finish_commits(ckpt).lacking == (set_name(0, 2),)
    remove(ckpt, [set_name(0, 2)], HELD)
    assert [one.step for one in list_sets(ckpt)[0]] == [1]


def test_a_committed_set_is_not_written_again(ckpt: Path) -> None:
    place = saved(ckpt, big(1))
    with pytest.raises(StoreUnavailable, match="a committed checkpoint already"):
        write(ckpt, big(1, seed=1))
    with pytest.raises(CorruptCheckpoint, match="was committed by another process"):
        commit(place, 1)  # at another time: another manifest
    assert same(read_set(place), big(1))


def test_sets_that_vanish_are_missed(ckpt: Path) -> None:
    place = saved(ckpt, big(1))
    open_vault(ckpt).delete(place.name)
    sets, damage = list_sets(ckpt)
    assert sets == ()
    assert "none is left" in damage[set_name(0, 1)]


def test_a_flipped_bit_is_noticed(ckpt: Path, bucket: str) -> None:
    place = saved(ckpt, big(20))
    there = Bucket(parse_place(f"s3://{bucket}/team/run/ckpt"))
    key = f"{place.name}/rank-00000.safetensors"
    data = bytearray(there.get(key, 1 << 30))
    data[15 * MIB] ^= 4
    there.put(key, bytes(data))
    with pytest.raises(CorruptCheckpoint, match="not what was written"):
        read_set(place)
    there.put(key, bytes(data[:-1]))
    assert "bytes, not" in list_sets(ckpt)[1][place.name]
    there.delete([key])
    assert "is missing" in list_sets(ckpt)[1][place.name]


def test_only_what_is_needed_is_read(ckpt: Path, proxy: Any) -> None:
    tree = {"state": {"big": np.zeros(64 * FLOATS_PER_MIB, np.float32), "few": np.arange(100.0)}}
    place = saved(ckpt, tree)
    before = proxy.sent_bytes
    few = load_path(place, only="few")["few"]
    assert np.array_equal(few, np.arange(100.0))
    assert proxy.sent_bytes - before < 6 * MIB


def test_many_small_arrays_are_few_requests(ckpt: Path, proxy: Any) -> None:
    tree = {"state": {f"a{number}": np.full(64, float(number)) for number in range(500)}}
    place = saved(ckpt, tree)
    proxy.requests.clear()
    assert same(read_set(place), tree)
    assert len(proxy.requests) < 20


@pytest.mark.parametrize("how", ["refuses", "is frozen"])
def test_a_store_that_is_away_for_a_while(
    how: str, ckpt: Path, proxy: Any, moto: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shard in the middle of its way waits, and arrives."""
    monkeypatch.setattr(objects, "SILENCE_S", 1.0)
    tree = big(40)
    proxy.requests.clear()
    proxy.pause_at = "partNumber=2&"  # or it may be over before the store is away
    errors: list[BaseException] = []

    def save() -> None:
        try:
            write(ckpt, tree)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=save)
    thread.start()
    wait_for(lambda: begun(proxy, part=2))
    if how == "refuses":
        proxy.down()
        proxy.pause.set()
        wait_for(lambda: True, after_s=1.0)  # no event tells that it did not give up
        assert thread.is_alive(), "it waits for the store"
        proxy.up()
    else:
        moto.freeze()
        proxy.pause.set()
        wait_for(lambda: True, after_s=3.0)  # the same; it tries again within that
        assert thread.is_alive(), "it waits for the store"
        moto.thaw()
    thread.join(120)
    assert not thread.is_alive()
    assert errors == []
    assert same(read_set(commit(ckpt / set_name(0, 1), 1).path), tree)


def test_a_store_that_is_busy(ckpt: Path, proxy: Any) -> None:
    proxy.busy = True
    threading.Timer(1.0, lambda: setattr(proxy, "busy", False)).start()
    assert same(read_set(saved(ckpt, big(2))), big(2))


def test_answers_that_break_off(ckpt: Path, proxy: Any) -> None:
    tree = big(40)
    place = saved(ckpt, tree)
    proxy.drop()
    proxy.cut_after, proxy.cuts = 3 * MIB, 3
    assert same(read_set(place), tree)
    assert proxy.cuts == 0


def test_a_store_that_stays_away(
    ckpt: Path, proxy: Any, monkeypatch: pytest.MonkeyPatch, moto: Any, bucket: str
) -> None:
    """It is said in one sentence, and the next try starts anew."""
    monkeypatch.setattr(objects, "QUICK_S", 1.0)
    monkeypatch.setattr(objects, "PATIENT_S", 1.0)
    tree = big(40)
    proxy.down()
    with pytest.raises(StoreUnavailable, match=r"s3://bucket-\d+ cannot be reached; check") as told:
        write(ckpt, tree)
    assert "not-to-be-shown" not in str(told.value)
    assert "\n" not in str(told.value)
    proxy.up()
    assert same(read_set(saved(ckpt, tree)), tree)
    assert moto.uploads(bucket) == 0


def test_a_write_that_is_given_up_leaves_nothing(
    ckpt: Path, proxy: Any, moto: Any, bucket: str
) -> None:
    flow = Flow()
    proxy.pause_at = "partNumber=2&"  # or all may be there before it is given up

    def give_up() -> None:
        wait_for(lambda: begun(proxy, part=2))
        flow.stop()
        proxy.pause.set()

    watch = threading.Thread(target=give_up, daemon=True)
    watch.start()
    with pytest.raises(StoreUnavailable, match="given up"):
        open_vault(ckpt).put_data(set_name(0, 1), 0, [memoryview(bytes(512 * MIB))], flow)
    watch.join()
    assert moto.uploads(bucket) == 0
    assert list_sets(ckpt) == ((), {})
    assert not open_vault(ckpt).look()


def test_a_writer_that_is_killed(ckpt: Path, proxy: Any, moto: Any, bucket: str) -> None:
    """Nothing of its shard is seen, and the next one writes it anew.

    Its parts are the bucket's to collect: the library has no call for that.
    """
    script = (
        "import sys; from holdfast.snapshot.vault import open_vault\n"
        "from pathlib import Path\n"
        f"open_vault(Path({str(ckpt)!r})).put_data({set_name(0, 1)!r}, 0, "
        "[memoryview(bytes(512 << 20))])\n"
    )
    proxy.pause_at = "partNumber=2&"  # or all may be there before it is killed
    writer = subprocess.Popen([sys.executable, "-c", script])
    wait_for(lambda: begun(proxy, part=2))
    writer.kill()
    writer.wait()
    proxy.pause.set()
    assert not open_vault(ckpt).look()
    assert moto.uploads(bucket) == 1
    assert same(read_set(saved(ckpt, big(20))), big(20))
    assert moto.uploads(bucket) == 1


def test_one_of_several_creates(bucket: str) -> None:
    there = Bucket(parse_place(f"s3://{bucket}/x"))
    won: list[int] = []

    def create(number: int) -> None:
        try:
            there.create("claim", b"%d" % number)
        except FileExistsError:
            return
        won.append(number)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert there.get("claim", 100) == b"%d" % won[0]


def test_a_lost_answer_does_not_cost_the_claim(bucket: str, proxy: Any) -> None:
    """The request came through, its answer did not: the second try finds the first one's."""
    there = Bucket(parse_place(f"s3://{bucket}/x"))
    proxy.cut_after, proxy.cuts = 0, 1
    there.create("claim", b"mine")
    assert proxy.cuts == 0
    assert there.get("claim", 100) == b"mine"
    with pytest.raises(FileExistsError):
        there.create("claim", b"yours")


def test_what_is_wrong_is_said_in_one_sentence(
    bucket: str, proxy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StoreUnavailable, match="there is no bucket s3://nobody; create it"):
        Bucket(parse_place("s3://nobody/x")).list()
    for call in ("get", "put"):
        with pytest.raises(StoreUnavailable, match="there is no bucket s3://nobody"):
            getattr(Bucket(parse_place("s3://nobody/x")), call)("k", b"" if call == "put" else 1)
    with pytest.raises(FileNotFoundError):
        Bucket(parse_place(f"s3://{bucket}/x")).get("k", 1)
    there = Bucket(parse_place(f"s3://{bucket}/x"))
    there.put("k", b"123")
    with pytest.raises(StoreUnavailable, match="more than 2 bytes"):
        there.get("k", 2)


def begun(proxy: Any, *, part: int) -> bool:
    """Whether that part of an upload is on its way."""
    return any(f"partNumber={part}&" in one for one in proxy.requests)


def wait_for(predicate: Any, *, after_s: float = 0.0, within_s: float = 60.0) -> None:
    end = time.monotonic() + within_s
    begin = time.monotonic() + after_s
    while not predicate() or time.monotonic() < begin:
        assert time.monotonic() < end, "not true in time"
        time.sleep(0.005)
