"""What a start of a run will read, read into this host's memory before: the page cache is warm.

What is read is chosen here; a process reads it (`holdfast.standby.warm`), so that a disk that does
not answer holds nobody up. Nothing that lies in the run's store is executed.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.agent.guessed_imports import guess
from holdfast.core.durations import seconds_in_words
from holdfast.core.preloaded import CHECKPOINT, DATA, PACKAGES, PreloadedPart
from holdfast.errors import CorruptCheckpoint, StoreUnavailable
from holdfast.journal.attempts import attempts, lineage
from holdfast.journal.elsewhere import elsewhere
from holdfast.journal.learned_imports import LearnedImports
from holdfast.journal.store import RunFolder
from holdfast.snapshot.manifest import Manifest
from holdfast.snapshot.receipt import shard_name
from holdfast.snapshot.sets import newest_sound, read_manifest
from holdfast.standby.command import read

PROGRAM = Path(__file__).parents[1] / "standby" / "warm.py"
THREADS = 8  # they wait for the disk
STUCK_S = 20.0
LISTING_S = 60.0  # before anything is read: a folder of a million files is listed

PreloadAsked = dict[str, Any]
"""One part of what is asked for, as `holdfast.standby.warm` takes it."""


def packages_asked(
    learned: LearnedImports | None, argv: Sequence[str], folder: str
) -> PreloadAsked | None:
    """The files of what is imported: as the run has learned, else as the command's sources say.

    None: nobody can say.
    """
    if learned is not None:
        return {"what": PACKAGES, "modules": learned.modules, "mapped": learned.mapped}
    names = guess(argv, folder)["guessed"]
    return {"what": PACKAGES, "guessed": names} if names else None


def checkpoint_asked(
    folder: RunFolder, ranks: Collection[int], world_size: int
) -> tuple[PreloadAsked | None, str]:
    """The shards that these ranks would restore from now, and why there are none.

    In the order of the ranks, which read side by side.
    """
    if not ranks:
        return None, "a spare has no part of one yet"
    try:
        if elsewhere(folder.ckpt_dir) is not None:
            return None, "those in an object store are read by the ranks alone"
        newest, damage = newest_sound(folder.ckpt_dir, lineage(attempts(folder).records))
        if newest is None:
            return None, "; ".join(damage.values()) or "there is no checkpoint yet"
        manifest = read_manifest(newest.path)
    except (CorruptCheckpoint, StoreUnavailable) as error:
        return None, str(error)
    sources = ranks if manifest.world_size == world_size else range(manifest.world_size)
    files = [str(newest.path / shard_name(rank)) for rank in shards_of(manifest, sources)]
    return {"what": CHECKPOINT, "files": files, "in_turn": True}, ""


def shards_of(manifest: Manifest, sources: Collection[int]) -> list[int]:
    """Whose shards these ranks read: their own, and those that hold what several have alike."""
    found = dict.fromkeys(sources)
    for stored in manifest.arrays.values():
        for source in sources:
            pieces = stored.copy_of(source)
            if len(pieces) == 1:  # of a sharded array each reads its own part
                found[pieces[0][0]] = None
    return list(found)


def data_asked(places: Sequence[str], most_bytes: int) -> PreloadAsked:
    """The first of the data."""
    return {"what": DATA, "files": list(places), "most_bytes": most_bytes}


class ReadAhead:
    """One process that reads, and what it has told. `python`: as the run's command would be."""

    def __init__(
        self,
        asked: Sequence[PreloadAsked],
        most_bytes: int,
        argv: Sequence[str],
        environment: Mapping[str, str],
    ) -> None:
        command = read(argv)
        self._python = sys.executable if isinstance(command, str) else command.python
        self._environment = environment
        self._request = {
            "parts": list(asked),
            "most_bytes": most_bytes,
            "threads": THREADS,
        }
        self.trouble = ""

    def run(
        self, limit_s: float, told: Callable[[PreloadedPart], None] = lambda _: None
    ) -> list[PreloadedPart]:
        """Until all is read, or nothing more comes: `trouble` says why then. Never raises.

        `told`: how a part stands, now and then. The calling thread's end ends the process.
        """
        try:
            process = subprocess.Popen(
                [self._python, str(PROGRAM)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=dict(self._environment),
                start_new_session=True,
            )
        except OSError as error:
            self.trouble = f"{self._python} cannot be started ({error.strerror or error})"
            return []
        feeding = threading.Thread(target=self._feed, args=(process,), daemon=True)
        feeding.start()
        found: dict[str, PreloadedPart] = {}
        try:
            for said in self._lines(process, time.monotonic() + limit_s):
                part = parse_part(said)
                found[part.what] = part
                told(part)
        except (ValueError, KeyError, TypeError) as error:
            self.trouble = f"what the reading process says is nothing that it can say: {error}"
        finally:
            process.kill()
            if process.stdout is not None:
                process.stdout.close()
            threading.Thread(target=process.wait, daemon=True).start()  # it may hang in a disk
        return list(found.values())

    def _feed(self, process: subprocess.Popen[bytes]) -> None:
        with contextlib.suppress(OSError):
            if process.stdin is not None:
                with process.stdin as pipe:
                    pipe.write(json.dumps(self._request).encode() + b"\n")

    def _lines(self, process: subprocess.Popen[bytes], until_s: float) -> Iterator[dict[str, Any]]:
        """What it says, as long as it gets on."""
        if process.stdout is None:
            return
        moved_s, at, waiting = time.monotonic(), "", b""
        moved: tuple[object, ...] = ()
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while True:
                now_s = time.monotonic()
                patience_s = STUCK_S if moved else LISTING_S
                if now_s > until_s or now_s - moved_s > patience_s:
                    limit = "it took too long" if now_s > until_s else _stuck(patience_s, at)
                    self.trouble = f"the rest was left: {limit}"
                    return
                if not selector.select(timeout=0.2):
                    continue
                data = os.read(process.stdout.fileno(), 1 << 16)
                if not data:
                    return
                *lines, waiting = (waiting + data).split(b"\n")
                for line in lines:
                    said = json.loads(line)
                    at = said["at"]
                    if (now := (said["what"], said["nbytes"], said["files"])) != moved:
                        moved, moved_s = now, time.monotonic()
                    yield said


def _stuck(patience_s: float, at: str) -> str:
    of = f" of {at}" if at else ""
    return f"nothing{of} came within {seconds_in_words(patience_s)}; does its disk answer?"


def parse_part(said: Mapping[str, Any]) -> PreloadedPart:
    """What the process tells of a part; raises KeyError, TypeError."""
    names = (
        "what", "files", "nbytes", "from_disk", "took_ns", "missing", "unread", "why", "is_cut",
    )  # fmt: skip
    return PreloadedPart(**{name: said[name] for name in names})
