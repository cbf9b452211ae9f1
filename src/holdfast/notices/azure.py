"""Azure's Scheduled Events: what will be done to this virtual machine, by its metadata service.

One document holds the events of all machines of a set; `DocumentIncarnation` says whether anything
in it is new. As Microsoft's document "Scheduled Events for Linux VMs" has it: the first answer may
take two minutes, an event's date is empty once it has started, and one that is called off is left
out.

An event may be approved ahead of its time (`StartRequests`), which lets it happen to all machines
that it names. So one that names others too is never approved from here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.core.durations import SECOND_NS
from holdfast.core.notices.board import Notice, NoticeAction, NoticeState
from holdfast.notices.protocol import News, SourceSurroundings, Tools, Trouble, Watch
from holdfast.notices.said import Said, SourceMemory, moment_ns

if TYPE_CHECKING:
    from holdfast.notices.fetch import HttpAnswer, Server

ADDRESS = "http://169.254.169.254"
HEADERS = {"Metadata": "true"}
EVENTS, EVENTS_VERSION = "/metadata/scheduledevents", "2020-07-01"
NAME, NAME_VERSION = "/metadata/instance/compute/name", "2021-02-01"
POLL_S = 2.0  # the shortest warning is 30 s
FIRST_LIMIT_S = 150.0  # the service is switched on by the first question
LIMIT_S = 15.0
MOST_EVENTS = 1000
MACHINE = re.compile(r"[\w.-]{1,255}")

# What is done, and how long ahead it is told at least.
KINDS = {
    "freeze": (NoticeAction.FREEZE, 15 * 60 * SECOND_NS),
    "reboot": (NoticeAction.REBOOT, 15 * 60 * SECOND_NS),
    "redeploy": (NoticeAction.REBOOT, 10 * 60 * SECOND_NS),  # on another host; its disks are lost
    "preempt": (NoticeAction.TERMINATE, 30 * SECOND_NS),
    "terminate": (NoticeAction.TERMINATE, 5 * 60 * SECOND_NS),  # 5 to 15 min, as the user has set
}
UNKNOWN = (NoticeAction.TERMINATE, None)  # a type of event that is new is taken for the worst


def events(document: Any, name: str) -> dict[str, Said]:
    """The document's events for the machine of that name; raises Trouble for anything else."""
    listed = document.get("Events") if isinstance(document, Mapping) else None
    if not isinstance(listed, list) or not all(isinstance(one, Mapping) for one in listed):
        raise Trouble(f"its answer {str(document)[:40]!r} is no document of scheduled events")
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
            at_unix_ns=None if has_started else moment_ns(event.get("NotBefore") or None),
            lead_ns=None if has_started else lead_ns,
            event_id=event_id,
        )
    return says


def may_approve(document: Any, name: str, event_id: str) -> tuple[bool, str]:
    """Whether the machine of that name may let an event of the document begin, and why."""
    events(document, name)  # which raises Trouble for what is no document
    found = [one for one in document["Events"] if event_id and one.get("EventId") == event_id]
    if not found:
        return False, "the event is not scheduled any more: there is nothing to approve"
    (event,) = found[:1]
    if str(event.get("EventStatus", "")).lower() != "scheduled":
        return False, "the event has begun: there is nothing to approve"
    resources = event.get("Resources")
    named = [str(one) for one in resources] if isinstance(resources, list) else []
    if [one.casefold() for one in named] != [name.casefold()]:
        others = ", ".join(one for one in named[:5] if one.casefold() != name.casefold())
        return False, f"the event is not approved: it is about {others or 'nobody'} as well"
    return True, f"event {event_id} is approved: it need not wait for its time"


class Azure:
    """The metadata service of this virtual machine."""

    name = "azure"

    def __init__(self, server: Server, tools: Tools) -> None:
        self._server, self._tools = server, tools
        self._memory = SourceMemory(self.name, tools)
        self._machine = ""
        self._incarnation: object = None  # of the document that was understood last

    @property
    def watches(self) -> Sequence[Watch]:
        """What is scheduled for this machine."""
        return (self._watch,)

    async def _watch(self) -> News:
        while True:
            machine = await self._name()
            limit_s = LIMIT_S if self._incarnation is not None else FIRST_LIMIT_S
            answer = await self._ask(EVENTS, {"api-version": EVENTS_VERSION}, limit_s)
            document = answer.json()
            says = events(document, machine)
            incarnation = document.get("DocumentIncarnation")
            is_new = incarnation is None or incarnation != self._incarnation
            yield self._memory.all_news(says, answer.date_unix_ns) if is_new else []
            self._incarnation = incarnation
            await self._tools.sleep(POLL_S)

    async def settled(self, notice: Notice) -> str:
        """Approve the event, if it is scheduled for this machine and no other."""
        machine = await self._name()
        document = (await self._ask(EVENTS, {"api-version": EVENTS_VERSION}, LIMIT_S)).json()
        may, words = may_approve(document, machine, notice.event_id)
        if may:
            body = json.dumps({"StartRequests": [{"EventId": notice.event_id}]}).encode()
            await self._ask(EVENTS, {"api-version": EVENTS_VERSION}, LIMIT_S, body)
        return words

    async def _name(self) -> str:
        """The machine's, as events name it."""
        if not self._machine:
            query = {"api-version": NAME_VERSION, "format": "text"}
            name = (await self._ask(NAME, query, LIMIT_S)).text
            if not MACHINE.fullmatch(name):  # a page of HTML, for one
                raise Trouble(f"it answers with {name[:40]!r} instead of the machine's name")
            self._machine = name
        return self._machine

    async def _ask(
        self, path: str, query: Mapping[str, str], limit_s: float, body: bytes = b""
    ) -> HttpAnswer:
        from holdfast.notices.fetch import fetch

        method = "POST" if body else "GET"
        answer = await fetch(
            self._server,
            path,
            method=method,
            query=query,
            headers=HEADERS,
            body=body,
            limit_s=limit_s,
        )
        if answer.status != 200:
            raise Trouble(f"{self._server} answers {path} with status {answer.status}")
        return answer


def make(option: str, tools: Tools, around: SourceSurroundings) -> Azure:
    """Of the service's address; the machine's own where none is given."""
    from holdfast.notices.fetch import Server

    del around
    return Azure(Server.at(option or ADDRESS), tools)
