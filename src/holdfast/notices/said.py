"""What a vendor says of one thing, and what is new in it: for all sources that are asked again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from email.utils import parsedate_to_datetime

from holdfast.core.durations import SECOND_NS
from holdfast.core.notices.board import Notice, NoticeAction, NoticeState, Scope
from holdfast.notices.protocol import Tools, Trouble


@dataclass(frozen=True, slots=True)
class Said:
    """One thing, in the vendor's own times: so the same thing said again is equal to it.

    `at_unix_ns`: when the host is disturbed, by the vendor's calendar; None: not told. `lead_ns`:
    how long ahead the vendor promises to tell. `event_id`: its own name of the event.
    """

    action: NoticeAction
    words: str
    state: NoticeState = NoticeState.SCHEDULED
    at_unix_ns: int | None = None
    lead_ns: int | None = None
    event_id: str = ""
    scope: Scope = Scope.VM


def moment_ns(text: object) -> int | None:
    """A date in ISO 8601, or as 20 Nov 2026 21:00:40 GMT, in unix ns; None: none is told.

    Raises Trouble for what is no date with its zone.
    """
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        try:
            moment = parsedate_to_datetime(str(text))
        except (ValueError, TypeError, OverflowError):
            raise Trouble(f"{str(text)[:40]!r} is no date") from None
    if moment.tzinfo is None:
        raise Trouble(f"{str(text)[:40]!r} is a date without its zone")
    return int(moment.timestamp()) * SECOND_NS


class SourceMemory:
    """What one source has told so far, by topic."""

    def __init__(self, source: str, tools: Tools) -> None:
        self._source, self._tools = source, tools
        self._told: dict[str, tuple[Said, Notice]] = {}

    def news(
        self,
        topic: str,
        said: Said | None,
        their_unix_ns: int | None = None,
        *,
        unseen_ns: int = 0,
    ) -> list[Notice]:
        """The notice of what is new about a topic; `said` None: nothing is said of it any more.

        `their_unix_ns`: the vendor's calendar now, if its answer has told it. `unseen_ns`: for how
        long nobody could look, until now.
        """
        before, known = self._told.get(topic, (None, None))
        if said == before:
            return []
        now_ns = self._tools.now_ns()
        if said is None:
            del self._told[topic]
            gone = NoticeState.WITHDRAWN
            return [replace(known, state=gone, received_ns=now_ns)] if known else []
        at_ns = None
        if said.at_unix_ns is not None:
            at_ns = self._tools.on_our_clock(said.at_unix_ns, their_unix_ns)
        notice = Notice(
            self._source,
            said.action,
            now_ns,
            said.state,
            said.event_id,
            topic,
            deadline_ns=at_ns,
            lead_ns=said.lead_ns,
            scope=said.scope,
            words=said.words,
            unseen_ns=unseen_ns if said.lead_ns is not None else 0,
        )
        self._told[topic] = said, notice
        return [notice]

    def all_news(
        self,
        says: Mapping[str, Said],
        their_unix_ns: int | None = None,
        *,
        unseen_ns: int = 0,
    ) -> list[Notice]:
        """What is new in all that is said now: what is missing from it is withdrawn."""
        gone = [topic for topic in self._told if topic not in says]
        notices = [notice for topic in gone for notice in self.news(topic, None)]
        for topic, said in says.items():
            notices += self.news(topic, said, their_unix_ns, unseen_ns=unseen_ns)
        return notices
