"""What a rehearsal's emulator is told, and when: a small file, TOML or JSON.

    start = ["fail html 3", "delay 0.2"]     # before the run starts

    [[event]]                                # seconds after the moment of --after
    at = 2.0
    do = "preempted"

What stands in quotes are the emulator's verbs (`holdfast.testing.emulator`). A script without
events gets the usual one of its service, at 0.
"""

from __future__ import annotations

import json
import shlex
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.errors import ConfigurationError

SCRIPT_MAX_BYTES = 1 << 16
# These change how an emulator answers, not what is to happen to the machine.
FAULT_VERBS = ("fail", "delay", "drop", "recover")
CommandWords = tuple[str, ...]


class ScriptLine(NamedTuple):
    """One thing that the emulator is told, so many seconds after the moment."""

    at_s: float
    words: CommandWords

    @property
    def is_fault(self) -> bool:
        """Whether it announces nothing."""
        return self.words[0] in FAULT_VERBS


@dataclass(frozen=True, slots=True)
class Script:
    """`start`: what is told before the run starts; `lines` by their times."""

    start: tuple[CommandWords, ...] = ()
    lines: tuple[ScriptLine, ...] = ()

    def or_usual(self, words: CommandWords) -> Script:
        """The same, with the usual event where it announces nothing itself."""
        if any(not line.is_fault for line in self.lines):
            return self
        return Script(self.start, _by_time([*self.lines, ScriptLine(0.0, words)]))

    def all_words(self) -> list[CommandWords]:
        """Everything that the emulator is told, for a look ahead."""
        return [*self.start, *(line.words for line in self.lines)]


class Moment(NamedTuple):
    """When it happens: after so many steps, or so many seconds after the first one."""

    steps: int = 1
    seconds: float = 0.0

    @classmethod
    def of(cls, text: str) -> Moment:
        """`20` (steps) or `1.5s`; raises ConfigurationError for anything else."""
        try:
            if text.endswith("s") and 0 <= (seconds := float(text[:-1])) < 1e6:
                return cls(1, seconds)
            if text.isdecimal() and int(text) >= 1:
                return cls(int(text))
        except ValueError:
            pass
        raise ConfigurationError(
            f"--after {text}: write a number of steps, 1 or more, or seconds, such as 2.5s"
        )


def read_script(path: Path) -> Script:
    """A script's file; raises ConfigurationError for one that is not valid."""
    try:
        with path.open("rb") as file:
            text = file.read(SCRIPT_MAX_BYTES + 1).decode()
    except OSError as error:
        raise ConfigurationError(f"the script {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"the script {path} is no text in UTF-8") from None
    if len(text) > SCRIPT_MAX_BYTES:
        raise ConfigurationError(f"the script {path} has more than {SCRIPT_MAX_BYTES} bytes")
    loads: Callable[[str], Any] = json.loads if path.suffix == ".json" else tomllib.loads
    try:
        return script_of(loads(text))
    except (ValueError, TypeError, RecursionError) as error:
        raise ConfigurationError(f"the script {path} is not valid: {error}") from None


def script_of(document: object) -> Script:
    """From the file's content; raises ValueError, with the value that is wrong."""
    if not isinstance(document, Mapping):
        raise ValueError("it is no table with `start` and `event`")
    if unknown := sorted(set(document) - {"start", "event"}):
        raise ValueError(f"{unknown[0]!r} is no key of a script; `start` and `event` are")
    start, events = document.get("start", []), document.get("event", [])
    if not isinstance(start, list) or not isinstance(events, list):
        raise ValueError("`start` and `event` are lists")
    return Script(tuple(_words(one) for one in start), _by_time([_line(one) for one in events]))


def _line(entry: object) -> ScriptLine:
    if not isinstance(entry, Mapping) or set(entry) - {"at", "do"} or "do" not in entry:
        raise ValueError(f"{entry!r} is no event: it has `at`, in seconds, and `do`")
    at_s = entry.get("at", 0)
    if isinstance(at_s, bool) or not isinstance(at_s, int | float) or not 0 <= at_s < 1e6:
        raise ValueError(f"{at_s!r} is no number of seconds from 0 on")
    return ScriptLine(float(at_s), _words(entry["do"]))


def _words(command: object) -> CommandWords:
    words = tuple(shlex.split(command)) if isinstance(command, str) else ()
    if not words:
        raise ValueError(f"{command!r} is nothing that an emulator does")
    return words


def _by_time(lines: Sequence[ScriptLine]) -> tuple[ScriptLine, ...]:
    return tuple(sorted(lines, key=lambda line: line.at_s))
