"""A DataLoader with a position, against one that was never broken off."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from holdfast.adapters.data_loader import ResumableDataLoader

BATCHES = 6


class Noisy(torch.utils.data.Dataset):
    """Draws from all generators, as augmentations do."""

    def __len__(self) -> int:
        return 4 * BATCHES

    def __getitem__(self, index: int) -> float:
        return index + random.random() + np.random.rand() + torch.rand(()).item()


def seeded() -> ResumableDataLoader:
    torch.manual_seed(1)
    np.random.seed(2)
    random.seed(3)
    return ResumableDataLoader(Noisy(), batch_size=4, shuffle=True)


def trained(loader: ResumableDataLoader, epochs: int) -> Iterator[tuple[list[float], float]]:
    """Of each batch, what it is and what the training draws after it."""
    for _ in range(epochs):
        for batch in loader:
            yield batch.tolist(), torch.rand(()).item()


@pytest.mark.parametrize("drawn", range(1, 2 * BATCHES))
def test_it_goes_on_as_if_nothing_had_happened(drawn: int) -> None:
    straight = list(trained(seeded(), 2))
    loader = seeded()
    running = trained(loader, 2)
    begun = [next(running) for _ in range(drawn)]
    state, generators = loader.state_dict(), (torch.get_rng_state(), np.random.get_state())
    python = random.getstate()
    running.close()

    other = ResumableDataLoader(Noisy(), batch_size=4, shuffle=True)
    other.load_state_dict(state)
    torch.manual_seed(99)  # what a framework draws as it starts, and is put back
    torch.set_rng_state(generators[0])
    np.random.set_state(generators[1])
    random.setstate(python)
    left = 2 - drawn // BATCHES
    assert begun + list(trained(other, left)) == straight


def test_a_position_that_was_only_loaded_is_not_lost() -> None:
    loader = seeded()
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    other = ResumableDataLoader(Noisy(), batch_size=4, shuffle=True)
    other.load_state_dict(state)
    assert other.state_dict() == state


def test_an_epoch_that_is_over_is_not_begun_again_in_its_middle() -> None:
    loader = seeded()
    list(loader)
    assert loader.state_dict() == {"began": None}
