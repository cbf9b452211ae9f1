"""`holdfast ckpt`: what is there, whether it can be trusted, and what must stay."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from processes import EXIT_CONFIGURATION, EXIT_DONE, EXIT_UNAVAILABLE, House, step_of

from holdfast.cli.main import main
from holdfast.journal.store import RunStore

Ckpt = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ckpt(capsys: pytest.CaptureFixture[str]) -> Ckpt:
    """Call `holdfast ckpt`: exit code, standard output, standard error."""

    def call(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["ckpt", *words])
        shown = capsys.readouterr()
        return int(ended.value.code or 0), shown.out, shown.err

    return call


def test_ls(trained: House, ckpt: Ckpt) -> None:
    code, out, _ = ckpt("ls", "r")
    names = [folder.name for folder in reversed(trained.sets())]
    rows = [line for line in out.splitlines() if line.startswith("0")]
    assert code == EXIT_DONE
    assert [row.split()[0] for row in rows] == names
    assert all("good" in row for row in rows)


def test_ls_as_json_names_what_is_wrong(trained: House, ckpt: Ckpt) -> None:
    *_, older, newest = trained.sets()
    (newest / "rank-00000.safetensors").write_bytes(b"")
    _, out, _ = ckpt("ls", "r", "--json")
    told = json.loads(out)["checkpoints"]
    assert [one["name"] for one in told[:2]] == [newest.name, older.name]
    assert [one["state"] for one in told[:2]] == ["damaged", "good"]
    assert "rank-00000.safetensors" in told[0]["why"]
    assert told[1]["step"] == step_of(older)
    assert told[1]["nbytes"] > 2048


def test_ls_tells_what_was_abandoned(trained: House, ckpt: Ckpt) -> None:
    newest = trained.sets()[-1]
    shard = newest / "rank-00000.safetensors"
    data = bytearray(shard.read_bytes())
    data[-100] ^= 1
    shard.write_bytes(data)
    trained.finishes_here()  # from the older one
    told = {
        one["name"]: one["state"] for one in json.loads(ckpt("ls", "r", "--json")[1])["checkpoints"]
    }
    assert told.get(newest.name) in (None, "abandoned")
    assert "good" in told.values()


def test_ls_without_checkpoints(house: House, ckpt: Ckpt) -> None:
    RunStore(house.store).create("r")
    assert ckpt("ls", "r") == (0, "run 'r' has no checkpoints yet\n", "")
    assert json.loads(ckpt("ls", "r", "--json")[1])["checkpoints"] == []
    assert ckpt("verify", "r")[0] == EXIT_CONFIGURATION


def test_verify(trained: House, ckpt: Ckpt) -> None:
    first, *_, newest = trained.sets()
    assert ckpt("verify", "r") == (0, f"{newest.name}: every byte is what was written\n", "")
    code, out, _ = ckpt("verify", "r", str(step_of(first)))
    assert (code, out) == (0, f"{first.name}: every byte is what was written\n")
    code, out, _ = ckpt("verify", "r", "--all")
    assert len(out.splitlines()) == len(trained.sets())


@pytest.mark.parametrize("offset", [9, 400, -1])
def test_verify_finds_every_flipped_bit(trained: House, ckpt: Ckpt, offset: int) -> None:
    """In the header's text, in what lies between, and in the last byte of the last tensor."""
    first, *_ = trained.sets()
    shard = first / "rank-00000.safetensors"
    data = bytearray(shard.read_bytes())
    data[offset] ^= 0x04
    shard.write_bytes(data)
    code, out, err = ckpt("verify", "r", first.name)
    assert code == EXIT_UNAVAILABLE
    assert out == ""
    assert str(shard) in err
    assert first.name in err.splitlines()[-1]
    code, out, err = ckpt("verify", "r", "--all")
    assert code == EXIT_UNAVAILABLE
    assert len(out.splitlines()) == len(trained.sets()) - 1


def test_pin_keeps_what_retention_would_delete(trained: House, ckpt: Ckpt) -> None:
    first, second, *_ = trained.sets()
    assert ckpt("pin", "r", str(step_of(first)), "good-one")[0] == EXIT_DONE
    assert ckpt("pin", "r", second.name, "other")[0] == EXIT_DONE
    assert "good-one" in ckpt("ls", "r")[1]
    assert ckpt("verify", "r", "good-one")[1].startswith(first.name)
    assert ckpt("unpin", "r", "other")[0] == EXIT_DONE
    trained.finishes_here(HOLDFAST_KEEP_LAST=1)
    left = trained.sets()
    assert first in left
    assert second not in left


def test_tags_and_sets_that_are_not_there(trained: House, ckpt: Ckpt) -> None:
    for words, told in (
        (("pin", "r", "99999999", "t"), "no checkpoint '99999999'"),
        (("verify", "r", "nonsense"), "no checkpoint 'nonsense'"),
        (("unpin", "r", "nonsense"), "its tags: told"),
        (("pin", "r", trained.sets()[0].name, "a/b"), "'a/b'"),
        (("verify", "r", "1", "--all"), "exclude each other"),
        (("ls", "nobody"), "nobody"),
    ):
        code, _, err = ckpt(*words)
        assert code == EXIT_CONFIGURATION
        assert told in err
        assert len(err.splitlines()) == 1
