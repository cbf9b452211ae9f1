"""The next attempt's tree, prepared while this one trains, with an interpreter for each rank.

Guard, reaper and the pipes of the ranks' output are those that the attempt will have; the launch
only says what the interpreters are to become. All of it is an offer: whatever of it is not there
when an attempt starts, starts cold.
"""

from __future__ import annotations

import selectors
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.agent.launch import standby_commands
from holdfast.agent.output import RankOutput
from holdfast.agent.tree import RankCommand, Tree, TreeMessage

MIB = 1 << 20
TRIES = 3  # in a row, of trees that ended by themselves before any attempt used one

Commands = Callable[[Sequence[RankOutput]], list[RankCommand]]


@dataclass(slots=True)
class Standby:
    """One interpreter, as far as it has spoken of itself."""

    is_ready: bool = False
    rss_bytes: int = 0
    modules: int = 0
    unfit: str = ""  # why it will start its rank cold

    def hear(self, told: dict[str, Any]) -> None:
        """Take what it says; keys that are missing leave things as they are."""
        if told.get("event") == "ready":
            self.is_ready = True
            self.modules = int(told.get("modules", 0))
            self.rss_bytes = int(told.get("rss_bytes", 0))
        elif told.get("event") == "unfit":
            self.unfit = str(told.get("why", ""))


class Prepared:
    """A tree without ranks, and the outputs they will have."""

    def __init__(self, ranks: int, argv: Sequence[str], commands: Commands) -> None:
        self.outputs = [RankOutput(rank) for rank in range(ranks)]
        self.standbys = {rank: Standby() for rank in range(ranks)}
        self.tree = Tree([output.write_fd for output in self.outputs])
        self.tree.stand_by(standby_commands(argv, commands(self.outputs)))

    def read(self) -> bool:
        """Take what the reaper said; False when the tree is no more."""
        has_ended = self.tree.ended()  # asked before reading: its last words are not silence
        for message in self.tree.read():
            self._hear(message)
        return not has_ended and bool(self.standbys)

    def _hear(self, message: TreeMessage) -> None:
        if message.event == "standby" and message.fields["rank"] in self.standbys:
            self.standbys[message.fields["rank"]].hear(message.fields["told"])
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
        for output in self.outputs:
            output.close()


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
        self._ending: list[Tree] = []
        self._failed = 0

    @property
    def are_wanted(self) -> bool:
        """Whether there is something to prepare: neither done yet nor given up."""
        return self._argv is not None and self._prepared is None and self._failed < TRIES

    @property
    def pids(self) -> list[int]:
        """Of the guards of what is prepared, or is ending."""
        trees = [] if self._prepared is None else [self._prepared.tree]
        return [tree.pid for tree in (*trees, *self._ending) if not tree.ended()]

    def prepare(self, commands: Commands) -> None:
        """Start the interpreters; they take their time, at a low priority."""
        if self._argv is None:
            return
        prepared = self._prepared = Prepared(self._ranks, self._argv, commands)
        self._selector.register(prepared.tree, selectors.EVENT_READ)
        self._selector.register(prepared.tree.pidfd, selectors.EVENT_READ)

    def look(self) -> None:
        """Take what the interpreters say; a tree that has ended by itself is let go of."""
        if self._prepared is not None and not self._prepared.read():
            self._failed += 1
            if self._failed == TRIES:
                why = self._prepared.last_words() or "nobody knows why"
                self._say(f"standby interpreters end by themselves ({why}): restarts will be cold")
            self.drop()

    def take(self) -> Prepared | None:
        """What is prepared, for the attempt that starts now; None: it starts cold."""
        self.look()
        prepared, self._prepared = self._prepared, None
        if prepared is not None:
            self._failed = 0
            self._unregister(prepared)
        return prepared

    def drop(self) -> None:
        """Nothing will be started that could use it."""
        prepared, self._prepared = self._prepared, None
        if prepared is not None:
            self._unregister(prepared)
            prepared.end()
            self._ending.append(prepared.tree)

    def close(self) -> None:
        """The run is over: nothing of what was prepared is left."""
        self.drop()
        for tree in self._ending:
            tree.close()

    def _unregister(self, prepared: Prepared) -> None:
        self._selector.unregister(prepared.tree)
        self._selector.unregister(prepared.tree.pidfd)

    @property
    def words(self) -> str:
        """How they are, for people; "" when there are none."""
        if self._prepared is None:
            return ""
        standbys = self._prepared.standbys.values()
        if any(one.unfit for one in standbys):
            return f"unfit: {next(one.unfit for one in standbys if one.unfit)}"
        ready = [one for one in standbys if one.is_ready]
        if len(ready) < self._ranks:
            return f"{len(ready)} of {self._ranks} ready"
        rss_bytes = max(one.rss_bytes for one in ready)
        return f"ready, {self._ranks} × {rss_bytes / MIB:.0f} MiB"
