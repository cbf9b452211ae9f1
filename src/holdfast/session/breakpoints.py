"""What `breakpoint()` does in a rank of `holdfast run`: `PYTHONBREAKPOINT` names it.

A rank has no keyboard, so a debugger would end it at its first prompt. The training goes on.
"""

from __future__ import annotations

import sys

_passed: set[str] = set()


def pass_over(*_arguments: object, **_options: object) -> None:
    """Say once for each place what to do instead."""
    frame = sys._getframe(1)
    place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
    if place not in _passed and sys.stderr is not None:
        _passed.add(place)
        print(
            f"holdfast: breakpoint() at {place} was passed over: a process under holdfast run has "
            f"no keyboard; to debug it, start the script by itself: python {sys.argv[0]} …",
            file=sys.stderr,
        )
