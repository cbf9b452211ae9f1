"""Stacks as text, read: where a process's main thread stands, and whether it waits for others.

Two forms are known, those of faulthandler and of py-spy. Pure functions of text.
"""

from __future__ import annotations

import re
import sysconfig
from pathlib import PurePath

from holdfast.core.value import value

# `  File "/a/train.py", line 41 in train_step`, and `    train_step (train.py:41)`.
_FAULTHANDLER = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<name>.+)$')
_PY_SPY = re.compile(r"^    (?P<name>\S.*) \((?P<file>[^()]*?)(?::(?P<line>\d+))?\)$")
_THREAD = re.compile(r"^(Thread|Current thread) ")
_MAIN = re.compile(r'^Thread .*"MainThread"')
_OUTERMOST = ("<module>", "_run_module_as_main")  # of a main thread: a script's, and `-m`'s
_TOO_DEEP = "  ..."
_LIBRARY = ("site-packages", "dist-packages", "<frozen", "<string>")
_COLLECTIVE = re.compile(
    r"(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast|barrier|psum|pmean"
    r"|block_until_ready|wait_at_barrier|synchronize|rendezvous|_wait_for|c10d)",
    re.IGNORECASE,
)
_COLLECTIVE_FILES = ("distributed_c10d.py", "multihost_utils.py")


@value
class Frame:
    """One frame; `line` 0: not known (a function in C)."""

    name: str
    file: str
    line: int

    @property
    def is_users(self) -> bool:
        """Whether it is the user's own code: no library's, not Python's, not ours."""
        is_python = self.file.startswith(_STDLIB) or not self.file.endswith(".py")
        return not (is_python or any(part in self.file for part in _LIBRARY) or _is_ours(self.file))

    def __str__(self) -> str:
        return f"{self.name} ({PurePath(self.file).name}:{self.line})"


_STDLIB = sysconfig.get_path("stdlib")
_OURS = str(PurePath(__file__).parents[1])


def _is_ours(file: str) -> bool:
    return file.startswith(_OURS)


def main_thread(text: str) -> list[Frame]:
    """The frames of the main thread, innermost first; empty if nothing can be told.

    py-spy names the thread. faulthandler does not, but lists the threads newest first.
    """
    threads: list[tuple[bool, list[Frame]]] = []
    for line in text.splitlines():
        if _THREAD.match(line):
            threads.append((bool(_MAIN.match(line)), []))
        elif threads and (found := _FAULTHANDLER.match(line) or _PY_SPY.match(line)):
            frame = Frame(found["name"], found["file"], int(found["line"] or 0))
            threads[-1][1].append(frame)
    named = [frames for is_main, frames in threads if is_main]
    return (named or [frames for _, frames in threads] or [[]])[-1]


def is_whole(text: str) -> bool:
    """Whether faulthandler's text ends as it does where the main thread's frames end.

    The main thread is the last one, and its outermost frame the last line. Who embeds Python may
    have another one there.
    """
    if not text.endswith("\n"):
        return False
    last = text.splitlines()[-1]
    found = _FAULTHANDLER.match(last)
    return last == _TOO_DEEP or (found is not None and found["name"] in _OUTERMOST)


def innermost_of_user(frames: list[Frame]) -> Frame | None:
    """The deepest frame of the user's own code; without one the deepest of all."""
    return next((frame for frame in frames if frame.is_users), frames[0] if frames else None)


def as_traceback(frames: list[Frame]) -> str | None:
    """The frames as Python shows a traceback, outermost first; None without any."""
    if not frames:
        return None
    lines = [
        f'  File "{frame.file}", line {frame.line}, in {frame.name}' for frame in reversed(frames)
    ]
    return "\n".join(["Where it hung (most recent call last):", *lines]) + "\n"


def waits_for_others(frames: list[Frame]) -> bool:
    """Whether the thread is inside a collective, as far as names tell; the user's own count."""
    return any(
        frame.file.endswith(_COLLECTIVE_FILES) or _COLLECTIVE.search(frame.name) for frame in frames
    )
