"""A standby: the tree of an attempt's processes, prepared before the attempt begins.

Guard, reaper and the pipes of the ranks' output are those that the attempt will have. First there
is an interpreter for each rank; woken, it is the rank, and waits at the attempt's gate until the
attempt is on record. Nothing of a woken rank is read before that but what it tells there: which
files it has imported. If one of them ends, or such a file changes, all of them are given up.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.agent.output import RankOutput
from holdfast.agent.read_files import ReadFiles
from holdfast.agent.tree import RankCommand, StandbyCommand, Tree, TreeMessage
from holdfast.config.rank import IMPORTS_VARIABLE
from holdfast.core.hosts.standby import StandbyMove, StandbyStage
from holdfast.journal.clocks import now_ns
from holdfast.journal.gate import Gate, Go

NEWS = ("launched", "standby")  # what the attempt itself is to hear when it begins

Commands = Callable[[Sequence[RankOutput]], list[RankCommand]]


@dataclass(slots=True)
class Interpreter:
    """One that waits to be a rank, as far as it has spoken of itself."""

    is_ready: bool = False
    memory_bytes: int = 0  # its share of what it has resident
    modules: int = 0
    unfit: str = ""  # why it will start its rank cold

    def hear(self, status: dict[str, Any]) -> None:
        """Take what it says; keys that are missing leave things as they are."""
        if status.get("event") == "ready":
            self.is_ready = True
            self.modules = int(status.get("modules", 0))
            self.memory_bytes = int(status.get("pss_bytes", 0))
        elif status.get("event") == "unfit":
            self.unfit = str(status.get("why", ""))


@dataclass(slots=True)
class Woken:
    """What a standby has once it was woken: the attempt that it is to be, and its gate."""

    attempt: int
    gate: Gate
    files: ReadFiles
    is_held: bool

    @property
    def folder(self) -> Path:
        """The attempt's."""
        return self.gate.path.parent


class Standby:
    """One tree, and how far it has come; `lost` says why it came to nothing."""

    def __init__(self, outputs: Sequence[RankOutput], tree: Tree) -> None:
        self.outputs = list(outputs)
        self._waited_as: list[int] = []  # before these were other ranks
        self.tree = tree
        self.interpreters: dict[int, Interpreter] = {}
        self.woken: Woken | None = None
        self.backlog: list[TreeMessage] = []
        self.lost = ""
        self.idle_since_ns: int | None = None  # they give way to everybody since they were started
        self.ready_ns = 0  # when all interpreters were; 0: they are not

    @classmethod
    def start(cls, ranks: Sequence[int]) -> Standby:
        """With a tree of its own, not forked from what has imported."""
        outputs = [RankOutput(rank) for rank in ranks]
        return cls(outputs, Tree.start([output.write_fd for output in outputs]))

    def prepare(self, argv: Sequence[str], commands: Commands) -> None:
        """Start an interpreter for each rank, as `argv`."""
        self.interpreters = {output.rank: Interpreter() for output in self.outputs}
        self.idle_since_ns = now_ns()
        self.tree.stand_by([_standby_command(argv, rank) for rank in commands(self.outputs)])

    @property
    def stage(self) -> StandbyStage:
        """How far it has come."""
        if self.woken is not None:
            return StandbyStage.HELD if self.woken.is_held else StandbyStage.AHEAD
        if not self.interpreters:
            return StandbyStage.COLD
        are_ready = all(one.is_ready or one.unfit for one in self.interpreters.values())
        return StandbyStage.READY if are_ready and self.is_whole else StandbyStage.IMPORTING

    @property
    def is_whole(self) -> bool:
        """Whether there is an interpreter for each rank."""
        return len(self.interpreters) == len(self.outputs)

    def wake(self, attempt: int, folder: Path, commands: Commands, how: StandbyMove) -> None:
        """Have the interpreters become that attempt's ranks, which wait at its gate.

        `folder`: the attempt's, which is made. Raises OSError.
        """
        held, beside = how is StandbyMove.WAKE_HELD, how is StandbyMove.WAKE_BESIDE
        ranks = commands(self.outputs)
        files = ReadFiles(folder, ranks)
        folder.mkdir(mode=0o700)
        self.woken = Woken(attempt, Gate(folder), files, held)
        self.tree.launch(ranks, held=held, beside=beside)

    def read(self) -> bool:
        """Take what the reaper said; False when nothing can come of it any more."""
        has_ended = self.tree.ended()  # asked before reading: its last words are not silence
        for message in self.tree.read():
            self.hear(message)
        if self.woken is not None:
            self.woken.files.look()
            if has_ended and not self.lost:
                self.lost = "the processes ahead of the attempt were killed"
        elif has_ended or not self.interpreters:
            self.lost = "no reason is known"
        return not self.lost

    def hear(self, message: TreeMessage) -> None:
        """Take one thing that the reaper said; an end before the beginning is the end of all."""
        if self.woken is not None:
            if message.event in NEWS:
                self.backlog.append(message)
            else:
                self.lost = self.lost or _end_in_words(message)
        elif message.event == "standby" and message.fields["rank"] in self.interpreters:
            self.interpreters[message.fields["rank"]].hear(message.fields["status"])
            if not self.ready_ns and self.stage is StandbyStage.READY:
                self.ready_ns = now_ns()
        elif message.event == "standby_lost":
            self.interpreters.pop(message.fields["rank"], None)

    def unfit_for(self, attempt: int, ranks: Sequence[int]) -> str:
        """Why this cannot become these ranks of that attempt; empty: it can."""
        if len(self.outputs) != len(ranks):
            return f"{len(ranks)} ranks run here now, not {len(self.outputs)}"
        if self.woken is None or self.lost:
            return self.lost
        if [output.rank for output in self.outputs] != list(ranks):
            return "other ranks run here now"
        if self.woken.attempt != attempt:
            return f"it was to be attempt {self.woken.attempt}"
        return self.woken.files.trouble()

    def become(self, ranks: Sequence[int]) -> None:
        """It is these ranks from now on: interpreters that only wait can be any."""
        before = [output.rank for output in self.outputs]
        if before != list(ranks):
            self._waited_as = before
            for output, rank in zip(self.outputs, ranks, strict=True):
                output.rank = rank

    def lift(self) -> None:
        """Interpreters that import still give way no more."""
        self.idle_since_ns = None
        self.tree.lift()

    def free(self) -> None:
        """Nothing of the attempt before is left: whoever was held may run."""
        if self.woken is not None:
            self.woken.is_held = False
            self.tree.free()

    def begin(self, go: Go, commands: Commands) -> None:
        """The attempt begins: the gate opens, or the ranks are started only now."""
        if self.woken is None:
            self.tree.launch(commands(self.outputs), waited_as=self._waited_as)
            return
        self.free()
        for pid in self._pids():  # one that is idle would not be awake for a while
            with contextlib.suppress(OSError):
                if os.sched_getscheduler(pid) == os.SCHED_IDLE != os.sched_getscheduler(0):
                    os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0))
        try:
            self.woken.gate.open(go)
        except OSError:  # the disk is full: they cannot be told, and wait for nothing
            self.tree.kill()

    def _pids(self) -> list[int]:
        launched = (one.fields["pids"] for one in self.backlog if one.event == "launched")
        return [pid for pids in launched for pid in pids.values()]

    def last_words(self) -> str:
        """The last line that any of them printed: why they ended by themselves; "" if none did."""
        lines = [line for output in self.outputs for line in output.drain()[0] if line.strip()]
        return lines[-1].strip() if lines else ""

    def end(self) -> None:
        """End all of it that has not begun; `tree.close` waits until it is gone."""
        self.tree.kill()
        self.tree.close(limit_s=0)
        self.close_gate()
        for output in self.outputs:
            output.close()

    def close_gate(self) -> None:
        """Nobody comes any more."""
        if self.woken is not None:
            self.woken.gate.close()


def _standby_command(argv: Sequence[str], rank: RankCommand) -> StandbyCommand:
    """What to start ahead of this rank: `argv`, an interpreter that can become it.

    What the rank's environment says of the attempt may be out of date when it is woken.
    """
    task = {"imports": rank.environment[IMPORTS_VARIABLE], "argv": list(rank.argv)}
    return StandbyCommand(argv, task, rank)


def _end_in_words(message: TreeMessage) -> str:
    """What a tree's message says of its end."""
    fields = message.fields
    if message.event == "spawn_failed":
        return "the command cannot be started ahead of its attempt"
    if message.event != "exit":
        return f"the processes ahead of the attempt are {message.event}"
    how = f"signal {fields['signal']}" if fields["signal"] else f"exit code {fields['code']}"
    return f"rank {fields['rank']} ended ahead of its attempt ({how})"
