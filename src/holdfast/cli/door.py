"""The one door through which commands print.

What they print comes from a store, and whoever can write there could make a terminal obey: move its
cursor, set its title, answer for the user. So `main` puts a `Door` before standard output and
standard error, which makes control characters visible, whoever prints and with what. Colours of our
own come from `console`, which does the same to all text in them; `coloured_line` is for what ranks
print. Nothing else gets past it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterable, Iterator
from typing import IO, TYPE_CHECKING, Any, cast

from holdfast.core.redact import redacted_text
from holdfast.core.visible import clean, coloured, sentence

if TYPE_CHECKING:
    from rich.console import Console

STDERR = 2
OUTPUT = "standard output"  # the filename of an error in writing there
PIPE_COLUMNS = 1000  # lines in a pipe are for grep: never folded


class Door:
    """A text stream that lets nothing through which a terminal would obey."""

    buffer = None  # click would print around us

    def __init__(self, behind: IO[str]) -> None:
        self.behind = behind

    def write(self, text: str) -> int:
        """All of it, made visible."""
        with _output():
            self.behind.write(clean(text))
        return len(text)

    def flush(self) -> None:
        """Write what is held back."""
        with _output():
            self.behind.flush()

    def writelines(self, lines: Iterable[str]) -> None:
        """Each of them."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.behind, name)


@contextlib.contextmanager
def _output() -> Iterator[None]:
    """Have what cannot be written, as to a disk that is full, say where that was."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, OUTPUT) from error


@contextlib.contextmanager
def doors() -> Iterator[None]:
    """Have a door before standard output and standard error."""
    before = sys.stdout, sys.stderr
    for stream in before:
        if hasattr(stream, "reconfigure"):  # what a terminal cannot print is not worth an error
            stream.reconfigure(errors="replace")
    sys.stdout, sys.stderr = (cast("Any", Door(stream)) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def occupy_closed() -> None:
    """Have /dev/null where a standard stream is closed: no file may be opened in its place."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= STDERR:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:  # so it is for Python if it was closed when Python started
            mode = "w" if number else "r"
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


def console(*, err: bool = False, folded: bool = True, file: IO[str] | None = None) -> Console:
    """A console for tables and colours; `folded`: to the width of 80, also in a pipe."""
    from rich.console import Console, RenderableType
    from rich.console import ConsoleOptions as Options
    from rich.segment import Segment

    class CleanConsole(Console):
        def render(
            self, renderable: RenderableType, options: Options | None = None
        ) -> Iterable[Segment]:
            for one in super().render(renderable, options):
                yield one if one.control else Segment(clean(one.text), one.style)

        def print(self, *objects: Any, **how: Any) -> None:
            with _output():
                super().print(*objects, **how)

        def on_broken_pipe(self) -> None:  # rich would leave with 1
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    stream = file or _behind(sys.stderr if err else sys.stdout)
    width = None if folded or stream.isatty() else PIPE_COLUMNS
    return CleanConsole(file=stream, width=width, highlight=False, markup=False, emoji=False)


def say(words: str) -> None:
    """One sentence of ours, on standard error."""
    print(f"holdfast: {sentence(redacted_text(words))}", file=sys.stderr, flush=True)


def say_link(words: str, url: str) -> None:
    """A sentence of ours that ends in an address, which a terminal can open."""
    from rich.style import Style
    from rich.text import Text

    link = Text(url, Style(link=url))
    console(err=True).print(Text(f"holdfast: {words} "), link, sep="", soft_wrap=True)


def coloured_line(line: str) -> None:
    """Print a line of a rank's output, or of a long table: its colours may reach a terminal."""
    with _output():
        _behind(sys.stdout).write(f"{coloured(line)}\n")


def raw_line(line: str) -> None:
    """Print a line as it is: somebody has asked for that."""
    _behind(sys.stdout).write(f"{line}\n")


def _behind(stream: Any) -> IO[str]:
    found: IO[str] = stream.behind if isinstance(stream, Door) else stream
    return found
