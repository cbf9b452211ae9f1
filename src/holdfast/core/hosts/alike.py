"""What must be alike on all hosts of a run, and how one differs. Pure.

    runs = (("Python", "3.12.1"), command_told(argv, digest))
    differences(runs, says.runs) == ["Python '3.11.7', not '3.12.1'"]

A command may hold secrets, so it is told by digests that only who knows the run's secret can
compare with a guess: one of the whole, and one of each of its first words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.core.visible import clean

Alike = tuple[tuple[str, str], ...]  # names and values

_COMMAND = "another command"
_WORDS = 32  # whose digests are told: an agent says them with each of its messages
_WHOLE_DIGITS, _WORD_DIGITS = 16, 6
_NAMED = 5


def command_told(argv: Sequence[str], digest: Callable[[str], str]) -> tuple[str, str]:
    """Its name and value: how many words it has, their digest, and one of each.

    `digest`: of a text, with the run's secret.
    """
    whole = digest("\0".join(argv))[:_WHOLE_DIGITS]
    words = [digest(word)[:_WORD_DIGITS] for word in argv[:_WORDS]]
    return _COMMAND, " ".join([str(len(argv)), whole, *words])


def differences(here: Alike, there: Alike) -> list[str]:
    """In what `there` is not like `here`, each in words; none: all is alike."""
    told = dict(there)
    return [
        _of_commands(mine, told[name])
        if name == _COMMAND
        else f"{name} {told[name]!r}, not {mine!r}"
        for name, mine in here
        if name in told and told[name] != mine
    ]


def _of_commands(here: str, there: str) -> str:
    mine, theirs = here.split(" "), there.split(" ")
    if mine[0] != theirs[0]:
        return f"{_COMMAND} (of {clean(theirs[0])} words, not {mine[0]})"
    pairs = enumerate(zip(mine[2:], theirs[2:], strict=False), start=1)
    found = [str(at) for at, (one, other) in pairs if one != other]
    if not found:
        return f"{_COMMAND} (it differs behind word {_WORDS})"
    more = " …" if len(found) > _NAMED else ""
    words = ("word " if len(found) == 1 else "words ") + ", ".join(found[:_NAMED])
    return f"{_COMMAND} ({words}{more} of {mine[0]})"
