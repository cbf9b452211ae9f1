"""What part of a long list somebody looks at: which runs, in which order, and which page of them.

It stands in the address, so that it can be linked, and works without scripts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from holdfast.core.alerts import LIVE_STATES
from holdfast.core.ledger.summary import RunSummary
from holdfast.runs.state import STATES

PAGE_ROWS = 100
MOST_CHARS = 200  # of a search
MOST_PAGES = 1_000_000

KEYS: Mapping[str, Callable[[RunSummary], Any]] = {
    "run": lambda run: run.name,
    "state": lambda run: STATES.index(run.state),
    "goodput": lambda run: run.spent().goodput,
    "step": lambda run: run.step,
    "saved": lambda run: run.saved_step,
    "attempts": lambda run: run.attempts,
    "last seen": lambda run: run.seen_unix_ns,
}


@dataclass(frozen=True, slots=True)
class Shown:
    """`by`: a key of `KEYS`; "": what is under way first, then the newest. Pages count from 1."""

    words: str = ""
    by: str = ""
    is_down: bool = False
    page: int = 1

    @classmethod
    def of(cls, asked: Mapping[str, str]) -> Shown:
        """What an address asks for; what it cannot mean is left out."""
        by, page = asked.get("by", ""), asked.get("page", "")
        is_number = page.isascii() and page.isdigit() and len(page) <= len(str(MOST_PAGES))
        return cls(
            " ".join(asked.get("q", "")[:MOST_CHARS].lower().split()),
            by if by in KEYS else "",
            by in KEYS and asked.get("down") == "1",
            max(1, int(page)) if is_number else 1,
        )

    @property
    def address(self) -> str:
        """The part of an address that asks for it."""
        asked = {"q": self.words, "by": self.by, "down": "1" if self.is_down else "",
                 "page": str(self.page) if self.page > 1 else ""}  # fmt: skip
        query = urlencode({key: value for key, value in asked.items() if value})
        return f"?{query}" if query else ""

    def sorted_by(self, key: str) -> Shown:
        """The first page by that key; of the one that it is by now, the other way round."""
        return replace(self, by=key, is_down=self.by == key and not self.is_down, page=1)

    def on(self, page: int) -> Shown:
        """Another page of the same."""
        return replace(self, page=page)

    def chosen(self, runs: Sequence[RunSummary]) -> list[RunSummary]:
        """All of them that it is about, in its order; runs without the value come last."""
        found = [run for run in runs if self._has(run)]
        if not self.by:
            return sorted(found, key=_place)
        key = KEYS[self.by]
        found.sort(key=lambda run: run.name)
        known = [run for run in found if key(run) is not None]
        known.sort(key=key, reverse=self.is_down)
        return known + [run for run in found if key(run) is None]

    def _has(self, run: RunSummary) -> bool:
        text = f"{run.name} {run.state} {run.why} {run.holder or ''}".lower()
        return all(word in text for word in self.words.split())


def _place(run: RunSummary) -> tuple[int, int, str]:
    """What is under way first, by name; then the newest."""
    if run.state in LIVE_STATES:
        return 0, 0, run.name
    return 1, -(run.seen_unix_ns or 0), run.name
