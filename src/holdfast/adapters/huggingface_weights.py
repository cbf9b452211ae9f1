"""Whether a checkpoint of Hugging Face's has the weights of a model: the same names and shapes.

The Trainer loads by name, and passes over each weight that only one of the two has. Since 5.0
transformers saves some models (mixtures of experts, vision and language) under other names than
they have, and in other shapes: `from_pretrained` knows them, the Trainer does not.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers import PreTrainedModel
from transformers.utils import CONFIG_NAME, SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME

from holdfast.session.say import say

# What DeepSpeed and FSDP restore the model from, by themselves.
_OTHERS = ("global_step*", "pytorch_model_fsdp*")


def renamed_weights(model: Any, checkpoint: Path) -> dict[str, Any] | None:
    """By the model's own names, where the checkpoint has others; None: the Trainer loads them.

    Raises ValueError where it is a checkpoint of another model.
    """
    try:
        check_weights(model, checkpoint)
    except ValueError as error:
        mismatch = error
    else:
        return None
    if isinstance(model, PreTrainedModel) and _kind_kept(checkpoint) == model.config.model_type:
        kinds = {one.dtype for one in model.parameters()}
        dtype = kinds.pop() if len(kinds) == 1 else torch.float32
        loaded, told = type(model).from_pretrained(
            checkpoint, dtype=dtype, output_loading_info=True
        )
        weights: dict[str, Any] = loaded.state_dict()
        is_whole = not told["missing_keys"] and not told["unexpected_keys"]
        if is_whole and _shapes(weights) == _shapes(model.state_dict()):
            return weights
    raise mismatch


def load_renamed(model: Any, weights: dict[str, Any]) -> None:
    """What `renamed_weights` has found, into the model; a sentence says so."""
    model.load_state_dict(weights)
    say(
        "The checkpoint has some weights under other names than the model, and the Trainer says "
        "that they are missing. All weights are loaded."
    )


def check_weights(model: Any, checkpoint: Path) -> None:
    """Raises ValueError where they differ.

    Nothing is compared where the model is not kept whole as safetensors, as by PEFT, or where the
    Trainer leaves it to DeepSpeed or FSDP.
    """
    kept = dict(_kept_shapes(checkpoint))
    if not kept or any(any(checkpoint.glob(name)) for name in _OTHERS):
        return
    state = model.state_dict()
    tied = _tied_names(model)
    unsaved = getattr(model, "_keys_to_ignore_on_save", None) or ()
    for name, one in state.items():
        if name not in kept:
            # Of weights that are tied one is kept.
            if name not in unsaved and not tied[name] & kept.keys():
                raise ValueError(f"it has no {name}, and the model has one")
        elif list(one.shape) != kept[name]:
            raise ValueError(f"its {name} is {kept[name]}, and the model's {list(one.shape)}")
    for name in kept:
        if name not in state:
            raise ValueError(f"it has a {name}, and the model has none")


def _kind_kept(checkpoint: Path) -> str | None:
    """The model's, as transformers calls it."""
    config = checkpoint / CONFIG_NAME
    return json.loads(config.read_text()).get("model_type") if config.is_file() else None


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


def _shapes(weights: dict[str, Any]) -> dict[str, list[int]]:
    return {name: list(one.shape) for name, one in weights.items()}


def _tied_names(model: Any) -> dict[str, set[str]]:
    """Of each weight, by its name: all names that it has."""
    names: dict[int, set[str]] = defaultdict(set)
    parts = model.named_parameters, model.named_buffers
    for name, one in chain.from_iterable(part(remove_duplicate=False) for part in parts):
        names[id(one)].add(name)
    return defaultdict(set, {name: alike for alike in names.values() for name in alike})
