"""The data iterator: stalls become DATA spans, and the position of what was consumed is saved.

The position counts batches handed to the loop, not batches read ahead inside the iterator. A source
that knows its own state (`get_state`/`set_state`, `state_dict`/`load_state_dict`) is asked for it
at a save; of any other the batches are drawn again. Of an iterator that are all batches since the
first; of an iterable those of its epoch, whose order follows from the random generators as they
were at its begin.

After a rollback batches are passed over: drawn and dropped, unless the source has a method
`skip_batches(n)` to do that in its own way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from holdfast.errors import ConfigurationError, Unstorable
from holdfast.session.reshape import BEGAN, Reshard
from holdfast.snapshot.parts import capture_order, restore_order

T = TypeVar("T")

_GETTERS = ("get_state", "state_dict")
_SETTERS = ("set_state", "load_state_dict")

SetEpoch = Callable[[int], object]
"""Is told the number of the epoch that begins, from 0."""


class DataStream(Generic[T]):
    """What `run.data(source)` returns: an iterator over the same batches, of all epochs.

    `epoch`: the number of the one that is under way, from 0. `consumed`: batches of all epochs.
    """

    def __init__(
        self,
        source: Any,
        *,
        opened: Callable[[], int],
        closed: Callable[[int], None],
        poll: Callable[[], None],
        epochs: float = 1,
        set_epoch: SetEpoch | None = None,
        reshard: Reshard | None = None,
    ) -> None:
        _check(source, epochs, set_epoch, reshard)
        self._source = source
        # An iterable that is no iterator may hold the state itself (a data loader): keep both.
        self._is_iterator = hasattr(source, "__next__")
        self._iterator: Iterator[T] | None = source if self._is_iterator else None
        self._opened = opened
        self._closed = closed
        self._poll = poll
        self._epochs = epochs
        self._set_epoch = set_epoch or _count_of_passes(source)
        self.reshard = reshard
        self.consumed = 0
        self.epoch = 0
        self._drawn = 0  # of this epoch
        self._began: dict[str, Any] = {}  # what this epoch's order follows from

    def __iter__(self) -> DataStream[T]:
        return self

    def __next__(self) -> T:
        self._poll()
        token = self._opened()
        try:
            batch = self._draw()
        finally:
            self._closed(token)
        self.consumed += 1
        self._drawn += 1
        return batch

    def _draw(self) -> T:
        while True:
            iterator = self._begin_epoch() if self._iterator is None else self._iterator
            try:
                return next(iterator)
            except StopIteration:
                if self.epoch + 1 >= self._epochs:
                    raise StopIteration(self._told_of_the_end()) from None
                if self._drawn == 0:
                    raise ConfigurationError(
                        f"epoch {self.epoch} of the data has no batch: can "
                        f"{type(self._source).__name__} be gone through more than once?"
                    ) from None
            self.epoch, self._drawn, self._iterator = self.epoch + 1, 0, None

    def _begin_epoch(self) -> Iterator[T]:
        if self._set_epoch is not None:
            self._set_epoch(self.epoch)
        self._began, self._drawn = capture_order(self._source), 0
        self._iterator = iter(self._source)
        return self._iterator

    def _told_of_the_end(self) -> str:
        told = f"the data ended after {self.consumed} batches"
        if self._is_iterator:
            return told
        epochs = "1 epoch" if self._epochs == 1 else f"{self._epochs:g} epochs"
        return f"{told} ({epochs}): say run.data(…, epochs=…) for more"

    def skip(self, number: int) -> None:
        """Pass over so many batches: they count as consumed, and nobody sees them."""
        skip = getattr(self._source, "skip_batches", None)
        if number and callable(skip):
            skip(number)
            self.consumed += number
            return
        for left in range(number, 0, -1):
            try:
                next(self)
            except StopIteration:
                raise ConfigurationError(
                    f"{number} batches were to be skipped, but the data ended {left} batches before"
                ) from None

    def position(self, path: str) -> dict[str, Any]:
        """The position as plain data. Raises Unstorable naming `path` if the source's is not."""
        found: dict[str, Any] = {"consumed": self.consumed}
        if not self._is_iterator:
            found |= {"epoch": self.epoch, "drawn": self._drawn}
        if self.consumed == 0:
            return found  # a loader that is asked now would begin, and draw random numbers
        ask = _method(self._source, *_GETTERS) or _method(self._iterator, *_GETTERS)
        if ask is not None and not _only_draws_again(self._source):
            try:
                return found | {"state": ask()}
            except Exception as error:
                raise Unstorable(
                    path, f"the data iterator's {ask.__name__}() failed: {error}"
                ) from error
        is_begun = not self._is_iterator and self._iterator is not None
        return found | {BEGAN: self._began} if is_begun else found

    def seek(self, position: dict[str, Any]) -> None:
        """Go to a stored position, by the source's own means or by drawing again.

        Random generators are drawn from meanwhile: whoever trains on puts them back afterwards.
        """
        self.epoch = int(position.get("epoch", 0))
        if "state" in position:
            self.consumed = int(position["consumed"])
            drawn = int(position.get("drawn", self.consumed))
            self._take(position["state"], is_begun=drawn > 0)
            self._drawn = drawn
        elif BEGAN in position:
            drawn = int(position["drawn"])
            restore_order(self._source, position[BEGAN])
            self.consumed = int(position["consumed"]) - drawn
            self._begin_epoch()
            self._draw_again(drawn)
        else:
            self.epoch = 0
            self._draw_again(int(position["consumed"]))

    def _take(self, state: Any, *, is_begun: bool) -> None:
        """The source's own state, or its iterator's, which is made now: to make it may draw."""
        tell = _method(self._source, *_SETTERS)
        if tell is not None:
            tell(state)
        if is_begun and not self._is_iterator:
            self._begin_epoch()
        if tell is None:
            tell = _method(self._iterator, *_SETTERS)
            if tell is None:
                kind = type(self._iterator or self._source).__name__
                raise ConfigurationError(
                    "the checkpoint holds the data iterator's own state, but this iterator "
                    f"({kind}) has no set_state or load_state_dict to take it"
                )
            tell(state)

    def _draw_again(self, number: int) -> None:
        until = self.consumed + number
        while self.consumed < until:
            try:
                next(self)
            except StopIteration:
                raise ConfigurationError(
                    f"the checkpoint was taken after {until} batches, but the data ended "
                    f"after {self.consumed}: is it the same data?"
                ) from None


def _method(holder: Any, *names: str) -> Callable[..., Any] | None:
    """The first of these that it has."""
    found = (getattr(holder, name, None) for name in names)
    return next(filter(callable, found), None)


def _only_draws_again(source: Any) -> bool:
    """Whether it has no state, though it has a method to ask for one.

    Loaders that accelerate (1.15) has prepared always have one; it fails around a plain DataLoader.
    """
    return _is_accelerates(source) or getattr(source, "only_draws_again", False)


def _is_accelerates(source: Any) -> bool:
    return hasattr(source, "base_dataloader")


def _count_of_passes(source: Any) -> SetEpoch | None:
    """A loader of accelerate's counts how often it was gone through; its order may go by that.

    It is told the number of passes, those of earlier attempts too. None: it is another's loader.
    """
    first = getattr(source, "iteration", None)
    if type(first) is not int or not _is_accelerates(source):
        return None
    return lambda epoch: setattr(source, "iteration", first + epoch)


def _check(source: Any, epochs: float, set_epoch: SetEpoch | None, reshard: Reshard | None) -> None:
    """Raises ConfigurationError for what `run.data` cannot work with."""
    kind = type(source).__name__
    if not hasattr(source, "__next__") and not hasattr(source, "__iter__"):
        raise ConfigurationError(f"run.data() needs an iterator or an iterable, not {kind}")
    if _is_accelerates(source) and _method(source.base_dataloader, *_GETTERS) is not None:
        raise ConfigurationError(
            "run.data() was given a loader that accelerate has made a StatefulDataLoader of, whose "
            "state does not hold its order: leave use_stateful_dataloader out, and the batches of "
            "a broken epoch are drawn again"
        )
    if epochs != math.inf and not (type(epochs) is int and epochs >= 1):
        raise ConfigurationError(
            f"run.data(epochs={epochs!r:.50}): give a whole number of epochs, 1 or more, or "
            "math.inf for no end"
        )
    if hasattr(source, "__next__") and (epochs != 1 or set_epoch is not None):
        raise ConfigurationError(
            f"run.data(epochs=…, set_epoch=…) makes an iterator for each epoch, and {kind} is one "
            "already, which goes through the data once: give what it was made from"
        )
    if not (reshard is None or reshard == "same" or callable(reshard)):
        raise ConfigurationError(
            f'run.data(reshard={reshard!r:.50}): give "same", or a function of the positions '
            "of all ranks, this rank's number and the number of ranks"
        )
