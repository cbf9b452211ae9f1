"""A DataLoader with a position, against one that was never broken off."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler

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


Make = Callable[..., DataLoader]


def by_loader(make: Make) -> DataLoader:
    own = torch.Generator().manual_seed(4)
    return make(range(24), batch_size=4, shuffle=True, generator=own)


def by_sampler(make: Make) -> DataLoader:
    own = torch.Generator().manual_seed(4)
    return make(range(24), batch_size=4, sampler=RandomSampler(range(24), generator=own))


def by_batches(make: Make) -> DataLoader:
    own = torch.Generator().manual_seed(4)
    sampler = RandomSampler(range(24), generator=own)
    return make(range(24), batch_sampler=BatchSampler(sampler, 4, drop_last=False))


OWN = pytest.mark.parametrize("own", [by_loader, by_sampler, by_batches])


def counted(loader: DataLoader, epochs: int) -> Iterator[list[int]]:
    """As Lightning draws: it knows how many batches there are, and asks for no more."""
    for _ in range(epochs):
        batches = iter(loader)
        for _ in range(BATCHES):
            yield next(batches).tolist()


@OWN
@pytest.mark.parametrize("drawn", [2, BATCHES, BATCHES + 2])
def test_an_order_from_a_generator_of_the_loaders_own(
    own: Callable[[Make], DataLoader], drawn: int
) -> None:
    straight = list(counted(own(DataLoader), 3))
    loader = own(ResumableDataLoader)
    running = counted(loader, 3)
    begun = [next(running) for _ in range(drawn)]
    other = own(ResumableDataLoader)
    list(other)  # its generator has moved on
    other.load_state_dict(loader.state_dict())
    if drawn % BATCHES:
        begun += [batch.tolist() for batch in islice(other, BATCHES - drawn % BATCHES)]
    assert begun + list(counted(other, 3 - len(begun) // BATCHES)) == straight


class Endless(torch.utils.data.IterableDataset):
    """It draws where it is read."""

    def __iter__(self) -> Iterator[float]:
        while True:
            yield random.random()


def test_batches_that_were_drawn_before_their_turn_come_next() -> None:
    seed()
    loader = ResumableDataLoader(Endless(), batch_size=4)
    batches = iter(loader)
    drawn = [next(batches).tolist() for _ in range(5)]
    loader.ahead = 2
    other = ResumableDataLoader(Endless(), batch_size=4)
    other.load_state_dict(loader.state_dict())
    resumed = iter(other)
    assert [next(resumed).tolist() for _ in range(2)] == drawn[3:]
    other.ahead = 0
    assert other.state_dict() == {**loader.state_dict(), "drawn": 5, "ahead": 0}


# `run.data` over loaders of torch's and torchdata's, with processes that draw for themselves.


def stream(loader: DataLoader) -> DataStream[torch.Tensor]:
    return DataStream(loader, opened=int, closed=lambda _: None, poll=lambda: None, epochs=2)


def plain(workers: int) -> DataLoader:
    return DataLoader(Noisy(), batch_size=4, shuffle=True, num_workers=workers)


def resumable(workers: int) -> DataLoader:
    return ResumableDataLoader(Noisy(), batch_size=4, shuffle=True, num_workers=workers)


def stateful(workers: int) -> DataLoader:
    torchdata = pytest.importorskip("torchdata.stateful_dataloader")
    return torchdata.StatefulDataLoader(Noisy(), batch_size=4, shuffle=True, num_workers=workers)


@pytest.mark.real
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata looks at all of torch
@pytest.mark.parametrize(
    ("make", "workers"),
    [(plain, 0), (plain, 2), (resumable, 0), (stateful, 0)],
    ids=lambda one: str(one)[:16],
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
    with pytest.raises(StopIteration):
        next(again)


@OWN
@pytest.mark.parametrize("done", [2, BATCHES, BATCHES + 2])
def test_own_generators_of_a_loader_go_on(own: Callable[[Make], DataLoader], done: int) -> None:
    straight = [batch.tolist() for batch in stream(own(DataLoader))]
    data = stream(own(DataLoader))
    begun = [next(data).tolist() for _ in range(done)]
    again = stream(own(DataLoader))
    again.seek(data.position("data/0"))
    assert begun + [batch.tolist() for batch in again] == straight
