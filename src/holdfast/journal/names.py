"""Names of runs: what may become a folder's name, and what to call a run that nobody named."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import PurePath

from holdfast.errors import ConfigurationError

MAX_NAME_CHARS = 128
ID_BYTES = 6

# ASCII only. A name becomes a folder, a label in exporters and a word in shell commands; Unicode
# would bring spellings that look alike, two normal forms of one word, and names of more than 255
# bytes. '@', ':' and '/' are left out because run references use them (`store/run@best`).
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*")
_UNFIT = re.compile(r"[^A-Za-z0-9._+-]+")
_SHOWN_CHARS = 60


def check_name(name: str, of: str = "a run's name") -> str:
    """`name` itself if a run may have it. `of`: what it is to be, in an error's words.

    Letters and digits of ASCII, and `. _ + -` after the first character; 1 to 128 characters;
    no `..`. Raises ConfigurationError with the name shown safely.
    """
    problem = _problem(name)
    if problem:
        raise ConfigurationError(
            f"{shown(name)} cannot be {of}: {problem}; "
            "use letters, digits and . _ + - (not first), at most 128 characters"
        )
    return name


def check_tag(tag: str) -> str:
    """`tag` itself if it may be a checkpoint's: as a run's name. Raises ConfigurationError."""
    return check_name(tag, "a tag")


def is_name(name: str) -> bool:
    """Whether a run may have that name."""
    return not _problem(name)


def shown(text: object) -> str:
    """`text` quoted, escaped and shortened: safe on a terminal whatever it holds."""
    full = ascii(text)
    return full if len(full) <= _SHOWN_CHARS else f"{full[:_SHOWN_CHARS]}…"


def default_name(command: Sequence[str]) -> str:
    """A run's name from its command line: `python -u train.py --lr 1` gives `train`.

    The first script or module named wins, else the program. What a name must not hold becomes `-`.
    """
    return fit_name(_subject(command))


def new_id() -> str:
    """A short random id (12 hex digits) for a run or an incarnation."""
    return os.urandom(ID_BYTES).hex()


def _problem(name: str) -> str:
    if not name:
        return "it is empty"
    if len(name) > MAX_NAME_CHARS:
        return f"it has {len(name)} characters"
    if ".." in name:
        return "it contains '..'"
    if not _NAME.fullmatch(name):
        stranger = next((char for char in name if _UNFIT.match(char)), None)
        return f"it contains {stranger!a}" if stranger else f"it starts with {name[0]!r}"
    return ""


def _subject(command: Sequence[str]) -> str:
    for position, word in enumerate(command):
        if position and command[position - 1] == "-m":
            return word.rpartition(".")[2] if not word.endswith(".__main__") else word[:-9]
        if word.endswith(".py"):
            return PurePath(word).stem
    program = command[0] if command else ""
    return "python" if program == "-c" else PurePath(program).stem  # `sys.argv` of `python -c`


def fit_name(words: str) -> str:
    """A run's name from any words: what a name must not hold becomes `-`."""
    name = re.sub(r"\.{2,}", ".", _UNFIT.sub("-", words)).lstrip(".+-").rstrip("-")
    return name[:MAX_NAME_CHARS] or "run"
