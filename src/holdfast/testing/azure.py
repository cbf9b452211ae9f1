"""An emulator of Azure's instance metadata service, as far as Scheduled Events go.

From Microsoft's documents on the instance metadata service (the header `Metadata`, `api-version`)
and on Scheduled Events for Linux VMs (the document, its incarnation, `StartRequests`).
"""

from __future__ import annotations

import json
from email.utils import formatdate
from typing import Any, ClassVar

from holdfast.testing.emulator import Emulator, HttpRequest, Reply


class AzureEmulator(Emulator):
    """One virtual machine, called `machine`, and the events of the set that it is in."""

    name: ClassVar[str] = "emulator of the Azure metadata service"

    def __init__(self) -> None:
        self.machine = "trainer_0"
        self.incarnation = 1
        self.events: dict[str, dict[str, Any]] = {}
        self.approved: list[str] = []
        super().__init__()

    def verb_event(
        self, kind: str, seconds: str = "", event_id: str = "E1", resources: str = ""
    ) -> None:
        """Schedule an event so much later, without a date if that is empty, or change it.

        `resources`: names with commas between them, this machine's if empty.
        """
        at = formatdate(self.calendar() + float(seconds), usegmt=True) if seconds else ""
        self.events[event_id] = {
            "EventId": event_id,
            "EventStatus": "Scheduled",
            "EventType": kind,
            "ResourceType": "VirtualMachine",
            "Resources": (resources or self.machine).split(","),
            "NotBefore": at,
            "Description": "",
            "EventSource": "Platform",
            "DurationInSeconds": -1,
        }
        self.incarnation += 1

    def verb_start(self, event_id: str = "E1") -> None:
        """Begin with it: it has no date any more."""
        self.events[event_id] |= {"EventStatus": "Started", "NotBefore": ""}
        self.incarnation += 1

    def verb_remove(self, event_id: str = "E1") -> None:
        """It is over, or called off."""
        del self.events[event_id]
        self.incarnation += 1

    def answer(self, request: HttpRequest) -> Reply:
        """The machine's name, or the document; POST approves events."""
        if request.headers.get("metadata") != "true" or "x-forwarded-for" in request.headers:
            return Reply('{"error": "Bad request. Required metadata header not specified"}', 400)
        if "api-version" not in request.query:
            return Reply('{"error": "Bad request. api-version was not specified"}', 400)
        if request.path == "/metadata/instance/compute/name":
            return Reply(self.machine)
        if request.path != "/metadata/scheduledevents":
            return Reply('{"error": "Not found"}', 404)
        if request.method == "POST":
            return self._approve(request)
        document = {"DocumentIncarnation": self.incarnation, "Events": list(self.events.values())}
        return Reply(json.dumps(document), 200, {"Content-Type": "application/json"})

    def _approve(self, request: HttpRequest) -> Reply:
        try:
            asked = [one["EventId"] for one in json.loads(request.body)["StartRequests"]]
        except (ValueError, KeyError, TypeError):
            return Reply('{"error": "Bad request. The payload is malformed"}', 400)
        if unknown := [one for one in asked if one not in self.events]:
            return Reply(json.dumps({"error": f"unknown event {unknown[0]}"}), 400)
        self.approved += asked
        for event_id in asked:
            self.do("start", event_id)
        return Reply()
