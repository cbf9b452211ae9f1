"""The memory tier on this host: what the run's machine wants of it, done by the flush processes.

The buffers lie in a folder of the run's own; the ranks fill them. Seals and flushes outlive the
attempt that they are of, and what becomes of them is fed to the run's machine.
"""

from __future__ import annotations

import contextlib
import selectors
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from holdfast.agent.flush import FlushProcesses, FlushResult, differences
from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.hosts.copies import HeldPart
from holdfast.core.hosts.order import Hurry
from holdfast.core.value import value
from holdfast.journal.clocks import now_ns
from holdfast.snapshot.names import set_name
from holdfast.snapshot.part import held_copies
from holdfast.snapshot.ram_folder import RamFolder, buffer_name, sealed_buffers

LOOK_NS = 1_000_000_000  # at a flush under way; at a long one more and more seldom
LONGEST_LOOK_NS = 30 * LOOK_NS


@value
class MemoryPlace:
    """The run's folder of the memory tier on this host, and how many buffers ranks make there."""

    folder: str | None = None
    buffers: int = 0

    def buffer(self, number: int | None) -> str | None:
        """Where a buffer lies; None for none."""
        if self.folder is None or number is None:
            return None
        return str(Path(self.folder, buffer_name(number)))


NO_MEMORY = MemoryPlace()


@value
class MemoryJob:
    """The run's folder in memory, held for as long as the supervisor lives, and how it is used."""

    folder: RamFolder
    buffers: int


def held_parts(ram_dir: Path) -> tuple[HeldPart, ...]:
    """What of which sets lies in a run's folder in memory. Never raises."""
    with contextlib.suppress(OSError):
        own = [(one.info, one.number) for one in sealed_buffers(ram_dir)[0]]
        found = [*own, *((one, None) for one in held_copies(ram_dir))]
        return tuple(
            HeldPart(one.attempt, one.step, tuple(one.ranks), one.world_size, buffer, one.tags)
            for one, buffer in found
        )
    return ()


class Memory:
    """Seals and flushes, for the loop's thread alone. Without a folder there is nothing to do."""

    def __init__(
        self,
        job: MemoryJob | None,
        selector: selectors.BaseSelector,
        environment: Mapping[str, str],
        ckpt_dir: Path,
        *,
        feed: Callable[[ev.Event], None],
    ) -> None:
        self._job = job
        self._ranks: Sequence[int] = ()
        self._world_size = 0
        self._ckpt_dir = ckpt_dir
        self._feed = feed
        self._flushes = FlushProcesses(selector, environment)
        self._flushing: act.Flush | None = None
        self._flush_began_ns = self._next_look_ns = self._next_claim_ns = 0

    @property
    def place(self) -> MemoryPlace:
        """What the ranks are told."""
        job = self._job
        return NO_MEMORY if job is None else MemoryPlace(str(job.folder.path), job.buffers)

    def begin(self, ranks: Sequence[int], world_size: int) -> None:
        """These ranks of an attempt run on this host, of so many in all."""
        self._ranks, self._world_size = ranks, world_size

    @property
    def pids(self) -> list[int]:
        """Of its processes."""
        return self._flushes.pids

    def expect(self) -> None:
        """A rank has buffers: the first seal will come."""
        self._flushes.start()

    def turn(self) -> None:
        """Hear what the flush processes have said, and tell that there is a flush under way."""
        self._flushes.turn()
        action, at_ns = self._flushing, now_ns()
        if self._job is not None and at_ns >= self._next_claim_ns:
            self._next_claim_ns = at_ns + LOOK_NS
            self._job.folder.hold()
        if action is not None and at_ns >= self._next_look_ns:
            self._look_later(at_ns)
            of = (action.attempt, action.epoch, action.step)
            self._feed(ev.Flushing(at_ns, *of, self._flushes.nbytes))

    def _look_later(self, at_ns: int) -> None:
        wait_ns = max(LOOK_NS, (at_ns - self._flush_began_ns) // 4)
        self._next_look_ns = at_ns + min(wait_ns, LONGEST_LOOK_NS)

    def seal(self, action: act.Seal) -> None:
        """Sealed or SealFailed follows."""
        of = (action.attempt, action.epoch, action.step, action.buffer)

        def done(outcome: FlushResult) -> None:
            if outcome.why is None:
                alike = tuple((section, digest) for section, digest in outcome.alike)
                compared = outcome.is_compared, differences(outcome.differing)
                self._feed(ev.Sealed(now_ns(), *of, alike, *compared, outcome.taken_ns))
            else:
                self._feed(ev.SealFailed(now_ns(), *of, outcome.why))

        self._flushes.seal(
            self._buffer(action.buffer),
            done,
            attempt=action.attempt,
            step=action.step,
            ranks=self._ranks,
            world_size=self._world_size,
        )

    def flush(self, action: act.Flush) -> None:
        """Flushed for every rank, or FlushFailed, follows; before that Flushing, now and then."""
        of = (action.attempt, action.epoch, action.step)
        self._flushing = action
        self._flush_began_ns = now_ns()
        self._look_later(self._flush_began_ns)

        def done(outcome: FlushResult) -> None:
            self._flushing = None
            if outcome.why is not None:
                self._feed(ev.FlushFailed(now_ns(), *of, outcome.why, outcome.is_gone))
                return
            attempt, epoch, step = of
            for rank in outcome.ranks:  # of a set from before: perhaps not as many as now
                self._feed(ev.Flushed(now_ns(), attempt, rank, epoch, step, outcome.world_size))

        self._flushes.flush(
            self._buffer(action.buffer),
            self._ckpt_dir / set_name(action.attempt, action.step),
            done,
            attempt=action.attempt,
            step=action.step,
            urgent=action.urgent,
            alike=action.alike,
        )

    def hurry(self, action: Hurry) -> None:
        """The flush of that set goes on at full speed, if it is under way."""
        known, of = self._flushing, (action.attempt, action.epoch, action.step)
        if known is not None and (known.attempt, known.epoch, known.step) == of:
            self._flushes.hurry()

    def abandon(self, action: act.AbandonFlush) -> None:
        """End the flush under way, be it by force; FlushFailed follows at once."""
        self._flushes.abandon(action.why)

    def give_up(self, why: str) -> None:
        """The flush under way is nobody's any more, if there is one."""
        if self._flushing is not None:
            self._flushes.abandon(why)

    def rest(self) -> None:
        """End the processes."""
        self._flushes.close()

    def close(self, *, leaves_sets: bool) -> None:
        """End the processes; free the memory, unless it holds what is nowhere else."""
        self.rest()
        if self._job is None:
            return
        if leaves_sets:
            self._job.folder.release()
        else:
            self._job.folder.remove()

    def held(self) -> tuple[HeldPart, ...]:
        """What of which sets lies here; to be asked while no rank may be writing."""
        return () if self._job is None else held_parts(self._job.folder.path)

    def _buffer(self, number: int) -> Path:
        return Path(self.place.folder or "") / buffer_name(number)
