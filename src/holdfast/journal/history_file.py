"""History files: read as a stream of blocks, written atomically or to a stream."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO

from holdfast.core.history.line import to_lines
from holdfast.core.ledger.facts import Fact
from holdfast.errors import ConfigurationError, HistoryError, StoreUnavailable

if TYPE_CHECKING:
    from holdfast.core.history.rows import History

BLOCK_BYTES = 1 << 20  # large enough for array operations, small beside what is kept
MAX_LINE_BYTES = 1 << 20


def read_history(path: str | os.PathLike[str]) -> History:
    """Read a history file; memory is that of the columns, not of the text.

    Raises ConfigurationError when there is no such file, and HistoryError, which names the line,
    when it is not a history or an impossible one.
    """
    from holdfast.core.history.text import parse  # numpy: those who only write do without

    try:
        with Path(path).open("rb") as file:
            return parse(_blocks(file))
    except HistoryError:
        raise
    except FileNotFoundError:
        raise ConfigurationError(f"there is no history file {path}; check the path") from None
    except OSError as error:
        raise ConfigurationError(
            f"the history file {path} cannot be read ({error.strerror}); give the path of a file "
            "that you may read"
        ) from None


def write_history(target: str | os.PathLike[str] | IO[str], facts: Iterable[Fact]) -> None:
    """Write facts as a history, to a stream of text or to a file.

    A file is written beside its place and moved there when it is complete and on disk; on any
    error what was there before stays. A pipe or a device (/dev/null) is written to. Raises
    StoreUnavailable when it cannot be written.
    """
    if not isinstance(target, str | os.PathLike):
        target.writelines(to_lines(facts))
        return
    path = Path(target)
    try:
        if path.exists() and not path.is_file():
            with path.open("w", encoding="utf-8", newline="\n") as file:
                file.writelines(to_lines(facts))
            return
        path = path.resolve()  # a link stays one
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            with part.open("w", encoding="utf-8", newline="\n") as file:
                file.writelines(to_lines(facts))
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
        _sync_folder(path.parent)
    except OSError as error:
        raise StoreUnavailable(
            f"the history cannot be written to {target} ({error.strerror}); free space there or "
            "choose another place"
        ) from None


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    """The file in blocks of whole lines."""
    line, rest = 1, b""
    while chunk := file.read(BLOCK_BYTES):
        rest += chunk
        end = rest.rfind(b"\n") + 1
        if end:
            yield rest[:end]
            line += rest.count(b"\n", 0, end)
            rest = rest[end:]
        if len(rest) > MAX_LINE_BYTES:
            raise HistoryError(
                line,
                f"the line is longer than {MAX_LINE_BYTES} bytes; a history has one short JSON "
                "object a line, so this is another file or a damaged one",
            )
    if rest:
        yield rest


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
