"""Parts of sets between the memories of hosts: what an agent has its copy process do.

    copying = Copying(selector, environment, ram_dir, CopyTrust(run, secret, index, at))
    copying.serve()  # have others get parts from here
    copying.replicate(action, ranks, place, feed)  # keep a copy of the neighbour's part
    copying.fetch(part, buffer, place)  # bring this host's own part here, while ranks start
    copying.port  # where other hosts get parts from this one; 0: nowhere

All methods return at once, and are called by the loop's thread alone.
"""

from __future__ import annotations

import contextlib
import selectors
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path

from holdfast.agent.flush import FlushProcess, FlushResult, differences
from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.hosts.copies import CopyServer
from holdfast.core.save.corruption import ReplicaDifference
from holdfast.core.save.word import MAX_BUFFERS
from holdfast.core.value import value
from holdfast.errors import StoreUnavailable
from holdfast.journal.clocks import now_ns
from holdfast.snapshot.part import (
    PartName,
    begin_fetch,
    end_fetch,
    held_copies,
    room_for_copy,
)
from holdfast.snapshot.ram_folder import buffer_name

NICE = 5  # not the last: who fetches its part keeps all ranks waiting
PROGRAM = "holdfast.agent.copier"


@value
class CopyTrust:
    """Who this is, and what it proves. `at`: the address on which it listens."""

    run: str
    secret: bytes = field(repr=False)
    index: int
    at: str


class Copying:
    """One host's copies, whichever part of the run it has."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        environment: Mapping[str, str],
        ram_dir: Path,
        trust: CopyTrust,
    ) -> None:
        """`ram_dir`: the run's folder in memory on this host."""
        self._ram_dir = ram_dir
        self._trust = trust
        # The number of the job that brings a copy, and what it is of, from where.
        self._copy: tuple[int, PartName, CopyServer] | None = None
        # The number of the job that brings the own part, and into which buffer's folder.
        self._fetch: tuple[int, Path] | None = None
        self.why_not = ""  # others get nothing here
        for number in range(MAX_BUFFERS):  # who fetched here before has ended, and its ranks too
            end_fetch(ram_dir / buffer_name(number))
        self._process = FlushProcess(selector, environment, NICE, PROGRAM, "copies parts of sets")
        self._serves = False

    def serve(self) -> None:
        """Others may get parts here from now on: there are some, or will be soon."""
        if not self._serves:
            self._serves = True
            self._process.ask("serve", self._serves_no_more, **self._place(), at=self._trust.at)

    def _place(self) -> dict[str, object]:
        trust = self._trust
        return {"ram": str(self._ram_dir), "run": trust.run, "secret": trust.secret.hex()}

    def _serves_no_more(self, outcome: FlushResult) -> None:
        self.why_not = outcome.why or ""
        self._process.port = 0

    @property
    def port(self) -> int:
        """Where other hosts get parts from this one; 0: nowhere."""
        return self._process.port

    @property
    def pids(self) -> list[int]:
        """Of its processes."""
        return [] if self._process.pid is None else [self._process.pid]

    def turn(self) -> None:
        """Hear what was said."""
        self._process.turn()

    def replicate(
        self,
        action: act.Replicate,
        ranks: tuple[int, ...],
        place: CopyServer | None,
        feed: Callable[[ev.Event], None],
    ) -> None:
        """Keep a copy of the part of these ranks; Replicated or NotReplicated is fed.

        Of the two copies that there is room for, that of these ranks in the set to be kept stays;
        one of other ranks is from when this host had another part of the run. One at a time:
        another one that is under way is of an earlier attempt, and its host may be gone.
        """
        of = (action.attempt, action.epoch, action.step)

        def over(why: str | None, differing: tuple[ReplicaDifference, ...] = ()) -> None:
            at_ns = now_ns()
            done = ev.Replicated(at_ns, *of, differing)
            feed(ev.NotReplicated(at_ns, *of, why) if why else done)

        part = PartName(action.attempt, action.step, ranks)
        held = held_copies(self._ram_dir)
        known = {one.path.name: PartName(one.attempt, one.step, tuple(one.ranks)) for one in held}
        if part in known.values():
            over(None)
        elif self._copy is not None:
            number, *wanted = self._copy
            if wanted != [part, place]:
                self._process.stop(number)
            over("the copy before it is under way still")
        elif place is None:
            over("its neighbour has not said where its part can be had")
        else:
            kept = None if action.kept is None else PartName(*action.kept, ranks)
            into = room_for_copy(known, kept)

            def done(outcome: FlushResult) -> None:
                self._copy = None
                over(outcome.why, differences(outcome.differing))

            number = self._pull(place, part, into, done, gives_way=True, within_ns=action.within_ns)
            self._copy = number, part, place

    def fetch(self, part: PartName, buffer: int, place: CopyServer | None) -> None:
        """Bring this host's own part of a set here; ranks that restore it wait until that is over.

        What cannot be had they are told of, and the next choice is made without it.
        """
        folder = self._ram_dir / buffer_name(buffer)
        with contextlib.suppress(StoreUnavailable):
            begin_fetch(folder)
            if place is None:
                end_fetch(folder, "no host has said where it has it")
                return
            number = 0

            def over(outcome: FlushResult) -> None:
                if self._fetch == (number, folder):
                    self._fetch = None
                    end_fetch(folder, outcome.why or "", is_damaged=outcome.is_gone)

            number = self._pull(place, part, folder.name, over, gives_way=False)
            self._fetch = number, folder

    def stop_fetch(self) -> None:
        """Another attempt begins: its ranks may write where the last one's part was to come."""
        if self._fetch is not None:
            number, folder = self._fetch
            self._process.stop(number)
            self._fetch = None
            end_fetch(folder)  # else whoever restores from there later waits for ever

    def _pull(
        self,
        place: CopyServer,
        part: PartName,
        into: str,
        done: Callable[[FlushResult], None],
        *,
        gives_way: bool,
        within_ns: int = 0,
    ) -> int:
        """Bring a part into that folder of the run's memory; `done` is called by a later `turn`.

        `gives_way`: to the training; then what this host has alike in its own part is not sent, and
        it is as slow as it may be to be there `within_ns`.
        """
        return self._process.ask(
            "pull",
            done,
            **self._place(),
            index=self._trust.index,
            address=place.address,
            port=place.port,
            attempt=part.attempt,
            step=part.step,
            ranks=list(part.ranks),
            into=into,
            compare=gives_way,
            gives_way=gives_way,
            within_ns=within_ns,
        )

    def close(self) -> None:
        """End the process."""
        self._process.close()
