"""Amazon EC2's metadata service (IMDSv2): Spot interruptions, rebalance advice, scheduled events.

Three items are asked for again and again, as Amazon's documents on Spot interruption notices, on
rebalance recommendations and on scheduled events have it; each is answered with 404 while there is
nothing. Every question carries a token, which is fetched by PUT and is good for hours, or until the
service says 401.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.core.durations import SECOND_NS
from holdfast.core.notices.board import NoticeAction, NoticeState
from holdfast.notices.protocol import News, SourceSurroundings, Tools, Trouble, Watch
from holdfast.notices.said import Said, SourceMemory, moment_ns

if TYPE_CHECKING:
    from holdfast.notices.fetch import HttpAnswer, Server

ADDRESS = "http://169.254.169.254"
ROOT = "/latest/meta-data/"
TOKEN = "/latest/api/token"  # noqa: S105 - a path
TOKEN_LIFE_S = 21600  # the longest that may be asked for
SPOT, REBALANCE, SCHEDULED = (
    "spot/instance-action",
    "events/recommendations/rebalance",
    "events/maintenance/scheduled",
)
POLL_S = 5.0  # what Amazon recommends for Spot interruptions
SELDOM_S = 60.0  # of what comes hours ahead, or asks for nothing at once

SPOT_LEAD_NS = 120 * SECOND_NS
OVER = ("completed", "canceled")
SCHEDULED_ACTIONS = {
    "instance-reboot": NoticeAction.REBOOT,
    "system-reboot": NoticeAction.REBOOT,
    # Of the power: the machine is rebooted. Of the network: its ranks lose one another.
    "system-maintenance": NoticeAction.REBOOT,
    "instance-stop": NoticeAction.TERMINATE,
    "instance-retirement": NoticeAction.TERMINATE,
}


def spot_action(text: str) -> dict[str, Said]:
    """`spot/instance-action`: terminate, stop or hibernate, and when; two minutes ahead.

    A hibernation begins at once, and is told with no time to spare.
    """
    item = _object(text, SPOT)
    if not item:
        return {}
    at_unix_ns, action = moment_ns(item.get("time")), str(item.get("action", "terminate"))
    words = f"Spot interruption: {action}"
    return {SPOT: Said(NoticeAction.TERMINATE, words, at_unix_ns=at_unix_ns, lead_ns=SPOT_LEAD_NS)}


def rebalance(text: str) -> dict[str, Said]:
    """`events/recommendations/rebalance`: the machine is more likely to be taken than others."""
    item = _object(text, REBALANCE)
    return (
        {REBALANCE: Said(NoticeAction.REBALANCE, "Spot rebalance recommendation")} if item else {}
    )


def scheduled(text: str, now_unix_ns: int) -> dict[str, Said]:
    """`events/maintenance/scheduled`: a list, with what is over or canceled for a while in it.

    An event stays active after its date, until it is done or called off: it has started then. A
    code that is not known is taken for the worst.
    """
    try:
        events = json.loads(text or "[]")
    except (ValueError, RecursionError):
        raise Trouble(f"{SCHEDULED} says {text[:40]!r} instead of JSON") from None
    if not isinstance(events, list) or not all(isinstance(one, Mapping) for one in events):
        raise Trouble(f"{SCHEDULED} says {text[:40]!r} instead of a list of events")
    says = {}
    for event in events:
        if str(event.get("State", "active")).lower() in OVER:
            continue
        code, event_id = str(event.get("Code", "")), str(event.get("EventId", ""))
        at_unix_ns = moment_ns(event.get("NotBefore"))
        has_come = at_unix_ns is not None and at_unix_ns <= now_unix_ns
        says[event_id or code] = Said(
            SCHEDULED_ACTIONS.get(code, NoticeAction.TERMINATE),
            str(event.get("Description") or code),
            NoticeState.STARTED if has_come else NoticeState.SCHEDULED,
            at_unix_ns=None if has_come else at_unix_ns,
            event_id=event_id,
        )
    return says


def _object(text: str, item: str) -> Mapping[str, Any]:
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, Mapping):
        raise Trouble(f"{item} says {text[:40]!r} instead of an object of JSON")
    return value


class Aws:
    """The metadata service of this instance."""

    name = "aws"

    def __init__(self, server: Server, tools: Tools) -> None:
        self._server, self._tools = server, tools
        self._token, self._renew_ns = "", 0
        self._new_token = asyncio.Lock()  # one question for it is enough for all watches
        self._spot, self._advice, self._scheduled = (
            SourceMemory(self.name, tools) for _ in range(3)
        )

    @property
    def watches(self) -> Sequence[Watch]:
        """The items."""
        return self._watch_spot, self._watch_advice, self._watch_scheduled

    async def _watch_spot(self) -> News:
        while True:
            answer = await self._item(SPOT)
            yield self._spot.all_news(spot_action(answer.text), answer.date_unix_ns)
            await self._tools.sleep(POLL_S)

    async def _watch_advice(self) -> News:
        while True:
            answer = await self._item(REBALANCE)
            yield self._advice.all_news(rebalance(answer.text), answer.date_unix_ns)
            await self._tools.sleep(SELDOM_S)

    async def _watch_scheduled(self) -> News:
        while True:
            answer = await self._item(SCHEDULED)
            now_unix_ns = answer.date_unix_ns or self._tools.clock().unix_ns
            says = scheduled(answer.text, now_unix_ns)
            yield self._scheduled.all_news(says, answer.date_unix_ns)
            await self._tools.sleep(SELDOM_S)

    async def _item(self, item: str) -> HttpAnswer:
        """The item, empty where there is none; with a new token if the old one is refused."""
        from holdfast.notices.fetch import HttpAnswer, fetch

        for is_last in (False, True):
            token = await self._good_token()
            headers = {"X-aws-ec2-metadata-token": token}
            answer = await fetch(self._server, ROOT + item, headers=headers)
            if answer.status == 404:
                return HttpAnswer(404, answer.headers)
            if answer.status == 200:
                return answer
            if answer.status != 401 or is_last:
                break
            if self._token == token:
                self._token = ""
        raise Trouble(f"{self._server} answers {item} with status {answer.status}")

    async def _good_token(self) -> str:
        async with self._new_token:
            if not self._token or self._tools.now_ns() >= self._renew_ns:
                await self._renew()
            return self._token

    async def _renew(self) -> None:
        from holdfast.notices.fetch import fetch

        asked_ns = self._tools.now_ns()
        life = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_LIFE_S)}
        answer = await fetch(self._server, TOKEN, method="PUT", headers=life)
        token = answer.text
        if answer.status != 200 or not (token.isascii() and token.isprintable() and token):
            what = f"status {answer.status}" if answer.status != 200 else "what is no token"
            raise Trouble(f"{self._server} answers the request for a token with {what}")
        self._token, self._renew_ns = token, asked_ns + TOKEN_LIFE_S // 2 * SECOND_NS


def make(option: str, tools: Tools, around: SourceSurroundings) -> Aws:
    """Of the service's address; the instance's own where none is given."""
    from holdfast.notices.fetch import Server

    named = around.environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", "")
    return Aws(Server.at(option or named or ADDRESS), tools)
