"""Which commands can have a standby: those that start CPython itself on a script, module or code.

A command behind a wrapper (`bash -c`, `env`, a launcher) has none: what would be held up there is
not what the user asked to run. It starts cold, as ever.
"""

from __future__ import annotations

import os
import re

TYPE_CHECKING = False  # what `typing` would say, without importing it
if TYPE_CHECKING:
    from collections.abc import Sequence

INTERPRETER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "interpreter.py")

_PYTHON = re.compile(r"python(3(\.\d+)?)?")
# Single letters that may stand together (`-uB`); the values of these follow them, or come next.
_PLAIN = frozenset("bBdOPqRsuvx")
_WITH_VALUE = frozenset("WX")
_REASONS = {
    "E": "ignores the environment (-E)",
    "I": "ignores the environment (-I)",
    "S": "does without `site` (-S)",
    "i": "is interactive (-i)",
}


class PythonCommand:
    """A command line of CPython, taken apart.

    `form` is script, module or code; `target` the script's path, the module's name or the code.
    """

    __slots__ = ("flags", "form", "python", "target")

    def __init__(self, python: str, flags: tuple[str, ...], form: str, target: str) -> None:
        self.python = python
        self.flags = flags
        self.form = form
        self.target = target


def read(argv: Sequence[str]) -> PythonCommand | str:
    """The command taken apart; a string says why it is none that could have a standby."""
    if not argv or not _PYTHON.fullmatch(os.path.basename(argv[0])):
        return "the command does not start with a Python interpreter"
    flags: list[str] = []
    rest = list(argv[1:])
    while rest:
        word = rest.pop(0)
        if word == "-" or not word.startswith("-"):
            break
        if word == "--check-hash-based-pycs" and rest:
            flags += [word, rest.pop(0)]
            continue
        end = _read_letters(word, rest, flags)
        if end is not None:
            return end if isinstance(end, str) else PythonCommand(argv[0], tuple(flags), *end)
    else:
        return "the interpreter would read its program from the terminal"
    if word == "-":
        return "the interpreter reads its program from standard input"
    return PythonCommand(argv[0], tuple(flags), "script", word)


def _read_letters(word: str, rest: list[str], flags: list[str]) -> tuple[str, str] | str | None:
    """One word of short options: (form, target) when it names the program, a reason, or None."""
    if word.startswith("--") or len(word) < 2:
        return f"the interpreter's option {word} is not one that we know"
    for place, letter in enumerate(word[1:], start=1):
        after = word[place + 1 :]
        if letter in "cm":
            if not after and not rest:
                return f"the interpreter's option -{letter} lacks its argument"
            if place > 1:
                flags.append(word[:place])
            return ("module" if letter == "m" else "code"), after or rest.pop(0)
        if letter in _WITH_VALUE:
            if not after and not rest:
                return f"the interpreter's option -{letter} lacks its argument"
            flags += [word] if after else [word, rest.pop(0)]
            return None
        if letter not in _PLAIN:
            why = _REASONS.get(letter, f"has the option -{letter}, which we do not know")
            return f"the interpreter {why}"
    flags.append(word)
    return None


def standby_argv(argv: Sequence[str]) -> tuple[list[str] | None, str]:
    """What to start as the standby of this command; None and the reason when it can have none.

    Without `site`, whose customisations the program is to meet once.
    """
    command = read(argv)
    if isinstance(command, str):
        return None, command
    return [command.python, "-I", "-S", INTERPRETER], ""
