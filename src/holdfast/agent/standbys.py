"""The standbys of this host: one waits while an attempt runs, and the next attempt begins with it.

It is forked from the fork server, if there can be one.

What becomes of it is decided by `core.hosts.standby`. All of it is an offer: whatever of it is not
there when an attempt starts, starts cold.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from holdfast.agent.fork_server import ForkServer
from holdfast.agent.launch import attempt_folder, imports_path
from holdfast.agent.output import RankOutput
from holdfast.agent.standby import Standby
from holdfast.agent.tree import RankCommand, Tree
from holdfast.core import actions as act
from holdfast.core.hosts.standby import (
    ServerStage,
    StandbyMove,
    StandbyOrder,
    StandbyRules,
    StandbySight,
    StandbyStage,
)
from holdfast.core.value import value
from holdfast.journal import gate
from holdfast.journal.clocks import now_ns
from holdfast.standby.devices import opened_by

MIB = 1 << 20
CLEAR_LIMIT_S = 5.0  # for what was given up to leave its attempt's folder
LOOK_S = 0.002


@value
class StandbyJob:
    """What is wanted of standbys: `argv`, what an interpreter is started as; None: there are none.

    `is_hot`: they run the script at once, and wait where it restores. `runs_ahead`: they may run
    it before the attempt begins; not where other hosts are to be met, at a place not known yet.
    """

    argv: Sequence[str] | None = None
    is_hot: bool = False
    runs_ahead: bool = True


class AttemptCommands(Protocol):
    """What an attempt's ranks are started as, before it is known what they resume from."""

    def __call__(
        self, outputs: Sequence[RankOutput], *, attempt: int, gate: Path | None
    ) -> list[RankCommand]:
        """`gate`: where they are told."""


@value
class GivenUpTree:
    """A tree that was given up, and the folder that its ranks were to have; None: none yet."""

    tree: Tree
    folder: Path | None

    def is_over(self) -> bool:
        """Whether nothing of it is left; the folder goes with the last process."""
        if not self.tree.ended():
            return False
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
        return True

    def out_of_the_way(self) -> GivenUpTree:
        """It survives SIGKILL: its folder goes by another name, for its attempt is to have one."""
        if self.folder is None:
            return self
        place = self.folder.with_name(f"given-up-{self.tree.pid}")
        with contextlib.suppress(OSError):
            self.folder.rename(place)
        return GivenUpTree(self.tree, place)


class Standbys:
    """For the loop's thread alone: the standby that waits for the next attempt, and its server."""

    def __init__(
        self,
        job: StandbyJob,
        ranks: Sequence[int],
        scratch: Path,
        selector: selectors.BaseSelector,
        commands: AttemptCommands,
        say: Callable[[str], None],
    ) -> None:
        self._argv = job.argv
        self._ranks = ranks
        self._scratch = scratch
        self._selector = selector
        self.commands = commands
        self._say = say
        self._rules = StandbyRules(job.is_hot, runs_ahead=job.runs_ahead)
        self._standby: Standby | None = None
        self._server: ForkServer | None = None
        self._server_idle_since_ns: int | None = None
        self._sight = StandbySight()
        self._ending: list[GivenUpTree] = []

    @property
    def pids(self) -> list[int]:
        """Of the guards of what is prepared, or is ending, and of the fork server."""
        trees = [] if self._standby is None else [self._standby.tree]
        trees += [one.tree for one in self._ending]
        pids = [tree.pid for tree in trees if not tree.ended()]
        return pids if self._server is None else [*pids, self._server.pid]

    # --- what is wanted of it ---------------------------------------------------------------

    def stand_by(self, action: act.StandBy) -> None:
        """What is wanted from now on."""
        self._rules.attempt, self._rules.order = action.attempt, action.wanted
        if action.wanted is StandbyOrder.WOKEN:  # the attempt's processes were told to end just now
            if self._standby is not None and self._standby.woken is not None:
                self._standby.woken.files.check()
            self._do_what_is_due(())

    def turn(self, pids: Sequence[int]) -> None:
        """What is due; `pids`: of the ranks that run."""
        self.look()
        self._do_what_is_due(pids)

    def has_ended(self) -> None:
        """Nothing of the attempt's processes is left."""
        if self._standby is not None:
            self._standby.free()

    def take(self, attempt: int, ranks: Sequence[int]) -> Standby:
        """What the attempt that starts now begins with; where nothing waits for it, it is cold.

        `ranks`: its own that run here.
        """
        self.look()
        self._ranks = ranks
        standby = self._standby
        if standby is not None and (why := standby.unfit_for(attempt, ranks)):
            self._say(f"The processes prepared for attempt {attempt} are not used: {why}")
            self._drop()
        self._clear()
        if self._server is not None and not self._server.is_ready:
            self._server.give_way()  # the ranks import now what they have not
            self._server_idle_since_ns = self._server.began_ns
        standby, self._standby = self._standby, None
        if standby is None:
            return Standby.start(ranks)
        standby.become(ranks)
        self._rules.used(standby.stage)
        self._unregister(standby)
        return standby

    def close(self) -> None:
        """The run is over: nothing of what was prepared is left."""
        self._drop()
        self._drop_server()
        for one in self._ending:
            one.tree.close()
            one.is_over()

    # --- what becomes of it -----------------------------------------------------------------

    def look(self) -> None:
        """Take what it says; one that has ended by itself is let go of."""
        self._let_go()
        if self._standby is not None and not self._standby.read():
            self._lose(self._standby, self._standby.stage)
        self._look_at_server()

    def _do_what_is_due(self, pids: Sequence[int]) -> None:
        standby, sight, rules = self._standby, self._sight, self._rules
        sight.at_ns = now_ns()
        if standby is None:
            sight.stage = StandbyStage.COLD
            if self._argv is None or self._ending:
                return
        else:
            sight.stage, sight.is_whole = standby.stage, standby.is_whole
            sight.changed = standby.woken.files.changed if standby.woken is not None else ""
            if rules.is_hot and sight.stage is StandbyStage.READY and pids:
                sight.device = _device_of(pids)
        sight.server, sight.is_asked = self._server_stage, self._is_asked
        sight.idle_since_ns = self._idle_since_ns
        move, words = rules.due(sight)
        if words:
            self._say(words)
        if move is StandbyMove.START_SERVER:
            self._start_server(pids)
        elif move is StandbyMove.PREPARE:
            self._prepare(pids)
        elif move is StandbyMove.LIFT:
            self._lift()
        elif move is StandbyMove.DROP:
            self._drop()
            self._drop_server()
        elif move is StandbyMove.RENEW:
            why = f"{sight.changed} has changed"
            self._say(f"The processes prepared for the next attempt are started again: {why}")
            self._drop()
        elif move is not StandbyMove.NOTHING and standby is not None:
            self._wake(standby, move)

    # --- where it comes from ----------------------------------------------------------------

    @property
    def _server_stage(self) -> ServerStage:
        if self._server is None:
            return ServerStage.NONE
        return ServerStage.READY if self._server.is_ready else ServerStage.IMPORTING

    @property
    def _is_asked(self) -> bool:
        return self._server is not None and self._server.asked is not None

    def _is_known(self, pids: Sequence[int]) -> bool:
        """Whether it is known by now what is to be imported; how the script behaves is noted."""
        paths = [imports_path(self._scratch, rank) for rank in self._ranks]
        if self._argv is None or not all(path.exists() for path in paths):
            return False
        self._sight.restores_first = all(_restores(path) for path in paths)
        self._sight.device = _device_of(pids)
        return True

    def _start_server(self, pids: Sequence[int]) -> None:
        if self._argv is None or not self._is_known(pids):
            return
        # What it is told of outputs and of the attempt is of no matter: it becomes no rank.
        outputs = [RankOutput(rank) for rank in self._ranks[:1]]
        (first,) = self.commands(outputs, attempt=self._rules.attempt, gate=None)
        for output in outputs:
            os.close(output.write_fd)
            output.close()
        try:
            self._server = ForkServer(self._argv, first)
        except OSError as error:
            why = f"the process to fork from cannot be started ({error.strerror or error})"
            self._say(self._rules.server_lost(why))
            return
        self._server_idle_since_ns = self._server.began_ns
        self._selector.register(self._server, selectors.EVENT_READ)

    def _look_at_server(self) -> None:
        """Hear it; a tree that was asked for is the standby, if there is none by now."""
        server = self._server
        if server is None:
            return
        outputs = server.asked.outputs if server.asked is not None else ()
        tree = server.read()
        if server.is_ready:
            self._server_idle_since_ns = None
        if tree is not None:
            self._keep_or_end(Standby(outputs, tree))
        if server.has_ended:
            if words := self._rules.server_lost(server.unfit, server.last_words()):
                self._say(words)
            self._drop_server()

    def _prepare(self, pids: Sequence[int]) -> None:
        """Interpreters for the ranks: forked, or started at a low priority."""
        if not self._is_known(pids):
            return
        if self._server is not None:
            if not self._server.is_ready:
                self._server.lift()  # it answers between two imports, and somebody waits
            self._server.ask([RankOutput(rank) for rank in self._ranks])
        else:
            self._keep(Standby.start(self._ranks))

    def _keep_or_end(self, standby: Standby) -> None:
        if self._rules.keeps_fork_of(self._server_stage):
            self._keep(standby)
        else:
            standby.end()
            self._ending.append(GivenUpTree(standby.tree, None))

    def _keep(self, standby: Standby) -> None:
        if self._argv is None:
            return
        standby.prepare(self._argv, partial(self.commands, attempt=self._rules.attempt, gate=None))
        self._selector.register(standby.tree, selectors.EVENT_READ)
        self._selector.register(standby.tree.pidfd, selectors.EVENT_READ)
        self._standby = standby

    @property
    def _idle_since_ns(self) -> int | None:
        standby = self._standby
        if standby is not None and standby.stage is StandbyStage.IMPORTING:
            return standby.idle_since_ns
        return self._server_idle_since_ns

    def _lift(self) -> None:
        if self._standby is not None:
            self._standby.lift()
        if self._server is not None:
            self._server.lift()
        self._server_idle_since_ns = None

    def _drop_server(self) -> None:
        server, self._server = self._server, None
        self._server_idle_since_ns = None
        if server is not None:
            self._selector.unregister(server)
            server.close()

    # --- what becomes of it, once more ------------------------------------------------------

    def _wake(self, standby: Standby, how: StandbyMove) -> None:
        attempt = self._rules.attempt
        folder = attempt_folder(self._scratch, attempt)
        commands = partial(self.commands, attempt=attempt, gate=folder / gate.NAME)
        try:
            standby.wake(attempt, folder, commands, how)
        except OSError as error:
            standby.lost = f"{folder} cannot be made ({error.strerror})"
            self._lose(standby, StandbyStage.HELD)

    def _lose(self, standby: Standby, stage: StandbyStage) -> None:
        self._tell_lost(standby, stage)
        self._drop()

    def _tell_lost(self, standby: Standby, stage: StandbyStage) -> None:
        last, why = standby.last_words(), standby.lost
        if stage < StandbyStage.HELD:
            why = last or why
        elif last:
            why = f"{why}: {last}"
        if words := self._rules.lost(stage, why):
            self._say(words)

    def _drop(self) -> None:
        """Nothing will be started that could use it."""
        standby, self._standby = self._standby, None
        if standby is not None:
            self._unregister(standby)
            standby.end()
            folder = None if standby.woken is None else standby.woken.folder
            self._ending.append(GivenUpTree(standby.tree, folder))

    def _clear(self) -> None:
        """See to it that nobody who was given up is in the place of the attempt that starts now."""
        end_s = time.monotonic() + CLEAR_LIMIT_S
        while any(one.folder is not None for one in self._ending):
            # Each is asked until it is over, and never again: the folder is the attempt's then.
            self._let_go()
            if time.monotonic() > end_s:
                self._ending = [one.out_of_the_way() for one in self._ending]
                return
            if self._ending:
                time.sleep(LOOK_S)

    def _let_go(self) -> None:
        """Forget those of which nothing is left."""
        self._ending = [one for one in self._ending if not one.is_over()]

    def _unregister(self, standby: Standby) -> None:
        self._selector.unregister(standby.tree)
        self._selector.unregister(standby.tree.pidfd)

    @property
    def words(self) -> str:
        """How it is, for people; "" when there is none."""
        standby = self._standby
        if standby is None:
            return ""
        if standby.woken is not None:
            waiting = standby.woken.files.waiting
            return f"hot, {waiting} of {len(self._ranks)} wait for the next attempt"
        interpreters = standby.interpreters.values()
        if any(one.unfit for one in interpreters):
            return f"unfit: {next(one.unfit for one in interpreters if one.unfit)}"
        ready = [one for one in interpreters if one.is_ready]
        if len(ready) < len(self._ranks):
            return f"{len(ready)} of {len(self._ranks)} ready"
        share_bytes = max(one.memory_bytes for one in ready)
        words = f"ready, {len(self._ranks)} × {share_bytes / MIB:.0f} MiB"
        if self._server is None:
            return words
        return f"{words}, forked from one of {self._server.memory_bytes / MIB:.0f} MiB"


def _restores(imports: Path) -> bool:
    """Whether the rank that has left this list began with what was chosen for it."""
    with contextlib.suppress(OSError, ValueError):
        learned = json.loads(imports.read_bytes())
        return isinstance(learned, dict) and learned.get("restores") is True
    return False


def _device_of(pids: Sequence[int]) -> str:
    for pid in pids:
        with contextlib.suppress(OSError):
            if device := opened_by(str(pid)):
                return device
    return ""
