"""Vaults that need no network: memory, and the words about places. (The rest: tests/objects.)"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ConfigurationError, CorruptCheckpoint, StoreUnavailable
from holdfast.journal import objects
from holdfast.journal.elsewhere import elsewhere
from holdfast.journal.flow import Flow
from holdfast.journal.objects import Bucket, is_object_url, parse_place
from holdfast.snapshot.restore import read_set
from holdfast.snapshot.sets import commit, list_sets, set_name
from holdfast.snapshot.shard import write_shard
from holdfast.snapshot.staging import GLOBAL, Staging
from holdfast.snapshot.vault import open_vault

pytest.importorskip("obstore")
STATE = {"state": {"w": np.arange(300_000.0), "n": 3}}


@pytest.fixture(params=["folder", "memory"])
def ckpt(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of sets, which are in it or elsewhere."""
    folder = tmp_path / "ckpt"
    folder.mkdir()
    if request.param == "memory":
        told = {"folder": str(folder), "url": f"memory://{tmp_path.name}/run/ckpt"}
        told_json = json.dumps(told | {"instance_credentials": False})
        monkeypatch.setenv("HOLDFAST_WORKING_COPY", told_json)
    return folder


def save(ckpt: Path, step: int = 1) -> Path:
    captured = Staging().capture(STATE, 0, 1, GLOBAL)
    place = ckpt / set_name(0, step)
    write_shard(place, captured, attempt=0, step=step, rank=0, world_size=1)
    captured.release()
    return place


def test_the_same_life_of_a_set_everywhere(ckpt: Path) -> None:
    place = save(ckpt)
    assert list(open_vault(ckpt).look()) == [place.name]
    assert list_sets(ckpt) == ((), {})
    commit(place, 1)
    assert [one.path for one in list_sets(ckpt)[0]] == [place]
    assert np.array_equal(read_set(place)["state"]["w"], STATE["state"]["w"])
    with pytest.raises(StoreUnavailable, match=r"step 1: .* is a committed checkpoint already"):
        save(ckpt)
    open_vault(ckpt).delete(place.name)
    with pytest.raises(CorruptCheckpoint, match="is missing"):
        read_set(place)
    assert "none is left" in list_sets(ckpt)[1][place.name]


def test_a_write_can_be_given_up(ckpt: Path) -> None:
    flow = Flow()
    flow.stop()
    with pytest.raises(StoreUnavailable, match="cannot save step 1: it was given up"):
        open_vault(ckpt).put_data(set_name(0, 1), 0, [memoryview(bytes(10))], flow)
    assert not open_vault(ckpt).files(set_name(0, 1)).has("rank-00000.safetensors")


def test_a_shard_goes_from_one_vault_to_another(ckpt: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    captured = Staging().capture(STATE, 0, 1, GLOBAL)
    receipt = write_shard(other / set_name(0, 1), captured, attempt=0, step=1, rank=0, world_size=1)
    captured.release()
    data = memoryview((other / set_name(0, 1) / "rank-00000.safetensors").read_bytes())
    vault = open_vault(ckpt)
    vault.put_data(set_name(0, 1), 0, [data[:7], data[7:]])
    vault.put_receipt(set_name(0, 1), receipt)
    place = commit(ckpt / set_name(0, 1), 1).path
    assert np.array_equal(read_set(place)["state"]["w"], STATE["state"]["w"])


def test_a_place_in_words() -> None:
    place = parse_place("S3://Bucket-1/a/b/")
    assert str(place) == "s3://Bucket-1/a/b"
    assert str(place / "c") == "s3://Bucket-1/a/b/c"
    assert str(parse_place("abfs://box")) == "az://box"
    assert not is_object_url("/a/folder")
    assert not is_object_url("file:///a/folder")


@pytest.mark.parametrize(
    "text",
    ["s3://user:pass@b/x", "s3://b/x?token=hidden", "s3://b/x#hidden", "gs://key@b"],
)
def test_a_secret_in_a_url_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ConfigurationError, match="environment variables") as told:
        parse_place(text)
    for secret in ("user", "pass@", "hidden", "key@"):
        assert secret not in str(told.value)


@given(st.text())
def test_any_text_is_a_place_or_refused(text: str) -> None:
    for url in (text, f"s3://{text}", f"s3://b/{text}"):
        try:
            place = parse_place(url)
        except ConfigurationError:
            continue
        assert parse_place(str(place)) == place


@pytest.mark.parametrize(
    "said", ["", "{}", "[]", '{"url": 3}', '{"url": "s3://"}', '{"url": "/etc"}', '{"url": ["s3"]}']
)
def test_a_damaged_word_on_where_sets_are(said: str, tmp_path: Path) -> None:
    (tmp_path / "elsewhere.json").write_text(said)
    for look in (elsewhere, list_sets):
        with pytest.raises(StoreUnavailable, match=r"elsewhere\.json"):
            look(tmp_path)


@pytest.mark.parametrize("instance", [True, False])
def test_a_store_does_not_say_where_its_sets_are(
    instance: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever writes into a shared folder chooses no other place, and no credentials."""
    opened: list[str] = []
    monkeypatch.setattr(objects, "_connect", lambda place, *_: opened.append(str(place)))
    ckpt = tmp_path / "store" / "lm" / "ckpt"
    ckpt.mkdir(parents=True)
    said = {"url": "s3://evil/runs/lm/ckpt", "instance_credentials": instance}
    (ckpt / "elsewhere.json").write_text(json.dumps(said))
    for look in (list_sets, save):
        with pytest.raises(StoreUnavailable, match=r"name it yourself: --store s3://evil/runs;"):
            look(ckpt)
    assert opened == []


@pytest.mark.parametrize("said", ["[]", "rubbish", "{}", '{"folder": 3, "url": 4}'])
def test_a_changed_variable_about_the_working_copy(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_WORKING_COPY", said)
    with pytest.raises(StoreUnavailable, match=r"HOLDFAST_WORKING_COPY is .*pass it on unchanged"):
        elsewhere(tmp_path)


def test_without_credentials_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in [name for name in os.environ if name.startswith(("AWS_", "GOOGLE_", "AZURE_"))]:
        monkeypatch.delenv(name)
    look: Callable[[str], Bucket] = lambda url: Bucket(parse_place(url))  # noqa: E731
    for url in ("s3://b/x", "gs://b/x", "az://b/x"):
        with pytest.raises(ConfigurationError, match=f"no credentials for {url} are in the env"):
            look(url)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "not base64, and secret")
    with pytest.raises(ConfigurationError, match="az://b cannot be opened") as told:
        look("az://b/x")
    assert "not base64" not in str(told.value)
