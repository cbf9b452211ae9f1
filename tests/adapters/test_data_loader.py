"""A DataLoader with a position, against one that was never broken off."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from holdfast.adapters.data_loader import ResumableDataLoader
from holdfast.session.data import DataStream
from holdfast.snapshot.parts import capture_rng, restore_rng

BATCHES = 6


class Noisy(torch.utils.data.Dataset):
    """Draws from all generators, as augmentations do."""

    def __len__(self) -> int:
        return 4 * BATCHES

    def __getitem__(self, index: int) -> float:
        return index + random.random() + np.random.rand() + torch.rand(()).item()


def seed() -> None:
    torch.manual_seed(1)
    np.random.seed(2)
    random.seed(3)


def seeded() -> ResumableDataLoader:
    seed()
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


def own_generator() -> ResumableDataLoader:
    generator = torch.Generator().manual_seed(4)
    return ResumableDataLoader(range(24), batch_size=4, shuffle=True, generator=generator)


def test_an_order_from_a_generator_of_the_loaders_own() -> None:
    straight = [batch.tolist() for batch in own_generator()]
    loader = own_generator()
    batches = iter(loader)
    begun = [next(batches).tolist() for _ in range(2)]
    other = own_generator()
    list(other)  # its generator has moved on
    other.load_state_dict(loader.state_dict())
    assert begun + [batch.tolist() for batch in other] == straight


# `run.data` over loaders of torch's and torchdata's, with processes that draw for themselves.


def stream(loader: DataLoader) -> DataStream[torch.Tensor]:
    return DataStream(loader, opened=int, closed=lambda _: None, poll=lambda: None, epochs=2)


def plain(workers: int) -> DataLoader:
    return DataLoader(Noisy(), batch_size=4, shuffle=True, num_workers=workers)


def stateful(workers: int) -> DataLoader:
    torchdata = pytest.importorskip("torchdata.stateful_dataloader")
    return torchdata.StatefulDataLoader(Noisy(), batch_size=4, shuffle=True, num_workers=workers)


@pytest.mark.real
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata looks at all of torch
@pytest.mark.parametrize(
    ("make", "workers"), [(plain, 0), (plain, 2), (stateful, 0)], ids=lambda one: str(one)[:16]
)
@pytest.mark.parametrize("done", [0, 1, BATCHES - 1, BATCHES, BATCHES + 2])
def test_dropout_and_workers_draw_the_same(
    make: Callable[[int], DataLoader], workers: int, done: int
) -> None:
    def train(data: DataStream[torch.Tensor], until: int) -> list[tuple[list[float], float]]:
        return [(next(data).tolist(), torch.rand(()).item()) for _ in range(until - data.consumed)]

    seed()
    straight = train(stream(make(workers)), 2 * BATCHES)
    seed()
    data = stream(make(workers))
    begun = train(data, done)
    position, generators = data.position("data/0"), capture_rng()
    del data

    seed()  # the script, started again, does what it did
    again = stream(make(workers))
    again.seek(position)
    restore_rng(generators)
    assert begun + train(again, 2 * BATCHES) == straight
