"""Whether a run that trains elsewhere has heard a notice: as its journals in the store tell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.core.ledger.facts import Fact, NoticeFact
from holdfast.journal.facts.rank_steps import Ints
from holdfast.journal.facts.run import RunFacts
from holdfast.journal.live import live_journals
from holdfast.journal.remote import refresh
from holdfast.journal.store import RunFolder


class Hearing:
    """Notices of one run, as they are told; `news` gives those that came since it was last asked.

    A journal reaches the store about a second after it is written, one in a bucket after five.
    """

    def __init__(self, folder: RunFolder) -> None:
        """Nothing is read yet."""
        self._folder = folder
        self._found: list[NoticeFact] = []
        self._given: set[NoticeFact] = set()
        self._facts = RunFacts(folder.path, self, live_journals(folder))

    def news(self) -> list[NoticeFact]:
        """What is new; raises StoreUnavailable."""
        refresh(self._folder.journal_dir)
        self._facts.refresh()
        if self._facts.superseded:
            self._facts = RunFacts(self._folder.path, self, live_journals(self._folder))
            self._facts.refresh()
        found, self._found = self._found, []
        news = [one for one in found if one not in self._given]
        self._given.update(news)
        return news

    # --- the sink of the facts ------------------------------------------------------------------

    def add(self, facts: Iterable[Fact]) -> None:
        """Keep the notices."""
        self._found += [fact for fact in facts if isinstance(fact, NoticeFact)]

    def add_steps(
        self, attempt: int, first: Ints, last: Ints, start_ns: Ints, end_ns: Ints
    ) -> None:
        """Not wanted."""

    def add_spans(
        self, attempt: int, kinds: Sequence[str], kind: Ints, start_ns: Ints, end_ns: Ints
    ) -> None:
        """Not wanted."""

    def set_open(
        self, attempt: int, spans: Iterable[tuple[str, int]], step: tuple[int, int] | None
    ) -> None:
        """Not wanted."""
