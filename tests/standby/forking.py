"""A standby that was forked from a fork server, by the agent's own means; see `standing`."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from standing import LIMIT_S, Result

from holdfast.agent.fork_server import AskedTree, ForkServer
from holdfast.agent.output import RankOutput
from holdfast.agent.standby import Standby
from holdfast.agent.tree import RankCommand, Tree, TreeMessage
from holdfast.standby.command import standby_argv


class Forking:
    """A fork server for a command, and the standbys that it was asked for; ended by `close`."""

    def __init__(
        self, argv: Sequence[str], imports: Path, cwd: Path, env: Mapping[str, str]
    ) -> None:
        self.argv, self.cwd = list(argv), str(cwd)
        self.env = {**env, "HOLDFAST_IMPORTS": str(imports)}
        command, why = standby_argv(self.argv)
        assert command is not None, why
        self.command = command
        self.server = ForkServer(command, self.rank(0, -1))
        self.standbys: list[Forked] = []

    def rank(self, number: int, output_fd: int, **env: str) -> RankCommand:
        """The command as one of the ranks."""
        return RankCommand(number, self.argv, {**self.env, **env}, self.cwd, output_fd)

    def until(self, condition: Any) -> Tree | None:
        """Hear the server until it holds; a tree that came meanwhile."""
        end_s, tree = time.monotonic() + LIMIT_S, None
        while not condition():
            assert time.monotonic() < end_s, "the fork server says nothing"
            select.select([self.server], [], [], 1.0)
            tree = self.server.read() or tree
        return tree

    def until_ready(self) -> None:
        """It has imported."""
        self.until(lambda: self.server.is_ready)

    def ask(self, ranks: int = 1) -> AskedTree:
        """Ask for a tree, and do not wait for it."""
        self.server.ask([RankOutput(rank) for rank in range(ranks)])
        assert self.server.asked is not None
        return self.server.asked

    def fork(self, ranks: int = 1, **env: str) -> Forked:
        """Standbys for so many ranks."""
        self.ask(ranks)
        return self.take(**env)

    def take(self, **env: str) -> Forked:
        """Those that were asked for, once they are there."""
        assert self.server.asked is not None
        outputs = self.server.asked.outputs
        tree = self.until(lambda: self.server.asked is None or self.server.has_ended)
        assert tree is not None, self.server.unfit or self.server.last_words()
        self.standbys.append(Forked(self, Standby(outputs, tree), env))
        return self.standbys[-1]

    def close(self) -> None:
        """End all of it."""
        for one in self.standbys:
            one.close()
        self.server.close()


class Forked:
    """Standbys that were forked for the ranks of one attempt."""

    def __init__(self, forking: Forking, standby: Standby, env: Mapping[str, str]) -> None:
        self.standby, self.tree = standby, standby.tree
        self.heard: list[TreeMessage] = []
        self.is_closed = False
        self._commands = lambda outputs, **more: [
            forking.rank(output.rank, output.write_fd, **{"RANK": str(output.rank), **env, **more})
            for output in outputs
        ]
        self.standby.prepare(forking.command, self._commands)

    def launch(self, **env: str) -> None:
        """Have them become the ranks."""
        self.tree.launch(self._commands(self.standby.outputs, **env))

    def until(self, event: str, count: int = 1) -> list[TreeMessage]:
        """All that was said of that kind, once it is so much."""
        end_s = time.monotonic() + LIMIT_S
        while len(found := [one for one in self.heard if one.event == event]) < count:
            assert time.monotonic() < end_s, f"no {event}; heard {self.heard}"
            select.select([self.tree], [], [], 1.0)
            self.heard += self.tree.read()
        return found

    @property
    def words(self) -> list[str]:
        """Of all that they have said of themselves so far."""
        return [one.fields["status"]["event"] for one in self.heard if one.event == "standby"]

    def told(self, word: str, count: int = 1) -> list[dict[str, Any]]:
        """What so many of them have said of themselves: ready, warm, cold."""
        end_s = time.monotonic() + LIMIT_S
        while True:
            told = [dict(one.fields["status"]) for one in self.heard if one.event == "standby"]
            if len(found := [one for one in told if one["event"] == word]) >= count:
                return found
            assert time.monotonic() < end_s, f"none is {word}; heard {self.heard}"
            select.select([self.tree], [], [], 1.0)
            self.heard += self.tree.read()

    def line(self, rank: int = 0) -> bytes:
        """The next line that this rank prints."""
        text = b""
        while not text.endswith(b"\n"):
            assert select.select([self.standby.outputs[rank].read_fd], [], [], LIMIT_S)[0]
            data = os.read(self.standby.outputs[rank].read_fd, 1)
            assert data, f"its output ended after {text!r}"
            text += data
        return text

    def result(self, number: int | None = None) -> Result:
        """How rank 0 ended, and all that it printed; `number`: a signal after its first line."""
        text = b""
        if number is not None:
            text = self.line()
            self.tree.signal(number)
        fd = self.standby.outputs[0].read_fd
        os.set_blocking(fd, True)
        while data := os.read(fd, 1 << 16):
            text += data
        (end, *_) = self.until("exit")
        code = -end.fields["signal"] if end.fields["signal"] else end.fields["code"]
        return Result(code, text.decode(), "")

    def close(self) -> None:
        """End them."""
        if not self.is_closed:
            self.is_closed = True
            self.standby.end()
            self.tree.close()
