"""The pages that the server sends: the parts of a topic in their frame, with the live script.

Each page comes with its content security policy. What the script puts in later is HTML that the
same templates made: they escape every value.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.core.visible import clean
from holdfast.distribution import VERSION
from holdfast.report.page import safe_page, script
from holdfast.report.run_page import SECTIONS
from holdfast.serve.run_look import ALERTS, COURSE, RunLook
from holdfast.serve.shown import KEYS, Shown
from holdfast.serve.topic import TROUBLE

TYPES = "holdfast"  # of the scripts, for trusted types
STYLES = ("run.css", "live.css")


@dataclass(frozen=True, slots=True)
class HtmlPage:
    """What is sent: HTML and its policy."""

    html: str
    policy: str
    status: int = 200


def runs_page(place: str, parts: Mapping[str, str], mark: str, shown: Shown) -> HtmlPage:
    """A page of the list of all runs."""
    names = json.loads(parts.get("order", "[]"))
    return _page(
        "runs.html",
        [script("live.js"), script("runs.js")],
        {"live": {"url": f"/live{shown.address}", "mark": mark}},
        title="Runs",
        shown=shown,
        keys=KEYS,
        place=place,
        names=names,
        parts=parts,
    )


def run_page(look: RunLook, parts: Mapping[str, str], mark: str, url: str) -> HtmlPage:
    """One run; as much as there is of it."""
    view = look.view
    assert view is not None  # noqa: S101 - there are parts
    return _page(
        "live_run.html",
        [script("live.js"), script("course.js")],
        {"course": json.loads(parts[COURSE]), "live": {"url": url, "mark": mark}},
        title=f"{view.name}: {view.state}",
        sections={name: parts.get(name, "") for name in SECTIONS},
        timeline=look.timeline,
        trouble=parts.get(TROUBLE, ""),
        alerts=parts.get(ALERTS, ""),
        made_by=f"Holdfast {VERSION}, live.",
    )


def pair_page(names: tuple[str, str], parts: Mapping[str, str], mark: str, url: str) -> HtmlPage:
    """Two runs side by side."""
    return _page(
        "compare.html",
        [script("live.js")],
        {"live": {"url": url, "mark": mark}},
        title=f"{names[0]} and {names[1]}",
        parts=parts,
    )


def waiting_page(name: str, words: str, mark: str, url: str) -> HtmlPage:
    """A run of which nothing is recorded yet: the page loads anew when there is."""
    return _page(
        "live_wait.html",
        [script("live.js")],
        {"live": {"url": url, "mark": mark, "reload": True}},
        title=name,
        words=words,
    )


def words_page(title: str, words: str, status: int) -> HtmlPage:
    """A sentence: what is not there, or cannot be."""
    return _page("words.html", [], {}, status=status, title=title, words=clean(words))


def login_page(words: str, status: int, to: str = "/") -> HtmlPage:
    """Asks for the token; `to`: the path that was asked for."""
    return _page("login.html", [], {}, status=status, title="Holdfast", words=words, to=to)


def _page(
    template: str, scripts: list[str], blocks: Mapping[str, Any], status: int = 200, **values: Any
) -> HtmlPage:
    html, policy = safe_page(template, scripts, blocks, STYLES, live=TYPES, **values)
    return HtmlPage(html, policy, status)
