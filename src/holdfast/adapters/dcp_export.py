"""Writing a set as a checkpoint of torch.distributed.checkpoint (DCP)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from holdfast.adapters.dcp import quiet
from holdfast.errors import ConfigurationError, CorruptCheckpoint, HoldfastError, StoreUnavailable
from holdfast.snapshot.parts import plain_name
from holdfast.snapshot.restore import OpenSet, opened_set
from holdfast.snapshot.structure import Array


def export(set_dir: Path, folder: Path) -> tuple[str, ...]:
    """Write what a set has of the run as a DCP checkpoint; which arrays are rank 0's own.

    The tracked parts stand under their names, a state under `state`. Of an optimizer, parameters
    have their names where the model was tracked as well. One array at a time is in memory, each
    byte of it verified. Data positions and random generators are left out.

    Raises ConfigurationError when the folder is not empty, CorruptCheckpoint, StoreUnavailable.
    """
    import torch.distributed.checkpoint as dcp

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigurationError(f"{folder} is there already: name a folder that is not")
    with opened_set(set_dir) as stored:
        reads: dict[int, Callable[[], Any]] = {}
        tree = _as_dcp(stored, reads)
        if not tree:
            raise ConfigurationError(
                f"{set_dir.name} has neither a state nor parts: it stands for a framework's "
                "checkpoint, which is there already"
            )

        class LazyPlanner(dcp.DefaultSavePlanner):  # type: ignore[misc]
            def lookup_object(self, index: Any) -> Any:
                found = super().lookup_object(index)
                read = reads.get(id(found))
                return found if read is None else read()

        planner = LazyPlanner(enable_plan_caching=False)
        writer = dcp.FileSystemWriter(folder, thread_count=1)
        try:
            with quiet():
                dcp.save(tree, storage_writer=writer, planner=planner, no_dist=True)
        except OSError as error:
            raise StoreUnavailable(f"{folder} cannot be written: {error.strerror}") from error
        except dcp.api.CheckpointException as error:
            for failure, _ in error.failures.values():
                if isinstance(failure, HoldfastError):
                    raise failure from error
            raise CorruptCheckpoint(f"{set_dir} cannot be written as DCP: {error}") from error
        return stored.own


def _as_dcp(stored: OpenSet, reads: dict[int, Callable[[], Any]]) -> dict[str, Any]:
    """The tree of a checkpoint, with empty tensors in the place of those that are read later."""
    import torch

    def later(array: Array) -> Any:
        dtype = getattr(torch, array.dtype, None) if isinstance(array.dtype, str) else None
        if not isinstance(dtype, torch.dtype) or array.kind in ("bytes", "str", "jax-key"):
            return stored.read(array, "saved")
        found = torch.empty(array.shape, dtype=dtype, device="meta")
        reads[id(found)] = lambda: torch.as_tensor(stored.read(array, "torch"))
        return found

    tree = {"state": None, "parts": {}} | stored.tree(later)
    names = tree.get("session", {}).get("parameters", {})
    parts = {name: _named(part, names.get(name, "")) for name, part in tree["parts"].items()}
    return parts if tree["state"] is None else {**parts, "state": tree["state"]}


def _named(part: Any, lines: str) -> Any:
    """A part as DCP has it: no wrapper's names, and those of parameters in place of numbers."""
    if not isinstance(part, Mapping):
        return part
    names = lines.split("\n")
    if not lines or part.keys() != {"state", "param_groups"}:
        wrapper = "module." if part and all(str(key).startswith("module.") for key in part) else ""
        return {plain_name(str(key).removeprefix(wrapper)): one for key, one in part.items()}
    return {
        "state": {names[int(number)]: one for number, one in part["state"].items()},
        "param_groups": [
            {**group, "params": [names[number] for number in group["params"]]}
            for group in part["param_groups"]
        ],
    }
