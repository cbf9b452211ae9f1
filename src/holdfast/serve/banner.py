"""Alerts as a banner: the same above the list and above a run's page."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.alerts import Alert, AlertKind
from holdfast.core.visible import clean
from holdfast.report.page import environment
from holdfast.report.words import duration

WORDS_CHARS = 140
MOST = 12
S = 1_000_000_000


def banner(alerts: Sequence[Alert], *, linked: bool) -> str:
    """As HTML, in this order; `linked`: each leads to its run. Empty where there is none."""
    shown = [
        {
            "run": clean(one.run) if linked else "",
            "kind": one.kind.value,
            "words": short(clean(one.words), WORDS_CHARS),
            "time": time_of(one),
        }
        for one in alerts[:MOST]
    ]
    macros = environment().get_template("runs_parts.html").module
    return str(macros.alerts(shown, max(0, len(alerts) - MOST))).strip()  # type: ignore[attr-defined]


def short(text: str, most: int) -> str:
    """The text, cut where it is too long."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def time_of(alert: Alert) -> str:
    """What its time says: a countdown, or for how long already."""
    if alert.kind is AlertKind.NOTICE:
        if alert.ns is None:
            return "no time is given"
        return f"in {_whole(alert.ns)}" if alert.ns > 0 else "its time has come"
    if alert.ns is None:
        return ""
    ago = _whole(alert.ns)
    return f"{ago} ago" if alert.kind is AlertKind.ENDED else f"for {ago}"


def _whole(ns: int) -> str:
    """In whole seconds: a countdown is looked at about once in one."""
    return f"{ns // S} s" if ns < 60 * S else duration(ns // S * S)
