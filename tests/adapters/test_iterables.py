"""What draws data for a loop of one's own, by `run.data`: grain, tf.data, and tar files in order.

Skipped where a library is not installed: `make trainers` has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from holdfast.errors import ConfigurationError
from holdfast.session.data import DataStream

pytestmark = pytest.mark.real  # TensorFlow starts a process as it is imported

CUTS = (1, 4, 7, 11)
ALL = 16


def stream(source: Any) -> DataStream[Any]:
    return DataStream(source, opened=int, closed=lambda _: None, poll=lambda: None)


def grain_dataset() -> Any:
    grain = pytest.importorskip("grain")
    rows = grain.MapDataset.range(40).shuffle(seed=3).map(lambda row: row * 10).batch(2)
    return iter(rows.repeat(2).to_iter_dataset())


def grain_loader() -> Any:
    grain = pytest.importorskip("grain.python")
    rows = grain.RangeDataSource(0, 40, 1)
    order = grain.IndexSampler(40, grain.NoSharding(), shuffle=True, num_epochs=2, seed=5)
    batches = [grain.Batch(2)]
    loader = grain.DataLoader(data_source=rows, sampler=order, operations=batches, worker_count=0)
    return iter(loader)


def tf_data() -> Any:
    tf = pytest.importorskip("tensorflow")
    return tf.data.Dataset.range(40).shuffle(16, seed=3).batch(2)


class Shards:
    """As WebDataset reads: one shard after the other, through a buffer that is shuffled."""

    def __iter__(self) -> Iterator[np.ndarray]:
        order, buffer = np.random.default_rng(7), []
        for row in (10 * shard + row for shard in range(4) for row in range(10)):
            buffer.append(row)
            if len(buffer) > 8:
                yield np.array([buffer.pop(order.integers(len(buffer)))])


class Epochs:
    """A sampler whose order follows from the epoch's number alone, which accelerate tells it."""

    def __init__(self) -> None:
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        return iter(np.random.default_rng(self.epoch).permutation(15).tolist())

    def __len__(self) -> int:
        return 15


def accelerates(sampler: Any = None, **how: Any) -> Any:
    accelerate = pytest.importorskip("accelerate")
    import torch

    configuration = accelerate.utils.DataLoaderConfiguration(**how)
    accelerator = accelerate.Accelerator(cpu=True, dataloader_config=configuration)
    order = {"shuffle": True} if sampler is None else {"sampler": sampler}
    return accelerator.prepare(torch.utils.data.DataLoader(range(15), batch_size=2, **order))


@pytest.mark.parametrize("sampler", [None, Epochs])
@pytest.mark.parametrize("cut", [*CUTS, 8])
def test_a_loader_of_accelerates_goes_on_in_a_later_epoch(sampler: type | None, cut: int) -> None:
    def drawn() -> DataStream[Any]:
        loader = accelerates(sampler and sampler())
        return DataStream(loader, opened=int, closed=lambda _: None, poll=lambda: None, epochs=3)

    import torch

    torch.manual_seed(5)
    before = drawn()
    whole = [next(before).tolist() for _ in range(cut)]
    position = before.position("data")
    whole += [batch.tolist() for batch in before]
    assert len(whole) == 3 * 8
    torch.manual_seed(6)  # the order follows from what was kept
    after = drawn()
    after.seek(position)
    torch.manual_seed(0)  # as the run puts back its own
    rest = [batch.tolist() for batch in after]
    epochs_end = 8 * (-(-cut // 8)) - cut
    assert rest[:epochs_end] == whole[cut : cut + epochs_end]
    if sampler is not None:
        assert rest == whole[cut:]


@pytest.mark.filterwarnings("ignore:'set_vital':UserWarning")
def test_a_loader_whose_state_holds_no_order_is_refused() -> None:
    pytest.importorskip("torchdata")
    with pytest.raises(ConfigurationError, match="leave use_stateful_dataloader out"):
        stream(accelerates(use_stateful_dataloader=True))


@pytest.mark.parametrize("made", [grain_dataset, grain_loader, tf_data, Shards])
@pytest.mark.parametrize("cut", CUTS)
def test_it_goes_on_with_the_next_batch(made: Callable[[], Any], cut: int) -> None:
    whole = [np.asarray(batch).tolist() for _, batch in zip(range(ALL), stream(made()))]  # noqa: B905
    first = stream(made())
    begun = [np.asarray(next(first)).tolist() for _ in range(cut)]
    position = first.position("data")
    again = stream(made())
    again.seek(position)
    rest = [np.asarray(next(again)).tolist() for _ in range(ALL - cut)]
    assert begun + rest == whole
    assert again.consumed == ALL


@pytest.mark.parametrize("made", [grain_dataset, grain_loader])
def test_grain_tells_its_own_state(made: Callable[[], Any]) -> None:
    first = stream(made())
    next(first)
    assert "state" in first.position("data"), "nothing is drawn again"
