"""Checkpoints of torch.distributed.checkpoint (DCP): start from one.

    from holdfast.adapters import dcp

    run.track(model=model, optimizer=optimizer)
    run.restore()
    if run.resume_step == 0:
        dcp.load("pretrained", model=model)

The format is PyTorch's, and so are reader and writer. Two of its files are pickles: what they name
that is no data of a checkpoint is refused, and never run.
"""

from __future__ import annotations

import os
import pickle
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast.errors import ConfigurationError, HoldfastError
from holdfast.snapshot.parts import plain_name

_METADATA = "torch.distributed.checkpoint.metadata"
_ALSO = {
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    ("torch.serialization", "_get_layout"),
    ("torch", "Size"),
    ("collections", "OrderedDict"),
    ("pathlib", "PosixPath"),
}


def load(folder: str | os.PathLike[str], **parts: Any) -> None:
    """Give these parts the state that a DCP checkpoint has under their names, in place.

    Each rank reads the parts that it holds, and waits for no other. An optimizer needs its model
    beside it: its state goes by the names of parameters. A model's names may also stand at the top,
    as torchtitan has them. Raises ConfigurationError for a folder that is no checkpoint, and for
    one that does not fit.
    """
    import torch
    from torch.distributed.checkpoint import state_dict as by_name

    models = [part for part in parts.values() if isinstance(part, torch.nn.Module)]
    with _errors_of(folder):
        reader = _reader(folder)
        there = set(reader.read_metadata().state_dict_metadata)
        for name, part in parts.items():
            if isinstance(part, torch.nn.Module):
                state = {plain_name(key): value for key, value in part.state_dict().items()}
                _read(reader, state if there >= state.keys() else {name: state})
                names = {plain_name(key): key for key in part.state_dict()}
                part.load_state_dict({names[key]: value for key, value in state.items()})
            elif isinstance(part, torch.optim.Optimizer):
                model = _model_of(name, part, models)
                state = by_name.get_optimizer_state_dict(model, part)
                _read(reader, {name: state})
                by_name.set_optimizer_state_dict(model, part, optim_state_dict=state)
            else:
                state = part.state_dict()
                _read(reader, {name: state})
                part.load_state_dict(state)


def _model_of(name: str, optimizer: Any, models: list[Any]) -> Any:
    mine = {id(one) for group in optimizer.param_groups for one in group["params"]}
    for model in models:
        if mine <= {id(one) for one in model.parameters()}:
            return model
    raise ConfigurationError(f"dcp.load({name}=…): give it the model of that optimizer as well")


@contextmanager
def _errors_of(folder: str | os.PathLike[str]) -> Iterator[None]:
    from torch.distributed.checkpoint.api import CheckpointException

    try:
        yield
    except HoldfastError:
        raise
    except FileNotFoundError as error:
        raise ConfigurationError(
            f"{os.fspath(folder)} is no checkpoint of torch.distributed.checkpoint: {error}"
        ) from error
    except (CheckpointException, pickle.UnpicklingError, RuntimeError, ValueError) as error:
        why = str(error).strip().replace("\n", " ")
        if isinstance(error, CheckpointException):
            why = "; ".join(str(one[0]) for one in error.failures.values())
        raise ConfigurationError(f"{os.fspath(folder)} cannot be loaded: {why}") from error


def _read(reader: Any, state: dict[str, Any]) -> None:
    import torch
    import torch.distributed.checkpoint as dcp

    class DataOnlyPlanner(dcp.DefaultLoadPlanner):  # type: ignore[misc]
        def load_bytes(self, read_item: Any, value: Any) -> None:
            from torch.distributed.checkpoint._nested_dict import set_element

            path = self.mappings[read_item.dest_index.fqn]
            set_element(self.original_state_dict, path, torch.load(value, weights_only=True))

    with quiet():
        dcp.load(state, storage_reader=reader, planner=DataOnlyPlanner(), no_dist=True)


def _reader(folder: str | os.PathLike[str]) -> Any:
    """PyTorch's own, whose metadata may name nothing but data."""
    import torch
    import torch.distributed.checkpoint as dcp

    class DataUnpickler(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            module = {"pathlib._local": "pathlib"}.get(module, module)  # as Python 3.13 names it
            if "." not in name:
                found = super().find_class(module, name) if _may_be(module) else None
                is_data = isinstance(found, type) and found.__module__ == module == _METADATA
                if is_data or (module, name) in _ALSO or isinstance(found, torch.dtype):
                    return found
            raise pickle.UnpicklingError(f"its .metadata names {module}.{name}, which is no data")

    class DataOnlyReader(dcp.FileSystemReader):  # type: ignore[misc]
        def read_metadata(self, *_: Any, **__: Any) -> Any:
            with (Path(self.path) / ".metadata").open("rb") as file:
                metadata = DataUnpickler(file).load()
            if getattr(metadata, "storage_meta", None) is None:
                metadata.storage_meta = dcp.metadata.StorageMeta()
            metadata.storage_meta.load_id = self.load_id
            return metadata

    return DataOnlyReader(Path(folder))


def _may_be(module: str) -> bool:
    return module == _METADATA or module in {one for one, _ in _ALSO}


@contextmanager
def quiet() -> Iterator[None]:
    """PyTorch warns that only this process saves or loads: that is what is wanted."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield
