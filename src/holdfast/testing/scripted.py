"""What every emulator does as it is told: verbs, and scripts of verbs.

A verb is a method `verb_NAME`, underscores for hyphens, which takes strings. What it changes it
changes under `self.changed`, and whoever waits for something (`wait_for`) is asked again.
"""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Callable
from typing import ClassVar, Self


class EmulatorError(ValueError):
    """A script says something that the emulator does not know."""


class ScriptedEmulator:
    """Something with verbs. `close` ends what it has begun.

    `calendar` is its own calendar, in unix seconds, and `elapsed` its clock for periods; a
    simulation puts its own in their place.
    """

    name: ClassVar[str] = "emulator"

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.is_closed = False
        self.calendar: Callable[[], float] = time.time
        self.elapsed: Callable[[], float] = time.monotonic
        self._players: list[threading.Thread] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go what hangs, and end the scripts."""
        with self.changed:
            self.is_closed = True
            self.changed.notify_all()
        for thread in self._players:
            thread.join()

    def wait_for(self, is_so: Callable[[], bool], limit_s: float) -> bool:
        """Until `is_so()`, which is asked whenever something changes; False: it never was."""
        with self.changed:
            self.changed.wait_for(lambda: self.is_closed or is_so(), limit_s)
            return is_so()

    def do(self, verb: str, *words: str) -> None:
        """Do one thing now; raises EmulatorError for a verb or words that are not valid."""
        method = getattr(self, f"verb_{verb.replace('-', '_')}", None)
        if method is None:
            known = sorted(one[5:].replace("_", "-") for one in dir(self) if one[:5] == "verb_")
            raise EmulatorError(f"{verb!r} is no verb of the {self.name}; {', '.join(known)} are")
        with self.changed:
            try:
                method(*words)
            except (TypeError, ValueError) as error:
                raise EmulatorError(f"{' '.join([verb, *words])!r}: {error}") from error
            self.changed.notify_all()

    def play(self, script: str) -> None:
        """Do as a script says, in a thread beside; one line each: `at SECONDS VERB WORDS…`.

        Seconds count from now. Raises EmulatorError at once for a line that is not valid.
        """
        player = threading.Thread(target=self._play, args=(parsed(script),), daemon=True)
        self._players.append(player)
        player.start()

    def _play(self, steps: list[tuple[float, list[str]]]) -> None:
        began_s = time.monotonic()
        for at_s, words in steps:
            with self.changed:
                left_s = began_s + at_s - time.monotonic()
                if self.changed.wait_for(lambda: self.is_closed, max(0.0, left_s)):
                    return
            self.do(*words)


def parsed(script: str) -> list[tuple[float, list[str]]]:
    """A script's lines: when, and what; `#` begins a comment. Raises EmulatorError."""
    steps = []
    for line in script.splitlines():
        words = shlex.split(line, comments=True)
        if not words:
            continue
        try:
            at_s = float(words[1])
        except (IndexError, ValueError):
            at_s = -1.0
        if words[0] != "at" or len(words) < 3 or at_s < 0:
            raise EmulatorError(f"{line.strip()!r} is no line of a script: `at SECONDS VERB …`")
        steps.append((at_s, words[2:]))
    return sorted(steps, key=lambda step: step[0])
