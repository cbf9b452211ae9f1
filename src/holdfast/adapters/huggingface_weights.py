"""Whether a checkpoint of Hugging Face's has the weights of a model: the same names and shapes.

The Trainer loads by name, and passes over each weight that only one of the two has.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from safetensors import safe_open
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME


def check_weights(model: Any, checkpoint: Path) -> None:
    """Raises ValueError where they differ.

    Nothing is compared where the model is not kept whole as safetensors, as by PEFT and FSDP.
    """
    kept = dict(_kept_shapes(checkpoint))
    if not kept:
        return
    state = model.state_dict()
    tied = _tied_names(model)
    unsaved = getattr(model, "_keys_to_ignore_on_save", None) or ()
    for name, one in state.items():
        if name not in kept:
            # Of weights that are tied one is kept.
            if name not in unsaved and not tied[name] & kept.keys():
                raise ValueError(f"it has no {name}, and the model has one")
        elif one.numel() and list(one.shape) != kept[name]:  # DeepSpeed's parts are empty here
            raise ValueError(f"its {name} is {kept[name]}, and the model's {list(one.shape)}")
    for name in kept:
        if name not in state:
            raise ValueError(f"it has a {name}, and the model has none")


def _kept_shapes(checkpoint: Path) -> Iterator[tuple[str, list[int]]]:
    """Of the weights in the checkpoint's file, or in the files that its index names."""
    files = {SAFE_WEIGHTS_NAME}
    index = checkpoint / SAFE_WEIGHTS_INDEX_NAME
    if index.is_file():
        files = set(json.loads(index.read_text())["weight_map"].values())
    for file in sorted(files):
        if (checkpoint / file).is_file():
            with safe_open(checkpoint / file, "pt") as kept:
                for name in kept.keys():  # noqa: SIM118 - it is no dictionary
                    yield name, kept.get_slice(name).get_shape()


def _tied_names(model: Any) -> dict[str, set[str]]:
    """Of each weight, by its name: all names that it has."""
    names: dict[int, set[str]] = defaultdict(set)
    parts = model.named_parameters, model.named_buffers
    for name, one in chain.from_iterable(part(remove_duplicate=False) for part in parts):
        names[id(one)].add(name)
    return defaultdict(set, {name: alike for alike in names.values() for name in alike})
