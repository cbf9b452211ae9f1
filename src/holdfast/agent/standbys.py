"""The next attempt's tree, prepared while this one trains, with an interpreter for each rank.

Guard, reaper and the pipes of the ranks' output are those that the attempt will have; the launch
only says what the interpreters are to become. They may be woken before the attempt is on record:
then they wait at its gate (`agent.ahead`). All of it is an offer: whatever of it is not there when
an attempt starts, starts cold.
"""

from __future__ import annotations

import contextlib
import selectors
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.agent.ahead import Ahead
from holdfast.agent.launch import standby_commands
from holdfast.agent.output import RankOutput
from holdfast.agent.tree import RankCommand, Tree, TreeMessage

MIB = 1 << 20
TRIES = 3  # in a row, of trees that ended by themselves before any attempt used one

CLEAR_LIMIT_S = 5.0  # for what was given up to leave its attempt's folder
LOOK_S = 0.002

Commands = Callable[[Sequence[RankOutput]], list[RankCommand]]


@dataclass(slots=True)
class StandbyStatus:
    """One interpreter, as far as it has spoken of itself."""

    is_ready: bool = False
    rss_bytes: int = 0
    modules: int = 0
    unfit: str = ""  # why it will start its rank cold

    def hear(self, status: dict[str, Any]) -> None:
        """Take what it says; keys that are missing leave things as they are."""
        if status.get("event") == "ready":
            self.is_ready = True
            self.modules = int(status.get("modules", 0))
            self.rss_bytes = int(status.get("rss_bytes", 0))
        elif status.get("event") == "unfit":
            self.unfit = str(status.get("why", ""))


class Prepared:
    """A tree without ranks, and the outputs they will have."""

    def __init__(self, ranks: int, argv: Sequence[str], commands: Commands) -> None:
        self.outputs = [RankOutput(rank) for rank in range(ranks)]
        self.standbys = {rank: StandbyStatus() for rank in range(ranks)}
        self.tree = Tree([output.write_fd for output in self.outputs])
        self.tree.stand_by(standby_commands(argv, commands(self.outputs)))
        self.ahead: Ahead | None = None

    def wake(
        self, attempt: int, folder: Path, commands: Commands, *, held: bool, hot: bool
    ) -> None:
        """Have the interpreters become that attempt's ranks, which wait at its gate.

        `held`: they run nothing before they are freed. `hot`: others train beside them. Raises
        OSError.
        """
        ranks = commands(self.outputs)
        self.ahead = Ahead(self.tree, attempt, folder, ranks)
        self.tree.launch(ranks, held=held, ahead=hot)

    def read(self) -> bool:
        """Take what the reaper said; False when nothing can come of it any more."""
        has_ended = self.tree.ended()  # asked before reading: its last words are not silence
        for message in self.tree.read():
            self._hear(message)
        if self.ahead is not None:
            self.ahead.look()
            if has_ended and not self.ahead.lost:
                self.ahead.lost = "the processes ahead of the attempt were killed"
            return not self.ahead.lost
        return not has_ended and bool(self.standbys)

    @property
    def is_ready(self) -> bool:
        """Whether every interpreter has imported what it can."""
        standbys = self.standbys.values()
        is_whole = len(standbys) == len(self.outputs)
        return is_whole and all(one.is_ready or one.unfit for one in standbys)

    def _hear(self, message: TreeMessage) -> None:
        if self.ahead is not None:
            self.ahead.hear(message)
        elif message.event == "standby" and message.fields["rank"] in self.standbys:
            self.standbys[message.fields["rank"]].hear(message.fields["status"])
        elif message.event == "standby_lost":
            self.standbys.pop(message.fields["rank"], None)

    def last_words(self) -> str:
        """The last line that any of them printed: why they ended by themselves; "" if none did."""
        lines = [line for output in self.outputs for line in output.drain()[0] if line.strip()]
        return lines[-1].strip() if lines else ""

    def end(self) -> None:
        """End all of it; `close` waits until it is gone."""
        self.tree.kill()
        self.tree.close(limit_s=0)
        if self.ahead is not None:
            self.ahead.gate.close()
        for output in self.outputs:
            output.close()


@dataclass(frozen=True, slots=True)
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
    """Keeps one tree prepared while an attempt runs, and hands it to the next."""

    def __init__(
        self,
        ranks: int,
        argv: Sequence[str] | None,
        selector: selectors.BaseSelector,
        say: Callable[[str], None],
    ) -> None:
        """`argv`: what an interpreter is started as; None: there are to be none."""
        self._ranks = ranks
        self._argv = argv
        self._selector = selector
        self._say = say
        self._prepared: Prepared | None = None
        self._ending: list[GivenUpTree] = []
        self._failed = 0
        self.lost_ahead = 0  # in a row, of trees that were woken ahead and came to nothing

    @property
    def are_wanted(self) -> bool:
        """Whether there is something to prepare: neither done yet nor given up."""
        is_free = self._prepared is None and not self._ending
        return self._argv is not None and is_free and self._failed < TRIES

    @property
    def pids(self) -> list[int]:
        """Of the guards of what is prepared, or is ending."""
        trees = [] if self._prepared is None else [self._prepared.tree]
        trees += [one.tree for one in self._ending]
        return [tree.pid for tree in trees if not tree.ended()]

    @property
    def prepared(self) -> Prepared | None:
        """What is prepared now."""
        return self._prepared

    def prepare(self, commands: Commands) -> None:
        """Start the interpreters; they take their time, at a low priority."""
        if self._argv is None:
            return
        prepared = self._prepared = Prepared(self._ranks, self._argv, commands)
        self._selector.register(prepared.tree, selectors.EVENT_READ)
        self._selector.register(prepared.tree.pidfd, selectors.EVENT_READ)

    def look(self) -> None:
        """Take what the interpreters say; a tree that has ended by itself is let go of."""
        self._let_go()
        prepared = self._prepared
        if prepared is None or prepared.read():
            return
        if prepared.ahead is not None:
            self._lose_ahead(prepared.ahead.lost)
            return
        self._failed += 1
        if self._failed == TRIES:
            why = prepared.last_words() or "no reason is known"
            self._say(
                f"The standby processes ended by themselves ({why}); restarts will take longer"
            )
        self.drop()

    def wake(
        self, attempt: int, folder: Path, commands: Commands, *, held: bool, hot: bool
    ) -> None:
        """Have what is prepared become the ranks of that attempt, ahead of it."""
        if self._prepared is None:
            return
        try:
            self._prepared.wake(attempt, folder, commands, held=held, hot=hot)
        except OSError as error:
            self._lose_ahead(f"{folder} cannot be made ({error.strerror})")

    def _lose_ahead(self, why: str) -> None:
        """What was woken comes to nothing; said once, for people may want to change something."""
        self.lost_ahead += 1
        if self.lost_ahead == 1 and self._prepared is not None:
            last = self._prepared.last_words()
            words = f"{why}: {last}" if last else why
            self._say(f"{words}; it starts again with its attempt")
        self.drop()

    def take(self, attempt: int) -> Prepared | None:
        """What is prepared, for the attempt that starts now; None: it starts cold."""
        self.look()
        if self._prepared is not None and self._prepared.ahead is not None:
            if why := self._prepared.ahead.unfit_for(attempt):
                self._say(f"The processes prepared for attempt {attempt} are not used: {why}")
                self.drop()
            else:
                self.lost_ahead = 0
        self._clear()
        prepared, self._prepared = self._prepared, None
        if prepared is not None:
            self._failed = 0
            self._unregister(prepared)
        return prepared

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

    def give_up(self, why: str) -> None:
        """What was woken is out of date; it is prepared anew."""
        self._say(f"The processes prepared for the next attempt are started again: {why}")
        self.drop()

    def drop(self) -> None:
        """Nothing will be started that could use it."""
        prepared, self._prepared = self._prepared, None
        if prepared is not None:
            self._unregister(prepared)
            prepared.end()
            folder = prepared.ahead.folder if prepared.ahead is not None else None
            self._ending.append(GivenUpTree(prepared.tree, folder))

    def close(self) -> None:
        """The run is over: nothing of what was prepared is left."""
        self.drop()
        for one in self._ending:
            one.tree.close()
            one.is_over()

    def _unregister(self, prepared: Prepared) -> None:
        self._selector.unregister(prepared.tree)
        self._selector.unregister(prepared.tree.pidfd)

    @property
    def words(self) -> str:
        """How they are, for people; "" when there are none."""
        if self._prepared is None:
            return ""
        if (ahead := self._prepared.ahead) is not None:
            return f"hot, {ahead.waiting} of {self._ranks} wait for the next attempt"
        standbys = self._prepared.standbys.values()
        if any(one.unfit for one in standbys):
            return f"unfit: {next(one.unfit for one in standbys if one.unfit)}"
        ready = [one for one in standbys if one.is_ready]
        if len(ready) < self._ranks:
            return f"{len(ready)} of {self._ranks} ready"
        rss_bytes = max(one.rss_bytes for one in ready)
        return f"ready, {self._ranks} × {rss_bytes / MIB:.0f} MiB"
