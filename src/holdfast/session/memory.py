"""The memory tier as a rank has it: buffers made ready beside the training, and filled by it.

How many are ready stands in the page; from then on the controller orders saves into them. A save
that finds its buffer gone, or no room any more, takes that back: training goes on with
checkpoints in the store. Buffers that are gone are made again beside it.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.core.value import value
from holdfast.errors import StoreUnavailable
from holdfast.journal.layout import Word
from holdfast.journal.rank_page import RankPage
from holdfast.session.descriptors import apart
from holdfast.session.say import say

if TYPE_CHECKING:
    from holdfast.snapshot.described import Region
    from holdfast.snapshot.device_copies import DeviceCopies
    from holdfast.snapshot.late import LateCopy
    from holdfast.snapshot.ram import BufferFiles, Named
    from holdfast.snapshot.receipt import DeclaredReplicas

SLACK_BYTES = 1 << 20  # what grows a little between saves need not be made while training waits


@value
class RamPlace:
    """Where a rank's buffers are to be: what its supervisor told it."""

    folder: Path  # of the run, in memory
    wanted: int  # buffers
    local_rank: int
    local_world_size: int  # ranks that share this host's memory


class RankBuffers:
    """One rank's buffers in one attempt."""

    def __init__(self, place: RamPlace, page: RankPage, rank: int, world_size: int) -> None:
        self._place = place
        self._page = page
        self._rank = rank
        self._world_size = world_size
        self._expected_bytes = 0
        self._thread: threading.Thread | None = None

    @functools.cached_property
    def _buffers(self) -> BufferFiles:
        from holdfast.snapshot.ram import BufferFiles  # numpy: not before there is a state

        return BufferFiles(
            self._place.folder,
            wanted=self._place.wanted,
            rank=self._rank,
            world_size=self._world_size,
            local_world_size=self._place.local_world_size,
            local_rank=self._place.local_rank,
            tell=say,
        )

    @property
    def is_shared_by_ranks(self) -> bool:
        """Whether several ranks, and all there are, share the memory of this host."""
        return self._place.local_world_size == self._world_size > 1

    def expect(self, tree: Any, shared: Sequence[str]) -> None:
        """Begin to make buffers for a tree of about this size; nothing is promised yet."""
        self._expected_bytes = self._buffers.measure(tree, shared) + SLACK_BYTES
        self._begin(self._expected_bytes, lambda _: None)

    def prepare(
        self, tree: Any, shared: Sequence[str], otherwise: Callable[[int], None] = lambda _: None
    ) -> None:
        """Make buffers for this tree and publish how many; raises Unstorable.

        `otherwise` is called with the bytes of a copy, by the thread that makes them, if there can
        be none.
        """
        size_bytes = self._buffers.measure(tree, shared)
        if size_bytes > self._expected_bytes:
            size_bytes += SLACK_BYTES
        self._begin(max(size_bytes, self._expected_bytes), self._publish, otherwise)

    def save(
        self,
        buffer: int,
        tree: Any,
        named: Named,
        may_be_late: Set[Region] | None = None,
        copies: DeviceCopies | None = None,
    ) -> LateCopy | None:
        """Copy a tree into a buffer, but for what is returned; raises Unstorable, StoreUnavailable.

        Nothing else may be copied before that is over.
        """
        try:
            return self._buffers.begin(buffer, tree, named, may_be_late, copies)
        except StoreUnavailable:
            self._page.store(Word.BUFFERS, 0)
            if self._buffers.has(buffer):  # there was no room in it, and will be none in another
                say("No more snapshots in memory: checkpoints go to the store alone")
            elif self._thread is None or not self._thread.is_alive():
                say("The snapshots in memory are gone: they are made again, beside the training")
                size_bytes = self._buffers.measure(tree, named.shared) + SLACK_BYTES
                self._begin(size_bytes, self._publish)
            raise

    def declared(self, paths: Iterable[str], replicated: tuple[str, ...]) -> DeclaredReplicas:
        """What a set with these arrays that is not in a buffer is compared by."""
        return self._buffers.declared(paths, replicated)

    def close(self) -> None:
        """The process ends: whoever makes buffers stops soon."""
        if self._thread is not None:
            self._buffers.close()
            self._thread.join()

    def _publish(self, ready: int) -> None:
        self._page.store(Word.BUFFERS, ready)

    def _begin(
        self,
        size_bytes: int,
        ready: Callable[[int], None],
        otherwise: Callable[[int], None] | None = None,
    ) -> None:
        before = self._thread

        def make() -> None:
            if before is not None:
                before.join()
            try:
                why = self._buffers.prepare(size_bytes, ready, apart)
                if otherwise is None:
                    return  # nobody was promised anything: the next call tells
                if not self._buffers.ready:
                    otherwise(size_bytes)
            except Exception as error:
                # The training must not notice, and the controller has heard of no buffer.
                self._page.increment(Word.ERRORS)
                why = f"no snapshots in memory: {error!r}"
            if why and self._place.local_rank == 0:
                say(why)

        self._thread = threading.Thread(target=make, name="holdfast-ram", daemon=True)
        self._thread.start()
