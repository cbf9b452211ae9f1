"""A session under `holdfast run`: the agent decides, and this side answers through its page."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from holdfast.config.rank import RankEnvironment
from holdfast.core.events import Resume
from holdfast.core.save.word import Order
from holdfast.errors import (
    EXIT_USER_FAILURE,
    ConfigurationError,
    CorruptCheckpoint,
    HoldfastError,
)
from holdfast.journal import doorbell, gate
from holdfast.journal.layout import REPORT_SUFFIX, RankPhase, Word
from holdfast.journal.rank_journal import session_journal
from holdfast.session import ahead, imports, signals
from holdfast.session.attachment import Attachment, Programs, identity
from holdfast.session.crash import write_report
from holdfast.session.joining import dial_when_heard
from holdfast.session.leaving import end_soon
from holdfast.session.memory import RamPlace
from holdfast.session.stacks import answer_for_stacks
from holdfast.session.store_away import folder_of
from holdfast.session.warming import Warming
from holdfast.snapshot.keep import Keep


class Supervised(Attachment):
    """The choice of a set came with the launch; a set that cannot be read ends the attempt."""

    def __init__(self, environment: RankEnvironment, keep: Keep | None) -> None:
        folder = folder_of(environment.store, environment.run)
        writer = session_journal(
            Path(environment.journal),
            identity(
                folder,
                environment.attempt,
                environment.rank,
                environment.incarnation,
                os.uname().nodename,
            ),
        )
        super().__init__(
            folder,
            writer,
            attempt=environment.attempt,
            rank=environment.rank,
            world_size=environment.world_size,
            keep=keep,
        )
        if environment.cache is not None:
            self.programs = Programs(Path(environment.cache))
        self._report = Path(environment.journal).with_suffix(REPORT_SUFFIX)
        self._bell = str(Path(environment.journal).with_name(doorbell.NAME))
        self.hurry()
        self._resume = Resume(
            environment.resume_set,
            environment.resume_step,
            environment.resume_parent,
            environment.skip_batches,
            ended_until=environment.ended_until,
        )
        self._resume_from = environment.resume_from
        if environment.ram is not None and environment.ram_buffers:
            self.ram = RamPlace(
                Path(environment.ram),
                environment.ram_buffers,
                environment.local_rank,
                environment.local_world_size,
            )
        self.local_rank = environment.local_rank
        self._gate = None if environment.gate is None else Path(environment.gate)
        answer_for_stacks(Path(environment.journal), writer.page)
        self._imports = Path(environment.imports)
        self._keep_is_reported = keep is None or self.rank != 0
        if self.rank > 0:
            self.on_close(dial_when_heard())
        if self._gate is None:
            self._begin()

    def _begin(self) -> None:
        """The attempt is on record: what it starts from is known, and what is its own is ours."""
        if self._resume.set_name is not None:
            self.warming = Warming(self.set_dir(self._resume), self.rank, self.world_size)
        self.before_save()

    def come_in(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """A rank that was started ahead of its attempt waits here until that begins."""
        path = self._gate
        if path is None:
            return
        try:
            go = gate.wait(path, lambda: ahead.tell(path.parent, self.rank), meanwhile)
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"{path}: this process was started ahead of its attempt, and cannot learn what "
                f"that starts from ({error}); it must run on the host of its supervisor"
            ) from error
        self._gate = None
        what = go.set_name, go.step, go.parent, go.skip_batches
        self._resume = Resume(*what, ended_until=go.ended_until)
        self._resume_from = go.place
        ahead.catch_up()
        self._begin()

    def stepped(self) -> None:
        """What has been imported by now, the next attempt's standby imports ahead."""
        imports.tell(self._imports, restores=self.restores)

    @property
    def report_paths(self) -> tuple[Path, ...]:
        """On this host, where the supervisor looks without waiting for the store; and in the store.

        Before its attempt a rank's end is no word of that attempt's.
        """
        return () if self._gate is not None else (self._report, *super().report_paths)

    def before_save(self) -> bool:
        """Tell the supervisor which checkpoints the script wants kept, if it does not know yet."""
        if self.keep is not None and not self._keep_is_reported:
            wish = {"last": self.keep.last, "every": self.keep.every}
            path = self.folder.ranks_dir(self.attempt) / "keep.json"
            self._keep_is_reported = write_report(path, wish)
        return self._keep_is_reported

    def resume(self) -> Resume:
        """What the controller chose at launch."""
        self.come_in()
        return self._resume

    def set_dir(self, resume: Resume) -> Path:
        """In memory, if the controller chose that copy."""
        return Path(self._resume_from) if self._resume_from else super().set_dir(resume)

    def reject(self, resume: Resume, words: str) -> NoReturn:
        """All ranks must restore the same set, so the attempt ends and the choice is made again."""
        raise CorruptCheckpoint(f"{resume.set_name}: {words}") from None  # said already, in whole

    def resumed(self, resume: Resume) -> bool:  # noqa: ARG002 - the attempt record says so already
        """Always: a rank that could not read it has ended the attempt."""
        return True

    def ready(self, step: int) -> None:
        """The agent has been looking on since the journal appeared."""

    def stopping(self) -> bool:
        """Whether a stop has been ordered."""
        page = self.writer.page
        flags = page.load(Word.ORDER) >> 40
        return bool(flags & (Order.STOP | Order.LEAVE) or page.load(Word.DEADLINE_AT))

    def hurry(self) -> None:
        """Have the agent look at our page now."""
        doorbell.ring(self._bell)

    def watch_sigterm(self) -> None:
        """Instead of the handler that was there: the agent knows what a SIGTERM means."""
        signals.install_sigterm(self.on_sigterm, chain=False)

    def on_sigterm(self) -> None:
        """Report it; the agent knows what it means for the other ranks."""
        if self._gate is not None:  # nobody reads our page yet, and there is nothing to save
            os._exit(128 + signal.SIGTERM)
        self.writer.page.increment(Word.SIGTERMS)
        self.hurry()

    def failed(self, error: BaseException) -> None:
        """The other ranks wait for this one in vain."""
        super().failed(error)
        if self.world_size > 1:
            end_soon(error.exit_code if isinstance(error, HoldfastError) else EXIT_USER_FAILURE)

    def close(self) -> None:
        """The same for a script that simply ends before its time."""
        is_finished = self.writer.page.snapshot().phase is RankPhase.FINISHED
        if self.world_size > 1 and not (is_finished or self.stopping()):
            end_soon(EXIT_USER_FAILURE)
        super().close()


def write_whole_lines() -> None:
    """Let each printed line be one write: a rank's threads and ranks' sentences never share a line.

    The agent starts ranks unbuffered, so that a SIGKILL costs no output; then Python writes a line
    and its end apart. What has no end yet is held until it has, or until it is flushed.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, write_through=False)
