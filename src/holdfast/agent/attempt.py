"""One running attempt on this host: its processes, their output, their pages."""

from __future__ import annotations

import os
import selectors
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Protocol

from holdfast.agent.launch import attempt_folder, journal_name, log_name
from holdfast.agent.output import OutputPump
from holdfast.agent.postmortem import Postmortem
from holdfast.agent.ranks import RankPages
from holdfast.agent.standby import Standby
from holdfast.agent.tree import TreeMessage
from holdfast.controller.upkeep import LiveFiles
from holdfast.core import actions as act
from holdfast.core.hosts import machine as host
from holdfast.core.hosts.report import HostReport
from holdfast.journal import doorbell
from holdfast.journal.clocks import now_ns
from holdfast.journal.log_copy import LogCopy
from holdfast.journal.replicate import Replicator
from holdfast.journal.store import RunFolder

NO_STANDBY = "no standby was there"


class Surroundings(Protocol):
    """What a host tells, and to whom. All but `later` is called in the loop's thread."""

    def reported(self, report: HostReport) -> None:
        """Something is new on this host."""

    def started(self, rank: int, cold: str) -> None:
        """A rank began as a standby that was woken; or, with a reason, without one."""

    def prepared(self, ready_ns: int) -> None:
        """Interpreters for the attempt that starts now were ready then; 0: there were none."""

    def later(self, do: Callable[[], None]) -> None:
        """Have the loop do this; from any thread."""

    def say(self, level: str, words: str) -> None:
        """Tell the people watching."""

    def line(self, rank: int, text: str) -> None:
        """One line of a rank's output; from another thread."""

    def unfinished(self, rank: int, text: str) -> None:
        """How a rank's line without an end stands; from another thread."""


class LiveAttempt:
    """From the spawn of the ranks until nothing of them is left."""

    def __init__(
        self,
        folder: RunFolder,
        launch: act.Launch,
        scratch: Path,
        standby: Standby,
        around: Surroundings,
    ) -> None:
        """`standby.begin` follows: all that the ranks meet here is there before they are."""
        self.attempt = launch.attempt
        self.scratch = attempt_folder(scratch, launch.attempt)
        self.scratch.mkdir(mode=0o700, exist_ok=True)
        self.outputs = standby.outputs
        for output in self.outputs:
            output.log_to(self.scratch / log_name(output.rank))
        journals = {one.rank: self.scratch / journal_name(one.rank) for one in self.outputs}
        self.pages = RankPages(launch.attempt, launch.resume.step, journals)
        self.postmortem = Postmortem(self.scratch, self.pages, self.outputs)
        self.pids: dict[int, int] = {}
        self._folder = folder
        self._around = around
        self.bell = doorbell.Doorbell(self.scratch / doorbell.NAME)
        self._pump = OutputPump(self.outputs, around.line, around.unfinished)
        self._standby = standby
        self.tree = standby.tree

    def live_files(self) -> LiveFiles:
        """What upkeep copies to the store."""
        files = LiveFiles(self.scratch)
        journal_dir = self._folder.attempt_journal_dir(self.attempt)
        logs_dir = self._folder.logs_dir(self.attempt)
        for output in self.outputs:
            name = journal_name(output.rank)
            files.files.append(Replicator(self.scratch / name, journal_dir / name))
            log = log_name(output.rank)
            files.files.append(LogCopy(self.scratch / log, logs_dir / log))
        return files

    def register(self, selector: selectors.BaseSelector) -> None:
        """Wake the loop when the reaper speaks or dies, or a rank rings."""
        if self.bell.fd is not None:
            selector.register(self.bell.fd, selectors.EVENT_READ)
        selector.register(self.tree, selectors.EVENT_READ)
        selector.register(self.tree.pidfd, selectors.EVENT_READ)

    def unregister(self, selector: selectors.BaseSelector) -> None:
        """The opposite."""
        if self.bell.fd is not None:
            selector.unregister(self.bell.fd)
        selector.unregister(self.tree)
        selector.unregister(self.tree.pidfd)

    def read(self) -> Iterator[host.HostEvent]:
        """What happened to the processes since the last call."""
        self.postmortem.oom.look(self.pids, now_ns())
        # Asked before reading: what a dying reaper said last must not be taken for silence.
        reaper_ended = self.tree.ended()
        is_gone = False
        # What its reaper has said before the attempt began comes first.
        backlog, self._standby.backlog = self._standby.backlog, []
        for message in [*backlog, *self.tree.read()]:
            is_gone = is_gone or message.event == "gone"
            yield from self._translate(message)
        if reaper_ended and not is_gone:
            yield host.ReaperLost(now_ns())

    def _translate(self, message: TreeMessage) -> Iterator[host.HostEvent]:
        now, fields = now_ns(), message.fields
        if message.event == "launched":
            self.pids = {int(rank): pid for rank, pid in fields["pids"].items()}
            for rank in sorted(self.pids):
                self._around.started(rank, "" if rank in fields["woken"] else NO_STANDBY)
            yield host.Spawned(now)
        elif message.event == "standby" and fields["status"].get("event") == "cold":
            self._around.started(fields["rank"], str(fields["status"].get("why", "")))
        elif message.event == "spawn_failed":
            yield host.SpawnFailed(now, _spawn_words(fields["failures"][0]))
        elif message.event == "exit":
            died = self.postmortem.exit_of(fields)
            yield host.Died(now, message.at_ns, fields["rank"], died)
        elif message.event == "stuck":
            yield host.Stuck(now, tuple(fields["pids"]))
        elif message.event == "gone":
            yield host.Empty(now)

    def sweep(self, spare: Collection[int]) -> host.HostEvent:
        """The reaper is gone: end what it left, and none of the other children of ours."""
        stuck = self.tree.sweep_orphans(spare)
        return host.Stuck(now_ns(), tuple(stuck)) if stuck else host.Empty(now_ns())

    def close(self) -> None:
        """Let go of pipes and pages; a reaper that is still there ends its tree first."""
        self.tree.close()
        self._standby.close_gate()
        self._pump.finish()
        self.bell.close()
        self.pages.close()


def _spawn_words(failure: dict[str, object]) -> str:
    number = failure["errno"]
    why = os.strerror(number) if isinstance(number, int) else "unknown error"
    return f"cannot start {failure['where']!r}: {why}; check the command after `--`"
