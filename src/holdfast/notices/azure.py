"""Azure's Scheduled Events: what will be done to this virtual machine, by its metadata service.

One document holds the events of all machines of a set; `DocumentIncarnation` says whether anything
in it is new. As Microsoft's document "Scheduled Events for Linux VMs" has it: the first answer may
take two minutes, an event's date is empty once it has started, and one that is called off is left
out. Events are not approved ahead of their time (`StartRequests`): that is the user's to do.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from holdfast.core.notices import SECOND_NS, Notice, NoticeAction, NoticeState
from holdfast.notices.protocol import Surroundings, Tools, Trouble
from holdfast.notices.said import Memory, Said

if TYPE_CHECKING:
    from holdfast.notices.fetch import Answer, Server

ADDRESS = "http://169.254.169.254"
HEADERS = {"Metadata": "true"}
EVENTS, EVENTS_VERSION = "/metadata/scheduledevents", "2020-07-01"
NAME, NAME_VERSION = "/metadata/instance/compute/name", "2021-02-01"
POLL_S = 2.0  # the shortest warning is 30 s
FIRST_LIMIT_S = 150.0  # the service is switched on by the first question
LIMIT_S = 15.0
MOST_EVENTS = 1000

# What is done, and how long ahead it is told at least.
KINDS = {
    "freeze": (NoticeAction.FREEZE, 15 * 60 * SECOND_NS),
    "reboot": (NoticeAction.REBOOT, 15 * 60 * SECOND_NS),
    "redeploy": (NoticeAction.REBOOT, 10 * 60 * SECOND_NS),  # on another host; its disks are lost
    "preempt": (NoticeAction.TERMINATE, 30 * SECOND_NS),
    "terminate": (NoticeAction.TERMINATE, 5 * 60 * SECOND_NS),  # 5 to 15 min, as the user has set
}
UNKNOWN = (NoticeAction.TERMINATE, None)  # a type of event that is new is taken for the worst


def events(told: Any, name: str) -> dict[str, Said]:
    """The document's events for the machine of that name; raises Trouble for anything else."""
    listed = told.get("Events") if isinstance(told, Mapping) else None
    if not isinstance(listed, list) or not all(isinstance(one, Mapping) for one in listed):
        raise Trouble(f"its answer {str(told)[:40]!r} is no document of scheduled events")
    says = {}
    for event in listed[:MOST_EVENTS]:
        resources = event.get("Resources")
        ours = resources if isinstance(resources, list) else []
        if name.casefold() not in [str(one).casefold() for one in ours]:
            continue
        status = str(event.get("EventStatus", "")).lower()
        if status in ("completed", "canceled"):
            continue
        kind, event_id = str(event.get("EventType", "")), str(event.get("EventId", ""))
        action, lead_ns = KINDS.get(kind.lower(), UNKNOWN)
        has_started = status == "started"
        says[event_id or kind] = Said(
            action,
            ": ".join(filter(None, (kind, str(event.get("Description") or "")))),
            NoticeState.STARTED if has_started else NoticeState.SCHEDULED,
            at_unix_ns=None if has_started else _moment(event.get("NotBefore")),
            lead_ns=None if has_started else lead_ns,
            event_id=event_id,
        )
    return says


def _moment(text: object) -> int | None:
    """A date as Mon, 19 Sep 2016 18:29:47 GMT; None: none is told."""
    if not text:
        return None
    try:
        moment = parsedate_to_datetime(str(text))
    except (ValueError, TypeError, OverflowError):
        raise Trouble(f"{str(text)[:40]!r} is no date") from None
    if moment.tzinfo is None:
        raise Trouble(f"{str(text)[:40]!r} is a date without its zone")
    return int(moment.timestamp()) * SECOND_NS


class Azure:
    """The metadata service of this virtual machine."""

    name = "azure"

    def __init__(self, server: Server, tools: Tools) -> None:
        self._server, self._tools = server, tools
        self._memory = Memory(self.name, tools)
        self._machine = ""
        self._incarnation: object = None  # of the document that was understood last

    async def watch(self) -> AsyncGenerator[Notice, None]:
        """What is scheduled for this machine."""
        while True:
            if not self._machine:
                query = {"api-version": NAME_VERSION, "format": "text"}
                name = (await self._ask(NAME, query, LIMIT_S)).text
                if not name.isprintable() or not 0 < len(name) <= 255:
                    raise Trouble(f"it answers with {name[:40]!r} instead of the machine's name")
                self._machine = name
            limit_s = LIMIT_S if self._incarnation is not None else FIRST_LIMIT_S
            answer = await self._ask(EVENTS, {"api-version": EVENTS_VERSION}, limit_s)
            told = answer.json()
            says = events(told, self._machine)
            incarnation = told.get("DocumentIncarnation")
            if incarnation is None or incarnation != self._incarnation:
                for notice in self._memory.all_news(says, answer.date_unix_ns):
                    yield notice
            self._incarnation = incarnation
            self._tools.answered()
            await self._tools.sleep(POLL_S)

    async def _ask(self, path: str, query: Mapping[str, str], limit_s: float) -> Answer:
        from holdfast.notices.fetch import fetch

        answer = await fetch(self._server, path, query=query, headers=HEADERS, limit_s=limit_s)
        if answer.status != 200:
            raise Trouble(f"{self._server} answers {path} with status {answer.status}")
        return answer


def make(option: str, tools: Tools, around: Surroundings) -> Azure:
    """Of the service's address; the machine's own where none is given."""
    from holdfast.notices.fetch import Server

    del around
    return Azure(Server.at(option or ADDRESS), tools)
