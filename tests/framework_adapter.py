"""A rank with a framework, in the test's own process, answered as a controller does: by words."""

from __future__ import annotations

from pathlib import Path

from holdfast.core.save.word import pack, unpack
from holdfast.journal.layout import Identity, Word
from holdfast.journal.writer import JournalWriter
from holdfast.session.boundary import Boundary
from holdfast.session.contents import Contents
from holdfast.session.framework_files import FrameworkFiles
from holdfast.session.framework_loop import FrameworkLoop
from holdfast.session.saver import Saver

ATTEMPT = 2


class Adapter:
    """One rank with a framework: what `Run.framework` puts together, and the page it answers in."""

    def __init__(self, base: Path, ranks: int = 1, *, begins: bool = True) -> None:
        identity = Identity("r", ATTEMPT, "i", 0, "host", 0, "boot")
        self.writer = JournalWriter.create(base / "rank-00000.hfj", identity)
        self.words = self.writer.page
        self.folder, self.ckpt_dir = base / "checkpoints", base / "ckpt"
        self.ckpt_dir.mkdir()
        who = {"attempt": lambda: ATTEMPT, "rank": 0, "world_size": 1}
        self.contents = Contents()
        self.saver = Saver(self.ckpt_dir, self.words, self.contents, **who)
        self.boundary = Boundary(self.writer, self.saver)
        files = FrameworkFiles(self.folder, "step-*", self.ckpt_dir, 0, ranks)
        self.loop = FrameworkLoop(files, None, self.boundary, self.saver, lambda *_: None)
        if begins:
            self.loop.begin()

    def order(self, epoch: int, step: int, flags: int = 0) -> None:
        self.words.store(Word.ORDER, pack(epoch, step, flags))

    def verdict(self, epoch: int, step: int, flags: int) -> None:
        self.words.store(Word.VERDICT, pack(epoch, step, flags))

    def answers(self) -> tuple[int, int, int, int]:
        """The steps taken, copied, durable and failed last."""
        words = (Word.TAKEN, Word.COPIED, Word.DURABLE, Word.FAILED)
        taken, copied, durable, failed = (unpack(self.words.load(word)).step for word in words)
        return taken, copied, durable, failed

    def write(self, step: int, text: str = "weights") -> Path:
        """As the framework does."""
        path = self.folder / f"step-{step}"
        path.mkdir(parents=True, exist_ok=True)
        (path / "weights").write_text(text)
        return path

    def written(self) -> None:
        """Nothing is left to be written to the store."""
        with self.saver._wake:
            self.saver._wake.wait_for(lambda: self.saver._work is None)

    def close(self) -> None:
        self.saver.close()
        self.writer.close()
