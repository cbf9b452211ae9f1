"""The seeds of Keras's layers (dropout, noise), which Keras and TensorFlow leave out of files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def seeds_of(model: Any) -> list[Any]:
    """The variables of a model that are none of its weights."""
    weights = {id(one) for one in model.weights}
    return [one for one in model.variables if id(one) not in weights]


def assign(variables: Sequence[Any], values: Sequence[Any]) -> None:
    """Raises ValueError where there are not as many."""
    if len(variables) != len(values):
        raise ValueError(f"{len(values)} variables were saved, and it has {len(variables)}")
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


class Seeds:
    """Those of several models, as a part of a set."""

    def __init__(self, models: Sequence[Any]) -> None:
        """They need not be built yet."""
        self._models = models

    def state_dict(self) -> dict[str, Any]:
        """Those of each model."""
        return {"seeds": [[np.array(one) for one in seeds_of(model)] for model in self._models]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The models are built. Raises ValueError when they are others."""
        for model, kept in zip(self._models, state["seeds"], strict=True):
            assign(seeds_of(model), kept)
