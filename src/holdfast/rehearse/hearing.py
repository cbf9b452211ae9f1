"""Whether a run that trains elsewhere has heard a notice: as its journals in the store tell."""

from __future__ import annotations

from holdfast.core.ledger.facts import NoticeFact
from holdfast.journal.live import live_journals
from holdfast.journal.recorded import RecordedLedger
from holdfast.journal.remote import refresh
from holdfast.journal.store import RunFolder


class Hearing:
    """Notices of one run, as they are told; `news` gives those that came since it was last asked.

    A journal reaches the store about a second after it is written, one in a bucket after five.
    """

    def __init__(self, folder: RunFolder) -> None:
        """Nothing is read yet."""
        self.run = folder.name
        self._journal_dir = folder.journal_dir
        self._recorded = RecordedLedger(folder.path, live_journals(folder))
        self._given: set[NoticeFact] = set()

    def news(self) -> list[NoticeFact]:
        """What is new; raises StoreUnavailable."""
        refresh(self._journal_dir)
        self._recorded.refresh()
        told = (fact for fact in self._recorded.ledger.facts() if isinstance(fact, NoticeFact))
        news = [one for one in told if one not in self._given]
        self._given.update(news)
        return news
