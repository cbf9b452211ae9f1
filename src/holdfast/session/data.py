"""The data iterator: stalls become DATA spans, and the position of what was consumed is saved.

The position counts batches handed to the loop, not batches read ahead inside the iterator. An
iterator that knows its own state (`get_state`/`set_state`, `state_dict`/`load_state_dict`) is
asked for it at a save; any other is fast-forwarded on restore by drawing the batches again.

After a rollback batches are passed over: drawn and dropped, unless the iterator has a method
`skip_batches(n)` to do that in its own way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from holdfast.errors import ConfigurationError, Unstorable
from holdfast.session.reshape import Reshard

T = TypeVar("T")


class DataStream(Generic[T]):
    """What `run.data(it)` returns: an iterator over the same batches."""

    def __init__(
        self,
        source: Any,
        *,
        opened: Callable[[], int],
        closed: Callable[[int], None],
        poll: Callable[[], None],
        reshard: Reshard | None = None,
    ) -> None:
        if not hasattr(source, "__next__") and not hasattr(source, "__iter__"):
            raise ConfigurationError(
                f"run.data() needs an iterator or an iterable, not {type(source).__name__}"
            )
        if not (reshard is None or reshard == "same" or callable(reshard)):
            raise ConfigurationError(
                f'run.data(reshard={reshard!r:.50}): give "same", or a function of the positions '
                "of all ranks, this rank's number and the number of ranks"
            )
        self._source = source
        # An iterable that is no iterator may hold the state itself (a data loader): keep both.
        self._iterator: Iterator[T] | None = source if hasattr(source, "__next__") else None
        self._opened = opened
        self._closed = closed
        self._poll = poll
        self.reshard = reshard
        self.consumed = 0

    def __iter__(self) -> DataStream[T]:
        return self

    def __next__(self) -> T:
        self._poll()
        token = self._opened()
        try:
            iterator = self._iterator
            if iterator is None:
                iterator = self._iterator = iter(self._source)
            batch = next(iterator)
        finally:
            self._closed(token)
        self.consumed += 1
        return batch

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
        for getter in ("get_state", "state_dict"):
            ask = getattr(self._source, getter, None)
            if callable(ask):
                try:
                    return {"consumed": self.consumed, "state": ask()}
                except Exception as error:
                    raise Unstorable(
                        path, f"the data iterator's {getter}() failed: {error}"
                    ) from error
        return {"consumed": self.consumed}

    def seek(self, position: dict[str, Any]) -> None:
        """Go to a stored position, by the source's own means or by drawing again."""
        consumed = int(position["consumed"])
        if "state" in position:
            for setter in ("set_state", "load_state_dict"):
                tell = getattr(self._source, setter, None)
                if callable(tell):
                    tell(position["state"])
                    self.consumed = consumed
                    return
            raise ConfigurationError(
                "the checkpoint holds the data iterator's own state, but this iterator "
                f"({type(self._source).__name__}) has no set_state or load_state_dict to take it"
            )
        while self.consumed < consumed:
            try:
                next(self)
            except StopIteration:
                raise ConfigurationError(
                    f"the checkpoint was taken after {consumed} batches, but the data ended "
                    f"after {self.consumed}: is it the same data?"
                ) from None
