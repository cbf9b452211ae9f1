"""PyTorch's `DataLoader` with a position: an epoch that was broken off goes on where it was.

In the place of `torch.utils.data.DataLoader`, with the same arguments. Frameworks that ask a loader
for its state (Lightning, `run.data`) find it; workers, samplers and shuffling are PyTorch's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import Any

import numpy as np
from torch.utils.data import DataLoader

from holdfast.snapshot.parts import (
    capture_order,
    capture_own,
    capture_rng,
    restore_order,
    restore_own,
    restore_rng,
)


class ResumableDataLoader(DataLoader):  # type: ignore[misc]
    """A `DataLoader` with `state_dict` and `load_state_dict`.

    An epoch's order follows from the random generators as they are when its first batch is drawn.
    They are part of the state: to go on, they are put back, as many batches are drawn again, and
    the generators of the training are left as they were. That takes the time of drawing them.
    `ahead`: of the drawn batches, so many that nobody has used yet; who draws ahead says it.
    """

    ahead = 0
    only_draws_again = True
    """`run.data` does the same by itself, and knows which epoch it is."""

    _began: Mapping[str, Any] | None = None  # the generators at the first batch of this epoch
    _drawn = 0
    _resume: Mapping[str, Any] | None = None

    def __iter__(self) -> Iterator[Any]:
        return self._batches()

    def _batches(self) -> Iterator[Any]:
        resume, self._resume = self._resume, None
        if resume is None:
            self._began, self._drawn = _plain(capture_order(self)), 0
            batches = super().__iter__()
        else:
            now = capture_rng()
            self._began, self._drawn = resume["began"], resume["drawn"]
            restore_order(self, _arrays(resume["began"]))
            batches = super().__iter__()
            for _ in range(self._drawn):
                next(batches)
            ahead = list(islice(batches, resume.get("ahead", 0)))
            restore_rng(now)
            batches = chain(ahead, batches)
        for batch in batches:
            self._drawn += 1
            yield batch
        self.end_epoch()

    def end_epoch(self) -> None:
        """The next iterator begins an epoch, whether or not this one has come to its end."""
        self._began, self._drawn = None, 0

    def state_dict(self) -> dict[str, Any]:
        """Where it stands: after the last batch of an epoch, as before the first of the next."""
        if self._resume is not None:  # nothing was drawn since it was told where to go on
            return dict(self._resume)
        is_whole = self._began is None or (self._has_length and self._drawn == len(self))
        if is_whole:
            return {"began": None, **capture_own(self)}
        return {"began": self._began, "drawn": self._drawn - self.ahead, "ahead": self.ahead}

    @property
    def _has_length(self) -> bool:
        try:
            return len(self) >= 0
        except TypeError:
            return False

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next iterator goes on from there."""
        self._resume = state if state["began"] is not None else None
        restore_own(self, state)


def _plain(value: Any) -> Any:
    """Without numpy's arrays: a framework may read its checkpoint as weights and plain values."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, np.ndarray):
        return {"dtype": str(value.dtype), "array": value.tolist()}
    return value


def _arrays(value: Any) -> Any:
    """The inverse of `_plain`."""
    if not isinstance(value, dict):
        return value
    if set(value) == {"dtype", "array"}:
        return np.array(value["array"], value["dtype"])
    return {name: _arrays(part) for name, part in value.items()}
