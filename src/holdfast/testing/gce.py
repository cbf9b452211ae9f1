"""An emulator of Google Compute Engine's metadata server, as far as notices go.

From Google's documents on querying the metadata server (`wait_for_change`, `last_etag`,
`timeout_sec`, the header `Metadata-Flavor`), on host maintenance and on Spot VMs.
"""

from __future__ import annotations

import hashlib
import json
from typing import ClassVar

from holdfast.testing.emulator import Emulator, HttpRequest, Later, Pause, Reply

ROOT = "/computeMetadata/v1/instance/"
DEFAULT_HANG_S = 300.0
# Said with 503 by a machine that has never had a notification.
NONE_YET = '{"error": "no notifications have been received yet, try again later"}'
HEADERS = {"Metadata-Flavor": "Google", "Content-Type": "application/text"}


class GceEmulator(Emulator):
    """Keys of one virtual machine; `values` maps each, from `instance/` on, to its text."""

    name: ClassVar[str] = "emulator of the GCE metadata server"

    def __init__(self) -> None:
        self.values: dict[str, str] = {
            "maintenance-event": "NONE",
            "preempted": "FALSE",
            "upcoming-maintenance": NONE_YET,
            "scheduling/on-host-maintenance": "TERMINATE",
        }
        super().__init__()

    def verb_set(self, key: str, value: str) -> None:
        """Give any key a value."""
        self.values[key] = value

    def verb_unset(self, key: str) -> None:
        """Take a key away: it is answered with 404."""
        self.values.pop(key, None)

    def verb_maintenance_event(self, value: str = "TERMINATE_ON_HOST_MAINTENANCE") -> None:
        """What `maintenance-event` says; NONE ends it."""
        self.values["maintenance-event"] = value

    def verb_preempted(self, value: str = "TRUE") -> None:
        """What `preempted` says."""
        self.values["preempted"] = value

    def verb_upcoming(self, start: str = "", status: str = "PENDING") -> None:
        """What `upcoming-maintenance` says: when the window opens (RFC 3339); nothing without."""
        window = {
            "can_reschedule": "false",
            "maintenance_status": status,
            "type": "SCHEDULED",
            "window_start_time": start,
        }
        self.values["upcoming-maintenance"] = json.dumps(window) if start else "{}"

    def verb_stop_state(self, value: str = "PENDING_STOP") -> None:
        """What `shutdown-details/stop-state` says."""
        self.values["shutdown-details/stop-state"] = value

    def answer(self, request: HttpRequest) -> Reply | Later:
        """A key's value; with `wait_for_change` when it is another than the one known."""
        if request.headers.get("metadata-flavor") != "Google":
            return Reply("Missing Metadata-Flavor:Google header.", 403)
        key = request.path.removeprefix(ROOT)
        if request.query.get("wait_for_change") == "true":
            known = request.query.get("last_etag", self._etag(key))
            limit_s = float(request.query.get("timeout_sec", DEFAULT_HANG_S))
            changed = Pause(lambda: self._etag(key) != known, limit_s)
            return Later(changed, lambda: self._value(key))
        return self._value(key)

    def _value(self, key: str) -> Reply:
        if key not in self.values:
            return Reply("404: not found", 404, HEADERS)
        if self.values[key] == NONE_YET:
            return Reply(NONE_YET, 503, HEADERS)
        return Reply(self.values[key], 200, {**HEADERS, "ETag": self._etag(key)})

    def _etag(self, key: str) -> str:
        return hashlib.sha256(self.values.get(key, "\0").encode()).hexdigest()[:16]
