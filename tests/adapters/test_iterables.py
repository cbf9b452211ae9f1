"""What draws data for a loop of one's own, by `run.data`: grain, tf.data, and tar files in order.

Skipped where a library is not installed: `make trainers` has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

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
