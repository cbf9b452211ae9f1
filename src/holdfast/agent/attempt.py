"""One running attempt on this host: its processes, their output, their pages."""

from __future__ import annotations

import os
import selectors
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from holdfast.agent.launch import attempt_folder, journal_name, log_name
from holdfast.agent.output import OutputPump, RankOutput
from holdfast.agent.postmortem import Postmortem
from holdfast.agent.ranks import RankPages
from holdfast.agent.standbys import Prepared
from holdfast.agent.tree import RankCommand, Tree, TreeMessage
from holdfast.controller.upkeep import LiveFiles
from holdfast.core.hosts import machine as host
from holdfast.journal import doorbell
from holdfast.journal.clocks import now_ns
from holdfast.journal.gate import Go
from holdfast.journal.log_copy import LogCopy
from holdfast.journal.replicate import Replicator
from holdfast.journal.store import RunFolder

NO_STANDBY = "no standby was there"
Commands = Callable[[Sequence[RankOutput], Path], list[RankCommand]]


class LiveAttempt:
    """From the spawn of the ranks until nothing of them is left."""

    def __init__(
        self,
        folder: RunFolder,
        attempt: int,
        ranks: int,
        *,
        go: Go,
        scratch: Path,
        commands: Commands,
        screen: Callable[[int, str], None],
        unfinished: Callable[[int, str], None],
        prepared: Prepared | None = None,
        started: Callable[[int, str], None] = lambda _rank, _cold: None,
    ) -> None:
        """`prepared`: where interpreters wait to become the ranks, or the ranks wait for `go`.

        `started(rank, cold)` is called when a rank begins: without a reason for a cold start it
        was woken.
        """
        self._started = started
        self.attempt = attempt
        self.scratch = attempt_folder(scratch, attempt)
        self.scratch.mkdir(mode=0o700, exist_ok=True)
        self.outputs = prepared.outputs if prepared else [RankOutput(rank) for rank in range(ranks)]
        for output in self.outputs:
            output.log_to(self.scratch / log_name(output.rank))
        journals = {rank: self.scratch / journal_name(rank) for rank in range(ranks)}
        self.pages = RankPages(attempt, go.step, journals)
        self.postmortem = Postmortem(self.scratch, self.pages, self.outputs)
        self.pids: dict[int, int] = {}
        self._folder = folder
        self._bell = doorbell.Doorbell(self.scratch / doorbell.NAME)
        self._pump = OutputPump(self.outputs, screen, unfinished)
        self._tree = prepared.tree if prepared else Tree([one.write_fd for one in self.outputs])
        self._ahead = prepared.ahead if prepared else None
        if self._ahead is None:
            self._tree.launch(commands(self.outputs, self.scratch))
        else:
            try:
                self._ahead.go(go)
            except OSError:  # the disk is full: they cannot be told, and wait for nothing
                self._tree.kill()

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
        if self._bell.fd is not None:
            selector.register(self._bell.fd, selectors.EVENT_READ)
        selector.register(self._tree, selectors.EVENT_READ)
        selector.register(self._tree.pidfd, selectors.EVENT_READ)

    def unregister(self, selector: selectors.BaseSelector) -> None:
        """The opposite."""
        if self._bell.fd is not None:
            selector.unregister(self._bell.fd)
        selector.unregister(self._tree)
        selector.unregister(self._tree.pidfd)

    def rung(self) -> bool:
        """Whether a rank has rung since the last call: there is something in its words."""
        return self._bell.answer()

    def read(self, *, asked_to_stop: bool) -> Iterator[host.HostEvent]:
        """What happened to the processes since the last call."""
        self.postmortem.look(self.pids, now_ns())
        # Asked before reading: what a dying reaper said last must not be taken for silence.
        reaper_ended = self._tree.ended()
        is_gone = False
        for message in [*self._backlog(), *self._tree.read()]:
            is_gone = is_gone or message.event == "gone"
            yield from self._translate(message, asked_to_stop)
        if reaper_ended and not is_gone:
            yield host.ReaperLost(now_ns())

    def _backlog(self) -> list[TreeMessage]:
        """What its reaper has said before the attempt began."""
        backlog: list[TreeMessage] = []
        if self._ahead is not None:
            backlog, self._ahead.backlog = self._ahead.backlog, []
        return backlog

    def _translate(self, message: TreeMessage, asked_to_stop: bool) -> Iterator[host.HostEvent]:
        now, fields = now_ns(), message.fields
        if message.event == "launched":
            self.pids = {int(rank): pid for rank, pid in fields["pids"].items()}
            for rank in sorted(self.pids):
                self._started(rank, "" if rank in fields["woken"] else NO_STANDBY)
            yield host.Spawned(now)
        elif message.event == "standby" and fields["status"].get("event") == "cold":
            self._started(fields["rank"], str(fields["status"].get("why", "")))
        elif message.event == "spawn_failed":
            yield host.SpawnFailed(now, _spawn_words(fields["failures"][0]))
        elif message.event == "exit":
            died = self.postmortem.exit_of(fields, asked_to_stop=asked_to_stop)
            yield host.Died(now, message.at_ns, fields["rank"], died)
        elif message.event == "stuck":
            yield host.Stuck(now, tuple(fields["pids"]))
        elif message.event == "gone":
            yield host.Empty(now)

    def signal(self, number: int) -> None:
        """Send a signal to all ranks."""
        self._tree.signal(number)

    def kill(self) -> None:
        """End every process of the attempt."""
        self._tree.kill()

    def sweep(self, spare: Collection[int]) -> host.HostEvent:
        """The reaper is gone: end what it left, and none of the other children of ours."""
        stuck = self._tree.sweep_orphans(spare)
        return host.Stuck(now_ns(), tuple(stuck)) if stuck else host.Empty(now_ns())

    def close(self) -> None:
        """Let go of pipes and pages; a reaper that is still there ends its tree first."""
        self._tree.close()
        if self._ahead is not None:
            self._ahead.gate.close()
        self._pump.finish()
        self._bell.close()
        self.pages.close()


def _spawn_words(failure: dict[str, object]) -> str:
    number = failure["errno"]
    why = os.strerror(number) if isinstance(number, int) else "unknown error"
    return f"cannot start {failure['where']!r}: {why}; check the command after `--`"
