"""Signals to `holdfast run`: handlers only put them into the loop's inbox.

SIGTERM is a notice with the grace period, and so are SIGHUP (the terminal or the session went
away) and SIGUSR1 (Slurm's early signal); SIGINT is a person: once saves and stops, twice stops now;
SIGQUIT stops now. What `--notice signal:…` names means what it says there instead.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection
from types import FrameType

WATCHED = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGUSR1,
    signal.SIGQUIT,
)


def watch(arrived: Callable[[int], None], also: Collection[int] = ()) -> Callable[[], None]:
    """Call `arrived(number)` for each; returns what has them ignored, once the end is decided.

    `also`: signals that mean something to a source of notices.

    Not the old handlers: by default a signal ends the process, with an exit code that is not the
    run's and before the lease is given back.
    """

    def handler(number: int, _frame: FrameType | None) -> None:
        arrived(number)

    numbers = dict.fromkeys([*map(int, WATCHED), *also])
    for number in numbers:
        signal.signal(number, handler)

    def ignore() -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)

    return ignore
