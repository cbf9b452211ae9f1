"""How a session is attached to its run: what differs with and without a supervisor.

`supervised` and `alone` each give one `Attachment`; everything else in the session is the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from holdfast.cache.seal import FileSealer
from holdfast.core.events import Resume
from holdfast.core.exits import Exit, RankReport
from holdfast.errors import EXIT_DONE, EXIT_SAVED_START_ME_AGAIN, DeclaredFailure
from holdfast.journal.clocks import boot_id
from holdfast.journal.layout import Identity, RankPhase, Word
from holdfast.journal.rank_reports import report_path
from holdfast.journal.store import RunFolder
from holdfast.journal.writer import JournalWriter
from holdfast.session.crash import describe, here, write_report
from holdfast.session.memory import RamPlace
from holdfast.session.say import say
from holdfast.session.warming import Warming
from holdfast.snapshot.keep import Keep

GAVE_UP = "The script gave up: "


class Programs(NamedTuple):
    """Where compiled programs are kept: a folder of this host, its home in the store, its bound.

    Without a home somebody else keeps the two in step, and the bound. `seal`: what they bear there.
    """

    folder: Path
    home: Path | None = None
    limit_bytes: int = 0
    seal: FileSealer | None = None


class Attachment(ABC):
    """The run, this process's place in it, and its journal."""

    is_inert = False
    restores = False  # the script begins with what was chosen for it, and with nothing of its own
    local_rank = 0  # of those on this host
    has_given_up = False  # the script declared its failure: that is on record, and stands
    warming: Warming | None = None  # what the restore that is expected needs
    programs: Programs | None = None  # where compiled programs are kept
    ram: RamPlace | None = None  # where snapshots go, if they may stay in memory
    error: BaseException | None = None  # what is about to end the process, and nobody caught

    def __init__(
        self,
        folder: RunFolder,
        writer: JournalWriter,
        *,
        attempt: int,
        rank: int = 0,
        world_size: int = 1,
        keep: Keep | None = None,
    ) -> None:
        self.folder = folder
        self.writer = writer
        self.attempt = attempt
        self.rank = rank
        self.world_size = world_size
        self.keep = keep
        self._at_close: list[Callable[[], None]] = []

    @property
    def name(self) -> str:
        """The run's name."""
        return self.folder.name

    @property
    def ckpt_dir(self) -> Path:
        """Where the checkpoint sets are."""
        return self.folder.ckpt_dir

    def set_dir(self, resume: Resume) -> Path:
        """Where the set to restore lies."""
        return self.ckpt_dir / (resume.set_name or "")

    @property
    def report_paths(self) -> tuple[Path, ...]:
        """Where an uncaught exception of this rank is described; none: nobody would look there."""
        return (report_path(self.folder, self.attempt, self.rank),)

    def come_in(  # noqa: B027 - most were started when their attempt began
        self, meanwhile: Callable[[], None] = lambda: None
    ) -> None:
        """The script wants to know what it starts from: wait here until the attempt has begun.

        `meanwhile` is called where that has to be waited for.
        """

    @abstractmethod
    def resume(self) -> Resume:
        """What to restore; raises NoGoodCheckpoint or StoreUnavailable."""

    @abstractmethod
    def reject(self, resume: Resume, words: str) -> None:
        """A set cannot be read: raises when somebody else decides; else ask `resume` again."""

    @abstractmethod
    def resumed(self, resume: Resume) -> bool:
        """Settle a choice that this rank has read. True: the attempt starts from it.

        False: another rank could not read it, so ask `resume` again.
        """

    @abstractmethod
    def ready(self, step: int) -> None:
        """The loop is about to begin after `step`."""

    @abstractmethod
    def stopping(self) -> bool:
        """Whether a stop was asked for."""

    @abstractmethod
    def hurry(self) -> None:
        """There is something new in our page, and the script waits for what comes of it."""

    @abstractmethod
    def watch_sigterm(self) -> None:
        """Have `on_sigterm` called; again when the loop begins, for others may have come since."""

    @abstractmethod
    def on_sigterm(self) -> None:
        """A SIGTERM came; called in a signal handler, so it only leaves a mark."""

    def stepped(self) -> None:  # noqa: B027 - most have nobody to tell
        """The first step is done."""

    def before_save(self) -> bool:
        """A checkpoint is about to be written; True: this need not be called again."""
        return True

    def on_close(self, callback: Callable[[], None]) -> None:
        """Have something closed before the journal is; last in, first out."""
        self._at_close.append(callback)

    def failed(self, error: BaseException) -> None:
        """An exception nobody caught is about to end the process."""
        self.error = error
        self.writer.page.store(Word.PHASE, RankPhase.FAILING)

    def give_up(
        self,
        failure: DeclaredFailure,
        to: int | str | None,
        skip_batches: int,
        said: str = GAVE_UP,
    ) -> None:
        """Put on record why the script gives up, and where it wants the run to go back to.

        `said` begins the sentence about it.
        """
        if self.is_inert or self.has_given_up:
            return  # the first word counts
        self.has_given_up = True
        declared = {"declared": True, "rollback_to": to, "skip_batches": skip_batches}
        report = describe(failure, here()) | declared
        paths = self.report_paths
        written = [write_report(path, report) for path in paths]
        if paths and not any(written):
            say(f"{paths[-1]} cannot be written: the reason why the script gave up is not recorded")
        say(f"{said}{failure}")
        self.failed(failure)

    def close(self) -> None:
        """The process ends in good order."""
        while self._at_close:
            self._at_close.pop()()
        self.writer.close()


def how_it_ended(attachment: Attachment) -> Exit:
    """The end of this process, by all that it knows itself: nobody sees it end."""
    error = attachment.error
    if error is not None:
        described = describe(error)
        words = {key: described[key] for key in ("type", "message", "where", "traceback")}
        return Exit(code=1, report=RankReport(**words, declared=isinstance(error, DeclaredFailure)))
    if attachment.writer.page.snapshot().phase is RankPhase.FINISHED:
        return Exit(code=EXIT_DONE, finished=True)
    if attachment.stopping():
        return Exit(code=EXIT_SAVED_START_ME_AGAIN, asked_to_stop=True)
    return Exit(report=RankReport("", "the script ended before its last step was done", "", ""))


def identity(folder: RunFolder, attempt: int, rank: int, incarnation: str, host: str) -> Identity:
    """The journal's identity of this process."""
    return Identity(
        run=folder.name,
        attempt=attempt,
        incarnation=incarnation,
        slice=0,
        host=host,
        rank=rank,
        boot_id=boot_id(),
    )
