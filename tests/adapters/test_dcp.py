"""Checkpoints of torch.distributed.checkpoint: what PyTorch writes is read, and the other way."""

from __future__ import annotations

import os
import pathlib
import pickle
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as torch_dcp
from processes import EXIT_DONE, House
from torch.distributed.checkpoint import state_dict as by_name

from holdfast.adapters import dcp, dcp_export
from holdfast.errors import ConfigurationError, CorruptCheckpoint
from holdfast.session.contents import Contents
from holdfast.snapshot.sets import commit, read_manifest
from holdfast.snapshot.shard import write_shard
from holdfast.snapshot.staging import Staging

Parts = dict[str, Any]


def made(seed: int, steps: int = 0) -> Parts:
    """A model, its optimizer and its schedule, after so many steps."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(
        torch.nn.Linear(3, 5), torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 1)
    )
    weights = [one for one in model.parameters() if one.ndim > 1]
    biases = [one for one in model.parameters() if one.ndim == 1]
    groups = [{"params": weights, "weight_decay": 0.1}, {"params": biases, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    for _ in range(steps):
        model(torch.randn(4, 3)).sum().backward()
        optimizer.step()
        schedule.step()
    return {"model": model, "optimizer": optimizer, "schedule": schedule}


def same(one: Parts, other: Parts) -> bool:
    def states(parts: Parts) -> str:
        optimizer = by_name.get_optimizer_state_dict(parts["model"], parts["optimizer"])
        return repr([parts["model"].state_dict(), optimizer, parts["schedule"].state_dict()])

    torch.set_printoptions(precision=17, threshold=10_000)
    return states(one) == states(other)


def kept(place: Path, parts: Parts, state: Any = None) -> Path:
    """A set of them, as a run saves it."""
    contents = Contents()
    contents.track(parts)
    captured = Staging().capture(contents.gather(state), shared=contents.shared())
    write_shard(place, captured, attempt=0, step=1, rank=0, world_size=1)
    commit(place, 1)
    return place


def written(folder: Path, state: Any) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch_dcp.save(state, checkpoint_id=folder, no_dist=True)
    return folder


def in_dcp(parts: Parts) -> Any:
    optimizer = by_name.get_optimizer_state_dict(parts["model"], parts["optimizer"])
    schedule = parts["schedule"].state_dict()
    return {"model": parts["model"].state_dict(), "optimizer": optimizer, "schedule": schedule}


def test_pytorch_loads_what_is_exported(tmp_path: Path) -> None:
    trained, other = made(1, steps=3), made(2)
    assert not same(trained, other)
    kept(tmp_path / "0000-000000000001", trained, {"best": torch.ones(3), "epoch": 4})
    assert dcp_export.export(tmp_path / "0000-000000000001", tmp_path / "out") == ()
    state = {**in_dcp(other), "state": {"best": torch.zeros(3), "epoch": 0}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch_dcp.load(state, checkpoint_id=tmp_path / "out", no_dist=True)
    other["model"].load_state_dict(state["model"])
    by_name.set_optimizer_state_dict(
        other["model"], other["optimizer"], optim_state_dict=state["optimizer"]
    )
    other["schedule"].load_state_dict(state["schedule"])
    assert same(trained, other)
    assert state["state"]["epoch"] == 4
    assert state["state"]["best"].tolist() == [1, 1, 1]


def test_parts_start_from_what_pytorch_writes(tmp_path: Path) -> None:
    trained, other = made(1, steps=3), made(2)
    dcp.load(written(tmp_path / "dcp", in_dcp(trained)), **other)
    assert same(trained, other)


def test_and_from_what_it_writes_with_python_3_13(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained, other = made(1, steps=3), made(2)
    with monkeypatch.context() as as_there:
        as_there.setitem(sys.modules, "pathlib._local", pathlib)
        as_there.setattr(pathlib.PosixPath, "__module__", "pathlib._local")
        folder = written(tmp_path / "dcp", in_dcp(trained))
    assert b"pathlib._local" in (folder / ".metadata").read_bytes()
    dcp.load(folder, **other)
    assert same(trained, other)


def test_and_from_what_is_exported(tmp_path: Path) -> None:
    trained, other = made(1, steps=3), made(2)
    dcp_export.export(kept(tmp_path / "0000-000000000001", trained), tmp_path / "out")
    dcp.load(tmp_path / "out", **other)
    assert same(trained, other)


def test_a_models_names_may_stand_at_the_top(tmp_path: Path) -> None:
    trained, other = made(1, steps=3)["model"], made(2)["model"]
    dcp.load(written(tmp_path / "dcp", trained.state_dict()), model=other)
    assert repr(trained.state_dict()) == repr(other.state_dict())


def test_names_are_those_of_the_model_whatever_wraps_it(tmp_path: Path) -> None:
    trained, other = made(1, steps=3), made(2)
    wrapped = torch.compile(trained["model"], backend="eager")
    kept(tmp_path / "0000-000000000001", {**trained, "model": wrapped})
    dcp_export.export(tmp_path / "0000-000000000001", tmp_path / "out")
    again = torch.compile(other["model"], backend="eager")
    dcp.load(tmp_path / "out", **{**other, "model": again})
    assert same(trained, other)


@pytest.mark.parametrize("where", ["metadata", "bytes"])
def test_a_pickle_that_is_no_data_is_not_run(tmp_path: Path, where: str) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "was-here"),)

    parts = made(1)
    state = in_dcp(parts)
    if where == "bytes":
        state["schedule"]["last_epoch"] = Evil()
    folder = written(tmp_path / "dcp", state)
    if where == "metadata":
        (folder / ".metadata").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(ConfigurationError, match="cannot be loaded"):
        dcp.load(folder, **parts)
    assert not (tmp_path / "was-here").exists()


def test_what_does_not_fit_is_one_sentence(tmp_path: Path) -> None:
    parts = made(1)
    folder = written(tmp_path / "dcp", {"model": parts["model"].state_dict()})
    with pytest.raises(ConfigurationError, match="nowhere is no checkpoint of torch"):
        dcp.load(tmp_path / "nowhere", model=parts["model"])
    with pytest.raises(ConfigurationError, match="optimizer"):
        dcp.load(folder, **parts)
    with pytest.raises(ConfigurationError, match="Size mismatch"):
        dcp.load(folder, model=torch.nn.Sequential(torch.nn.Linear(3, 6)))
    with pytest.raises(ConfigurationError, match="give it the model of that optimizer"):
        dcp.load(folder, optimizer=parts["optimizer"])


@pytest.mark.real
def test_a_sharded_run_is_exported_and_begun_from_by_another_number_of_ranks(house: House) -> None:
    example = Path(__file__).parents[2] / "examples" / "fsdp" / "train.py"
    once = {"OMP_NUM_THREADS": 1}
    words = ("run", "--name", "a", "--ranks", 2, "--", sys.executable, example, 5)
    text = house.holdfast(*words, **once).wait(EXIT_DONE)
    (digest,) = set(re.findall(r"step 5, parameters (\w+)", text))
    out = house.folder / "dcp"
    house.holdfast("ckpt", "export", "a", "--to", "dcp", "--out", out).wait(EXIT_DONE)
    before, steps, after = example.read_text().partition("for step in run.steps(STEPS):")
    begins = (
        "from holdfast.adapters import dcp\n"
        "if run.resume_step == 0:\n"
        f"    dcp.load({str(out)!r}, model=model, optimizer=optimizer, schedule=schedule)\n"
        "    print('learning rate', schedule.get_last_lr(), optimizer.state_dict()['state'][0])\n"
    )
    script = house.script(before + begins + steps + after)
    words = ("run", "--name", "b", "--ranks", 3, "--", sys.executable, script, 0)
    text = house.holdfast(*words, **once).wait(EXIT_DONE)
    assert re.findall(r"step 0, parameters (\w+)", text) == [digest] * 3
    assert text.count("'step': tensor(5.)") == 3


def test_an_export_is_verified_and_overwrites_nothing(tmp_path: Path) -> None:
    place = kept(tmp_path / "0000-000000000001", made(1, steps=1))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    with pytest.raises(ConfigurationError, match="name a folder that is not"):
        dcp_export.export(place, tmp_path / "out")
    ((_, tensor),) = read_manifest(place).arrays["parts/model/0.weight"].pieces
    with (place / "rank-00000.safetensors").open("r+b") as file:
        file.seek(read_manifest(place).shards[0].data_begin + tensor.begin)
        file.write(b"xyz")
    with pytest.raises(CorruptCheckpoint, match="checksum"):
        dcp_export.export(place, tmp_path / "other")
