"""`run.data`: epochs, and going on after any batch as if nothing had happened."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler

from holdfast.errors import ConfigurationError
from holdfast.session.data import DataStream
from holdfast.session.reshape import Positions, resharded, same
from holdfast.snapshot.parts import capture_rng, restore_rng

BATCHES = 4
EPOCHS = 3


class Noisy(torch.utils.data.Dataset):
    """Draws from all generators, as augmentations do."""

    def __len__(self) -> int:
        return 3 * BATCHES

    def __getitem__(self, index: int) -> float:
        return index + random.random() + np.random.rand() + torch.rand(()).item()


class Counted:
    """Its iterators know where they are, as grain's do."""

    def __iter__(self) -> CountedIterator:
        return CountedIterator()


class CountedIterator:
    """Draws as it is made, as a loader does that seeds its workers."""

    drawn = 0

    def __init__(self) -> None:
        self._at, self._seed = 0, random.random()

    def __next__(self) -> float:
        if self._at == BATCHES:
            raise StopIteration
        self._at += 1
        CountedIterator.drawn += 1
        return self._at + self._seed

    def get_state(self) -> dict[str, float]:
        return {"at": self._at, "seed": self._seed}

    def set_state(self, state: dict[str, float]) -> None:
        self._at, self._seed = int(state["at"]), state["seed"]


class Stateful:
    """A loader with a state, whose next iterator draws as it is made: torchdata's."""

    _at = 0

    def __iter__(self) -> Iterator[float]:
        random.random()
        return self._batches()

    def _batches(self) -> Iterator[float]:
        while self._at < BATCHES:
            self._at += 1
            yield float(self._at)
        self._at = 0

    def state_dict(self) -> dict[str, int]:
        return {"at": self._at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._at = state["at"]


def stream(source: Any, **how: Any) -> DataStream[Any]:
    """As `run.data` makes it."""
    return DataStream(source, opened=int, closed=lambda _: None, poll=lambda: None, **how)


def seed(number: int) -> None:
    torch.manual_seed(number)
    np.random.seed(number)
    random.seed(number)


def shuffled() -> DataStream[Any]:
    return stream(DataLoader(Noisy(), batch_size=3, shuffle=True), epochs=EPOCHS)


def with_a_generator() -> DataStream[Any]:
    own = torch.Generator().manual_seed(5)
    return stream(DataLoader(Noisy(), batch_size=3, shuffle=True, generator=own), epochs=EPOCHS)


def by_epoch() -> DataStream[Any]:
    sampler = DistributedSampler(Noisy(), num_replicas=1, rank=0, seed=3)
    loader = DataLoader(Noisy(), batch_size=3, sampler=sampler)
    return stream(loader, epochs=EPOCHS, set_epoch=sampler.set_epoch)


def with_a_state() -> DataStream[Any]:
    return stream(Stateful(), epochs=EPOCHS)


def with_iterators_that_know() -> DataStream[Any]:
    return stream(Counted(), epochs=EPOCHS)


def without_an_end() -> DataStream[Any]:
    return stream(range(BATCHES), epochs=math.inf)


SOURCES = [
    shuffled,
    with_a_generator,
    by_epoch,
    with_a_state,
    with_iterators_that_know,
    without_an_end,
]


def trained(data: DataStream[Any], until: int) -> list[tuple[Any, int, float]]:
    """Of each batch: what it is, its epoch, and what the training draws after it, as dropout."""
    seen = []
    while data.consumed < until:
        batch = next(data)
        plain = batch.tolist() if isinstance(batch, torch.Tensor) else batch
        seen.append((plain, data.epoch, torch.rand(()).item() + random.random()))
    return seen


@pytest.mark.parametrize("done", range(BATCHES * EPOCHS + 1))
@pytest.mark.parametrize("make", SOURCES)
def test_it_goes_on_as_if_nothing_had_happened(
    make: Callable[[], DataStream[Any]], done: int
) -> None:
    seed(1)
    unbroken = make()
    straight = trained(unbroken, BATCHES * EPOCHS)
    seed(1)
    data = make()
    begun = trained(data, done)
    position, generators = data.position("data/0"), capture_rng()

    seed(1)  # the script, started again, does what it did
    again = make()
    torch.rand(7)
    again.seek(position)
    restore_rng(generators)
    assert begun + trained(again, BATCHES * EPOCHS) == straight
    ended = (one.position("data/0") for one in (again, unbroken))
    assert same(*ended)


def test_the_epochs_are_told_and_shown() -> None:
    told: list[int] = []
    data = stream(range(BATCHES), epochs=EPOCHS, set_epoch=told.append)
    seen = [(data.epoch, batch) for batch in data]
    assert seen == [(epoch, batch) for epoch in range(EPOCHS) for batch in range(BATCHES)]
    assert told == list(range(EPOCHS))


def test_only_the_epoch_under_way_is_drawn_again() -> None:
    drawn: list[int] = []

    class Slow:
        def __iter__(self) -> Iterator[int]:
            for number in range(BATCHES):
                drawn.append(number)
                yield number

    data = stream(Slow(), epochs=EPOCHS)
    trained(data, 2 * BATCHES + 1)
    position = data.position("data/0")
    drawn.clear()
    again = stream(Slow(), epochs=EPOCHS)
    again.seek(position)
    assert drawn == [0]
    assert (again.consumed, again.epoch) == (2 * BATCHES + 1, 2)


def test_iterators_that_know_their_place_draw_nothing_again() -> None:
    data = with_iterators_that_know()
    trained(data, BATCHES + 2)
    CountedIterator.drawn = 0
    with_iterators_that_know().seek(data.position("data/0"))
    assert CountedIterator.drawn == 0


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (range(BATCHES), f"the data ended after {BATCHES} batches \\(1 epoch\\): say run.data"),
        (iter(range(BATCHES)), f"the data ended after {BATCHES} batches$"),
    ],
)
def test_the_end_says_what_ended(source: Any, words: str) -> None:
    data = stream(source)
    for _ in range(BATCHES):
        next(data)
    for _ in range(2):
        with pytest.raises(StopIteration, match=words):
            next(data)


def test_an_epoch_without_a_batch_is_no_endless_loop() -> None:
    class Once:
        """Claims to be an iterable, and is empty the second time."""

        left = 2

        def __iter__(self) -> Iterator[int]:
            while self.left:
                self.left -= 1
                yield self.left

    data = stream(Once(), epochs=math.inf)
    assert [next(data), next(data)] == [1, 0]
    with pytest.raises(ConfigurationError, match=r"epoch 1 of the data has no batch: can Once"):
        next(data)


@pytest.mark.parametrize("epochs", [0, -1, 1.5, "2", True, None, math.nan])
def test_a_number_of_epochs_that_cannot_be_meant(epochs: Any) -> None:
    with pytest.raises(ConfigurationError, match="give a whole number of epochs"):
        stream(range(3), epochs=epochs)


@pytest.mark.parametrize("how", [{"epochs": 2}, {"set_epoch": print}])
def test_an_iterator_has_no_epochs(how: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="give what it was made from"):
        stream(iter(range(3)), **how)


def test_a_position_from_before_there_were_epochs() -> None:
    data = stream(range(BATCHES))
    data.seek({"consumed": 3})
    assert list(data) == [3]


def test_a_state_without_anybody_to_take_it() -> None:
    with pytest.raises(ConfigurationError, match="no set_state or load_state_dict"):
        stream(range(BATCHES)).seek({"consumed": 1, "state": {}})


def test_ranks_with_random_numbers_of_their_own_stand_at_the_same_place() -> None:
    def position(rank: int) -> dict[str, Any]:
        seed(rank)
        data = stream(range(BATCHES), epochs=2, reshard="same")
        trained(data, BATCHES + 1)
        return data.position("data/0")

    of_two = Positions((position(0), position(1)), 0, 3)
    data = stream(range(BATCHES), epochs=2)
    data.seek(resharded(of_two, "same", 0))
    assert (data.consumed, data.epoch, next(data)) == (BATCHES + 1, 1, 1)
