"""An emulator of Amazon EC2's instance metadata service, version 2, as far as notices go.

From Amazon's documents on IMDSv2 (a token by PUT, its life, 400, 401, 404), on Spot interruption
notices, on rebalance recommendations and on scheduled events.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, ClassVar

from holdfast.testing.emulator import Emulator, HttpRequest, Reply

ROOT = "/latest/meta-data/"
MOST_LIFE_S = 21600


class AwsEmulator(Emulator):
    """Items of one instance; `values` maps each, from `meta-data/` on, to its text."""

    name: ClassVar[str] = "emulator of the EC2 metadata service"

    def __init__(self) -> None:
        self.values: dict[str, str] = {"instance-life-cycle": "spot"}
        self.events: dict[str, dict[str, str]] = {}
        self.tokens: dict[str, float] = {}  # each with the moment at which its life ends
        super().__init__()

    def verb_spot(self, action: str = "terminate", seconds: str = "120") -> None:
        """Interrupt the instance so much later; `none` takes it back."""
        at = datetime.fromtimestamp(self.calendar() + float(seconds), UTC)
        item = {"action": action, "time": at.strftime("%Y-%m-%dT%H:%M:%SZ")}
        self._set("spot/instance-action", {} if action == "none" else item)

    def verb_rebalance(self, is_so: str = "yes") -> None:
        """Recommend to rebalance, or no more (`no`)."""
        item = {
            "noticeTime": datetime.fromtimestamp(self.calendar(), UTC).strftime(
                "%Y-%m-%dT%H:%M:%SZ"
            )
        }
        self._set("events/recommendations/rebalance", item if is_so == "yes" else {})

    def verb_scheduled(
        self, code: str, seconds: str, event_id: str = "instance-event-1", state: str = "active"
    ) -> None:
        """Schedule an event so much later, or change the one of that id."""
        begin, end = (self.calendar() + float(seconds) + more for more in (0, 7200))
        mark = {"completed": "[Completed] ", "canceled": "[Canceled] "}.get(state, "")
        self.events[event_id] = {
            "NotBefore": _date(begin),
            "Code": code,
            "Description": f"{mark}scheduled {code}",
            "EventId": event_id,
            "NotAfter": _date(end),
            "State": state,
        }
        self._set("events/maintenance/scheduled", list(self.events.values()))

    def verb_rotate(self) -> None:
        """All tokens are refused from now on."""
        self.tokens.clear()

    def _set(self, item: str, value: Any) -> None:
        if value:
            self.values[item] = json.dumps(value)
        else:
            self.values.pop(item, None)

    def answer(self, request: HttpRequest) -> Reply:
        """A token, or an item's text for who has one."""
        if request.path == "/latest/api/token":
            return self._token(request)
        token = request.headers.get("x-aws-ec2-metadata-token", "")
        if self.tokens.get(token, 0) < self.elapsed():
            return Reply("Unauthorized", 401)
        item = request.path.removeprefix(ROOT)
        if item not in self.values:
            return Reply("Not Found", 404)
        return Reply(self.values[item], 200, {"Content-Type": "text/plain"})

    def _token(self, request: HttpRequest) -> Reply:
        life = request.headers.get("x-aws-ec2-metadata-token-ttl-seconds", "")
        if request.method != "PUT" or "x-forwarded-for" in request.headers:
            return Reply("Forbidden", 403)
        if not life.isdecimal() or not 1 <= int(life) <= MOST_LIFE_S:
            return Reply("Bad Request", 400)
        token = f"token-{len(self.requests)}=="
        self.tokens[token] = self.elapsed() + int(life)
        return Reply(token, 200, {"X-aws-ec2-metadata-token-ttl-seconds": life})


def _date(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).strftime("%d %b %Y %H:%M:%S GMT")
