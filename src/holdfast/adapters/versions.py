"""Which versions of a framework an adapter was tried with, said where another one is found."""

from __future__ import annotations

import re

from holdfast.session.say import say


def check_version(framework: str, found: str, tried: tuple[str, str]) -> bool:
    """Whether `found` is one from the oldest to the newest that was tried; if not, that is said.

    Only as many numbers count as `tried` has: with a newest of 3.15, 3.15.2 is known.
    """
    oldest, newest = tried
    if _numbers(found, oldest) < _numbers(oldest, oldest):
        state = "older"
    elif _numbers(found, newest) > _numbers(newest, newest):
        state = "newer"
    else:
        return True
    known = newest if oldest == newest else f"{oldest} to {newest}"
    say(
        f"{framework} {found} is {state} than what Holdfast's adapter was tried with ({known}): "
        "kill a short run once, and compare its end with that of one that was left alone"
    )
    return False


def _numbers(version: str, like: str) -> list[int]:
    count = len(like.split("."))
    return [int(number) for number in re.findall(r"\d+", version)[:count]]
