"""What a host knows of how a rank ended, for people: the attempt's record and its incident."""

from __future__ import annotations

from holdfast.core.value import value


@value
class RankEvidence:
    """Of one rank.

    `code`: as a shell tells it, a signal as its negative number; None: nobody saw that end.
    `last_lines`: of its output. `traceback`: of its exception, or of the thread that hung.
    `stacks`: the text of all its stacks, where they were collected; `where`: the line that hung.
    """

    rank: int
    code: int | None = None
    last_lines: tuple[str, ...] = ()
    traceback: str | None = None
    stacks: str = ""
    where: str = ""
