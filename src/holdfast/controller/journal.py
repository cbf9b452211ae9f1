"""The controller's journal: its policy, every input before it is acted on, and what was decided.

With that a recorded night can be decided again (`controller.replay`). The actions follow from the
inputs, so only a checksum of them is written, beside the next input; the facts among them are for
the ledger.

Thousands of hosts have thousands of inputs a turn, and most of them lead to nothing. Those wait for
one that does, or for the end of the turn, and all are written at once.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any

from holdfast.controller.tally import SaveCounts
from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.event_json import encode
from holdfast.core.hang.deadline import HangPolicy
from holdfast.core.ledger.program import Declared
from holdfast.core.run.as_json import write_policy
from holdfast.core.run.state import RunPolicy
from holdfast.core.save import events as news
from holdfast.journal.clocks import boot_id, read_clock_pair
from holdfast.journal.layout import CONTROLLER_RANK, Identity, Kind, NoteType, RankPhase, Word
from holdfast.journal.store import RunFolder
from holdfast.journal.writer import BareRecord, JournalWriter

SEEN_NS = 1_000_000_000
LONGEST_BOOT_NS = 86_400 * 1_000_000_000  # beyond, somebody has set the clock
BOOT = "boot"


class ControllerJournal:
    """Written by the loop's thread alone. A full disk costs records, never the run."""

    def __init__(self, writer: JournalWriter) -> None:
        self._writer = writer
        self._seen_ns = 0
        self._tally = SaveCounts()
        self._decided = 0
        self._inputs: list[tuple[int, dict[str, Any]] | BareRecord] = []  # not yet written

    @staticmethod
    def identity(folder: RunFolder, epoch: int, incarnation: str) -> Identity:
        """The identity of the controller's journal; its attempt is the lease epoch."""
        host = os.uname().nodename
        return Identity(folder.name, epoch, incarnation, 0, host, CONTROLLER_RANK, boot_id())

    def opened(
        self,
        folder: RunFolder,
        chips: int,
        declared: Declared | None = None,
        hang: HangPolicy | None = None,
    ) -> None:
        """The run and when its resources were asked for, on this boot's clock.

        `declared`: what a step would take on them at best, as far as somebody said. `hang`: what
        counts as one, for who looks at the run from outside; None: nobody ends it for that.
        """
        fact = {
            "fact": "run",
            "name": folder.name,
            "requested_ns": folder.identity.requested_ns(),
            "chips": chips,
        }
        if folder.identity.requested_boot_id:  # for those who know how that clock differs
            fact |= {
                "requested_boot": folder.identity.requested_boot_id,
                "requested_boot_ns": folder.identity.requested_boot_ns,
            }
        if hang is not None:
            set_ns = hang.step_ns if hang.is_watched else 0
            fact |= {"hang_least_ns": hang.floor_ns} if set_ns is None else {"hang_ns": set_ns}
        said = {} if declared is None else asdict(declared)
        self.fact(fact | {name: number for name, number in said.items() if number})

    def policy(self, policy: RunPolicy, version: str) -> None:
        """What the run's machine decides by, in this version of Holdfast."""
        payload = {"version": version, "policy": write_policy(policy)}
        self._writer.note(NoteType.CONTROLLER, payload)

    def booted(self, started_unix_ns: int | None) -> None:
        """When the machine began to get ready, made for the run; None: it was there before."""
        boottime_ns, unix_ns = read_clock_pair()
        took_ns = 0 if started_unix_ns is None else unix_ns - started_unix_ns
        if 0 < took_ns <= LONGEST_BOOT_NS:
            start_ns = boottime_ns - took_ns
            self.fact({"fact": "wait", "kind": BOOT, "start_ns": start_ns, "end_ns": boottime_ns})

    def begun_by(self, start: str) -> None:
        """The cluster's name for the start of its job in which this one began, as `17.2`.

        Others than Slurm's do not count their starts, and are left out.
        """
        job, _, restarts = start.rpartition(".")
        if job and restarts.isdecimal():
            at_ns, _ = read_clock_pair()
            self.fact({"fact": "job", "at_ns": at_ns, "job": job, "restarts": int(restarts)})

    def event(self, event: ev.Event) -> None:
        """An input of the run's machine; one rank's plain progress takes 32 bytes."""
        heard = event.news if isinstance(event, ev.Heard) else None
        if isinstance(event, ev.Heard) and isinstance(heard, news.Progress):
            of = event.at_ns, Kind.PROGRESS, heard.rank, heard.step, event.attempt
            self._inputs.append(BareRecord(*of))
        else:
            self._inputs.append((NoteType.INPUT, encode(event) | {"decided": self._decided}))
        if self._tally.event(event):
            self.fact(self._tally.fact)

    def answered(self, actions: Collection[act.Action], at_ns: int) -> None:
        """What the machine decided on the last input."""
        if actions:
            self._write()
        for action in actions:
            self._decided = checksum(action, self._decided)
            self._tally.action(action, at_ns)

    def fact(self, fact: Mapping[str, Any]) -> None:
        """A fact for the ledger."""
        self._write()
        self._writer.note(NoteType.FACT, dict(fact))

    def _write(self) -> None:
        if self._inputs:
            inputs, self._inputs = self._inputs, []
            self._writer.note_all(inputs)

    def seen(self, at_ns: int, *, is_held: bool = False) -> None:
        """The turn ends. A sign of life, once a second.

        `is_held`: all steps are done, and the last not durable. That stands in a word of the
        journal's page, which needs no room in any store.
        """
        self._write()
        if at_ns - self._seen_ns >= SEEN_NS:
            self._seen_ns = at_ns
            self._writer.page.store(
                Word.PHASE, RankPhase.LOOP_ENDED if is_held else RankPhase.STARTING
            )
            self._writer.seen()

    def close(self) -> None:
        """Write down the last decisions' checksum too, and let go of the file."""
        self._write()
        self._writer.note(NoteType.CONTROLLER, {"decided": self._decided})
        self._writer.close()


def checksum(action: act.Action, before: int) -> int:
    """The checksum of all actions up to this one. `before`: that of those before it, 0 for none."""
    return zlib.crc32(repr(action).encode(), before)
