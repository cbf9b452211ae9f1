"""Make a schedule that breaks something short: what it says is left out or made plainer.

`broken(lines)` gives the sentence of what is wrong, empty for nothing. A shorter schedule is kept
if the same is wrong with it: the same kind of words, their numbers aside.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

Lines = tuple[str, ...]

PLAINER = {"ms": ("100ms", "10ms", "0ms"), "s": ("1s",), "": ("1", "2", "3")}
NUMBER = re.compile(r"(\d+)(ms|s|)\b")


def shrink(lines: Sequence[str], broken: Callable[[Lines], str]) -> Lines:
    """The shortest schedule that was found; raises ValueError if nothing is wrong with it."""
    lines = tuple(lines)
    story = _kind(broken(lines))
    if not story:
        raise ValueError("nothing is wrong with this schedule")
    is_so = lambda shorter: _kind(broken(shorter)) == story  # noqa: E731
    before: Lines = ()
    while lines != before:
        before = lines
        lines = _without_lines(lines, is_so)
        for plainer in (_without_words, _with_plainer_numbers):
            lines = _first_that_holds(lines, plainer, is_so)
    return lines


def _kind(words: str) -> str:
    """What is wrong, whatever the numbers; empty: nothing."""
    if not words:
        return ""
    return re.sub(r"\d+", "#", words.partition(":")[0] + ":" + words.partition(":")[2][:40])


def _without_lines(lines: Lines, is_so: Callable[[Lines], bool]) -> Lines:
    """Leave out halves, quarters, … lines (Zeller, Hildebrandt: ddmin, 2002); never the first."""
    size = max(1, len(lines) // 2)
    while True:
        place = 1
        while place < len(lines):
            shorter = (*lines[:place], *lines[place + size :])
            if len(shorter) < len(lines) and is_so(shorter):
                lines = shorter
            else:
                place += size
        if size == 1:
            return lines
        size = max(1, size // 2)


def _first_that_holds(
    lines: Lines, plainer: Callable[[Lines], Iterator[Lines]], is_so: Callable[[Lines], bool]
) -> Lines:
    """Take one step after the other, as long as there is one that breaks the same."""
    while True:
        for shorter in plainer(lines):
            if shorter != lines and is_so(shorter):
                lines = shorter
                break
        else:
            return lines


def _without_words(lines: Lines) -> Iterator[Lines]:
    """Leave out one key of a `start`, or what follows a command that goes without it."""
    for place, line in enumerate(lines):
        words = line.split()
        if words[0] == "start":
            for one, word in enumerate(words):
                if "=" in word:
                    yield _with(lines, place, " ".join(words[:one] + words[one + 1 :]))
        for extra in (r" within \S+", r" skip \d+", r" alone", r" noticed in \S+"):
            yield _with(lines, place, re.sub(extra, "", line))


def _with_plainer_numbers(lines: Lines) -> Iterator[Lines]:
    """Of several times keep the first, of numbers take smaller and rounder ones."""
    for place, line in enumerate(lines):
        yield _with(lines, place, re.sub(r"=([^ ,]+),\S+", r"=\1", line))
        for found in NUMBER.finditer(line):
            number, unit = int(found[1]), found[2]
            for other in PLAINER[unit]:
                value = NUMBER.match(other)
                if value is not None and int(value[1]) < number:
                    yield _with(lines, place, line[: found.start()] + other + line[found.end() :])


def _with(lines: Lines, place: int, line: str) -> Lines:
    return (*lines[:place], line, *lines[place + 1 :])
