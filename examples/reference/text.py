"""Windows of real text, shuffled and batched by grain, whose position Holdfast saves."""

from __future__ import annotations

import grain
import numpy as np


class Windows:
    """A text [N], uint8, cut into pieces of `length` bytes without overlap."""

    def __init__(self, text: np.ndarray, length: int):
        self.text, self.length = text, length

    def __len__(self):
        return len(self.text) // self.length

    def __getitem__(self, i):
        return self.text[i * self.length : (i + 1) * self.length].astype(np.int32)


def batches(text, length: int, batch: int, seed: int, rank: int = 0, ranks: int = 1):
    """An endless iterator of this rank's rows [batch / ranks, length] of each batch.

    Each epoch has an order of its own. All ranks together draw the same batches however many there
    are, so that one position is right for any number of them.
    """
    if batch % ranks:
        raise SystemExit(f"{ranks} ranks cannot share a batch of {batch} evenly")
    windows = grain.MapDataset.source(Windows(text, length)).seed(seed).shuffle().repeat()
    mine = windows[rank::ranks].batch(batch // ranks)
    # A thread reads ahead; the position is that of what was drawn.
    return iter(mine.to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=4)))
