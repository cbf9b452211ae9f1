"""`holdfast run` that tells on stderr whenever its loop's own thread touches the run store.

    python loop_spy.py run ...

A store that hangs must not keep the loop from answering: what it needs of the store is asked of
another thread. In the end the touches of all other threads are counted, so that a spy who sees
nothing is noticed.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable
from typing import Any

from holdfast.agent.supervisor import Supervisor
from holdfast.cli.main import main

STORE = os.environ["HOLDFAST_STORE"]
LOOKS = ("stat", "lstat", "access", "statvfs")  # which raise no audit event
seen: Counter[bool] = Counter()
loops: set[int] = set()  # the loop's thread, while it is in a turn


def touches(what: str, args: tuple[Any, ...]) -> None:
    """Tell it, if a path in the store is among them."""
    for one in args:
        path = os.fspath(one) if isinstance(one, os.PathLike) else one
        if not isinstance(path, str) or not (path + "/").startswith(STORE + "/"):
            continue
        in_loop = threading.get_ident() in loops
        seen[in_loop] += 1
        if in_loop:
            stack = "".join(traceback.format_stack(limit=12)[:-2])
            sys.stderr.write(f"the loop touches the store: {what} {path}\n{stack}")


def told(what: str, do: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, which tells what it looks at."""

    @functools.wraps(do)
    def look(*args: Any, **options: Any) -> Any:
        touches(what, args)
        return do(*args, **options)

    return look


def in_turn(do: Callable[..., Any]) -> Callable[..., Any]:
    """The same method of the supervisor, during which its thread is the loop's."""

    @functools.wraps(do)
    def turn(*args: Any, **options: Any) -> Any:
        me = threading.get_ident()
        is_outer = me not in loops
        loops.add(me)
        try:
            return do(*args, **options)
        finally:
            if is_outer:
                loops.discard(me)

    return turn


for name in LOOKS:
    setattr(os, name, told(name, getattr(os, name)))
for name in ("_turn", "tell"):
    setattr(Supervisor, name, in_turn(getattr(Supervisor, name)))
sys.addaudithook(touches)
try:
    main(sys.argv[1:])
finally:
    sys.stderr.write(f"other threads touched the store {seen[False]} times\n")
