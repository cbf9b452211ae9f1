"""Google Compute Engine's metadata server: maintenance of the host, preemption, graceful stops.

Four keys are watched, each by a request that hangs until its value changes (`wait_for_change`,
`last_etag`), as Google's documents on the metadata server, on host maintenance and on Spot VMs have
it. What they say when they say nothing differs by key and by year: `NONE`, `FALSE`, `UNSPECIFIED`,
an empty text, `{}`, an object with `error`, 404, or 503 with "no notifications have been received
yet", which is what `upcoming-maintenance` says on a machine that has never had any.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.core.durations import SECOND_NS
from holdfast.core.notices.board import NoticeAction, NoticeState
from holdfast.notices.protocol import News, SourceSurroundings, Tools, Trouble, Watch
from holdfast.notices.said import Said, SourceMemory, moment_ns

if TYPE_CHECKING:
    from holdfast.notices.fetch import HttpAnswer, Server

ADDRESS = "http://169.254.169.254"  # the same for every machine; no name is looked up
ROOT = "/computeMetadata/v1/instance/"
HEADERS = {"Metadata-Flavor": "Google"}
HANG_S = 60  # how long the server may keep a request until something changes
PATIENCE_S = 15.0  # and how much longer its answer may take
ABSENT_S = 5.0  # until a key that is not there is looked for again
HASTE_S = 1.0  # between requests to a server that does not wait for a change
BURST = 10  # changes within a second each, after which it counts as one that does not wait
GAP_NS = 2 * SECOND_NS  # between two questions that may be left out of account

ALWAYS_THERE = "maintenance-event"  # GKE's own metadata server, for pods, has none of these keys
MAINTENANCE_LEAD_NS = 60 * SECOND_NS
GPU_MAINTENANCE_LEAD_NS = 3600 * SECOND_NS
PREEMPTION_LEAD_NS = 30 * SECOND_NS
STOP_LEAD_NS = 30 * SECOND_NS  # a graceful stop may leave more, which no key of these says
NOTHING = ("", "NONE", "FALSE", "UNSPECIFIED", "STOP_STATE_UNSPECIFIED", "{}", "NULL")


def is_nothing(text: str) -> bool:
    """Whether a key's text, of whichever spelling, says that nothing is to come."""
    if text.strip().strip('"').upper() in NOTHING:
        return True
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return not value or (isinstance(value, Mapping) and "error" in value)


def is_none_yet(status: int, text: str) -> bool:
    """Whether an answer is the one of a machine that has never had a notice of that kind."""
    return status == 503 and is_nothing(text) and "no notification" in text.lower()


def maintenance_event(text: str, *, lead_ns: int = MAINTENANCE_LEAD_NS) -> Said | None:
    """`maintenance-event`: MIGRATE_… or TERMINATE_ON_HOST_MAINTENANCE (once SHUTDOWN_…)."""
    word = text.strip().strip('"').upper()
    if is_nothing(text):
        return None
    if word.startswith("MIGRATE"):
        return Said(NoticeAction.LIVE_MIGRATION, word, lead_ns=MAINTENANCE_LEAD_NS)
    if word.startswith(("TERMINATE", "SHUTDOWN")):
        return Said(NoticeAction.TERMINATE, word, lead_ns=lead_ns)
    raise Trouble(f"maintenance-event says {text[:40]!r}, which is no word that is known")


def preempted(text: str) -> Said | None:
    """`preempted`: TRUE, and the machine is gone about 30 s later."""
    if is_nothing(text):
        return None
    if text.strip().strip('"').upper() != "TRUE":
        raise Trouble(f"preempted says {text[:40]!r}, which is neither TRUE nor FALSE")
    return Said(NoticeAction.TERMINATE, "preempted", lead_ns=PREEMPTION_LEAD_NS)


def stop_state(text: str) -> Said | None:
    """`shutdown-details/stop-state`: PENDING_STOP, when a graceful stop has begun."""
    if is_nothing(text):
        return None
    if text.strip().strip('"').upper() not in ("PENDING_STOP", "STOPPING"):
        raise Trouble(f"stop-state says {text[:40]!r}, which is no state that is known")
    return Said(NoticeAction.TERMINATE, "the machine is being stopped", lead_ns=STOP_LEAD_NS)


def upcoming_maintenance(text: str, now_unix_ns: int = 0, *, action: NoticeAction) -> Said | None:
    """`upcoming-maintenance`: an object with the window, keys in camel or in snake case.

    `ONGOING` may stand until the window ends, also after the machine has come back from it: it says
    that the maintenance has started, and not when it comes. So does a window that has opened, for
    it may be hours long: `maintenance-event` then tells of the start.
    """
    if is_nothing(text):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise Trouble(f"upcoming-maintenance says {text[:40]!r} instead of JSON") from None
    fields = _fields(value)
    status = str(fields.get("maintenancestatus", "PENDING")).upper()
    if not fields or status == "COMPLETE":
        return None
    kind = str(fields.get("type", "")).lower()
    words = " ".join(filter(None, (kind, "maintenance")))
    begins = fields.get("windowstarttime")
    is_told = isinstance(begins, str) and begins
    at_unix_ns = moment_ns(begins) if is_told else None
    if status == "ONGOING" or (at_unix_ns is not None and at_unix_ns <= now_unix_ns):
        return Said(action, words, NoticeState.STARTED)
    return Said(action, words, at_unix_ns=at_unix_ns)


def _fields(value: Any) -> dict[str, Any]:
    """An object's fields by names without case, `_`, `-` and blanks; that of its one inner object.

    Raises Trouble for anything but an object.
    """
    if not isinstance(value, Mapping):
        raise Trouble(f"upcoming-maintenance says {str(value)[:40]!r} instead of an object")
    if len(value) == 1 and isinstance(inner := next(iter(value.values())), Mapping):
        return _fields(inner)
    return {"".join(c for c in str(key).lower() if c.isalnum()): it for key, it in value.items()}


class Gce:
    """The metadata server of this machine."""

    name = "gce"

    def __init__(self, server: Server, tools: Tools, *, has_gpu: bool) -> None:
        self._server, self._tools = server, tools
        self._lead_ns = GPU_MAINTENANCE_LEAD_NS if has_gpu else MAINTENANCE_LEAD_NS
        self._etags: dict[str, str] = {}
        self._seen_ns: dict[str, int] = {}  # when the key was last known
        self._memory = SourceMemory(self.name, tools)
        self._policy: NoticeAction | None = None  # what maintenance does; None: not told yet

    @property
    def watches(self) -> Sequence[Watch]:
        """The keys."""
        return (
            partial(self._key, ALWAYS_THERE, self._maintenance_event),
            partial(self._key, "preempted", lambda text, _: preempted(text)),
            partial(self._key, "shutdown-details/stop-state", lambda text, _: stop_state(text)),
            partial(self._key, "upcoming-maintenance", self._upcoming_maintenance, is_json=True),
        )

    def _maintenance_event(self, text: str, _: int) -> Said | None:
        return maintenance_event(text, lead_ns=self._lead_ns)

    def _upcoming_maintenance(self, text: str, now_unix_ns: int) -> Said | None:
        action = self._policy or NoticeAction.TERMINATE
        return upcoming_maintenance(text, now_unix_ns, action=action)

    async def _learn_policy(self) -> None:
        """What maintenance does to the machine; where that is not told it is taken to end it."""
        with contextlib.suppress(Trouble):
            answer = await self._ask("scheduling/on-host-maintenance", {})
            moves = answer.status == 200 and answer.text.upper() == "MIGRATE"
            self._policy = NoticeAction.LIVE_MIGRATION if moves else NoticeAction.TERMINATE

    async def _key(
        self, key: str, understood: Callable[[str, int], Said | None], *, is_json: bool = False
    ) -> News:
        form = {"alt": "json", "recursive": "true"} if is_json else {"alt": "text"}
        quick = 0
        while True:
            if is_json and self._policy is None:
                await self._learn_policy()
            etag = self._etags.get(key)
            change = {"wait_for_change": "true", "timeout_sec": str(HANG_S)}
            query = form | (change | {"last_etag": etag} if etag else {})
            asked_ns = self._tools.now_ns()
            answer = await self._ask(key, query)
            is_there = answer.status == 200
            now = answer.headers.get("etag", "") if is_there else ""
            now_unix_ns = answer.date_unix_ns or self._tools.clock().unix_ns
            said = understood(answer.text if is_there else "", now_unix_ns)
            # It may have changed while nobody asked; a request that waits is answered at once.
            gap_ns = asked_ns - self._seen_ns.get(key, asked_ns)
            unseen_ns = gap_ns if gap_ns > GAP_NS else 0
            yield self._memory.news(key, said, answer.date_unix_ns, unseen_ns=unseen_ns)
            self._etags[key] = now  # only now: what was not understood is read again
            self._seen_ns[key] = self._tools.now_ns()
            quick = quick + 1 if self._tools.now_ns() - asked_ns < SECOND_NS else 0
            if not now:
                await self._tools.sleep(ABSENT_S)
            elif quick and (now == etag or quick > BURST):
                await self._tools.sleep(HASTE_S)

    async def _ask(self, key: str, query: Mapping[str, str]) -> HttpAnswer:
        from holdfast.notices.fetch import fetch

        waits_s = HANG_S if "wait_for_change" in query else 0
        answer = await fetch(
            self._server,
            ROOT + key,
            query=query,
            headers=HEADERS,
            limit_s=waits_s + PATIENCE_S,
        )
        if answer.status == 404 and key == ALWAYS_THERE:
            raise Trouble(
                f"{self._server} does not tell of this machine's maintenance and preemption (404), "
                "as in a pod with Workload Identity: give it hostNetwork, or listen to kubernetes"
            )
        if answer.headers.get("metadata-flavor") != "Google":
            raise Trouble(f"{self._server} is no metadata server of Google's")
        if answer.status not in (200, 404) and not is_none_yet(answer.status, answer.text):
            raise Trouble(f"{self._server} answers {key} with status {answer.status}")
        return answer


def make(option: str, tools: Tools, around: SourceSurroundings) -> Gce:
    """Of the server's address; the machine's own where none is given."""
    from holdfast.notices.fetch import Server

    named = around.environment.get("GCE_METADATA_HOST", "")
    address = option or (f"http://{named}" if named else ADDRESS)
    return Gce(Server.at(address), tools, has_gpu=around.exists("/dev/nvidia[0-9]*"))
