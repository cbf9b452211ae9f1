"""Cloud TPU's own view of a node, by its API: state, health, coming maintenance, symptoms.

The machine's metadata server (`gce`) tells sooner of its own maintenance and preemption. This
source tells of the whole slice, also where no metadata server is in reach. It needs Google's client
library (`holdfast-ml[gcp]`) and credentials that may look at the node.
"""

from __future__ import annotations

import asyncio
import importlib
import re
from collections.abc import Sequence
from typing import Any

from holdfast.config import ask_metadata_directly
from holdfast.core.notices.board import NoticeAction, NoticeState, Scope
from holdfast.errors import ConfigurationError, needs_extra
from holdfast.notices.protocol import News, SourceSurroundings, Tools, Trouble, Watch
from holdfast.notices.said import Said, SourceMemory, moment_ns

API = "google.cloud.tpu_v2alpha1"  # version 2 does not tell of coming maintenance
OPTION = re.compile(r"(projects/[^/@]+/locations/[^/@]+/nodes/[^/@]+)(?:@([^@]+))?")
POLL_S = 30.0
CALL_LIMIT_S = 20.0
WORDS_CHARS = 200
_FRACTION = re.compile(r"\.\d+")

ENDING = {
    "STOPPING": "the node is being stopped",
    "STOPPED": "the node is stopped",
    "DELETING": "the node is being deleted",
    "PREEMPTED": "the node is preempted",
    "TERMINATED": "the node is terminated",
}


def node_says(node: Any, now_unix_ns: int) -> dict[str, Said]:
    """What a node of the API announces; a state or a health that is fine says nothing.

    Maintenance that is ongoing, or whose window has opened, has started. A symptom of the runtime
    or of the interconnect ends nothing by itself: it is worth a save.
    """
    says = {}
    if words := ENDING.get(_word(node.state)):
        says["state"] = _ends(words)
    window = node.upcoming_maintenance
    begins = window.window_start_time if window else ""
    at_unix_ns = moment_ns(_FRACTION.sub("", begins)) if begins else None
    is_ongoing = bool(window) and _word(window.maintenance_status) == "ONGOING"
    if _word(node.health) == "UNHEALTHY_MAINTENANCE" or is_ongoing:
        says["maintenance"] = _ends(_line(node.health_description) or "maintenance of the slice")
    elif at_unix_ns is not None and at_unix_ns <= now_unix_ns:
        says["maintenance"] = _ends("maintenance of the slice")
    elif window:
        says["maintenance"] = Said(
            NoticeAction.TERMINATE,
            "maintenance of the slice",
            at_unix_ns=at_unix_ns,
            scope=Scope.SLICE,
        )
    for symptom in node.symptoms:
        kind, worker = _word(symptom.symptom_type), _line(symptom.worker_id)
        words = f"symptom {kind} of worker {worker}: {_line(symptom.details)}"
        says[f"symptom {kind} {worker}"] = Said(NoticeAction.DRAIN, words, scope=Scope.SLICE)
    return says


def _ends(words: str) -> Said:
    return Said(NoticeAction.TERMINATE, words, NoticeState.STARTED, scope=Scope.SLICE)


def _word(value: Any) -> str:
    """The name of an enum's value; a number that is not known yet as it is."""
    return str(getattr(value, "name", value))


def _line(text: str) -> str:
    return " ".join(text.split())[:WORDS_CHARS]


class Tpu:
    """One node, by its full name."""

    name = "tpu"

    def __init__(self, node: str, endpoint: str, tools: Tools) -> None:
        """`endpoint`: an emulator on this machine, spoken to without credentials; "": Google's."""
        self._node, self._endpoint, self._tools = node, endpoint, tools
        self._memory = SourceMemory(self.name, tools)

    @property
    def watches(self) -> Sequence[Watch]:
        """What changes in the node."""
        return (self._watch,)

    async def _watch(self) -> News:
        client = await self._client()
        try:
            while True:
                node = await self._ask(client)
                says = node_says(node, self._tools.clock().unix_ns)
                yield self._memory.all_news(says)
                await self._tools.sleep(POLL_S)
        finally:
            await client.transport.close()

    async def _ask(self, client: Any) -> Any:
        from google.api_core.exceptions import GoogleAPIError
        from google.auth.exceptions import GoogleAuthError

        try:
            async with asyncio.timeout(CALL_LIMIT_S):
                return await client.get_node(name=self._node, retry=None, timeout=CALL_LIMIT_S)
        except TimeoutError:
            raise Trouble(f"Cloud TPU has not answered within {CALL_LIMIT_S:g} s") from None
        except (GoogleAPIError, GoogleAuthError) as error:
            raise Trouble(f"Cloud TPU does not tell of {self._node}: {_line(str(error))}") from None

    async def _client(self) -> Any:
        try:
            types: Any = importlib.import_module(API)
        except ImportError as error:
            raise Trouble(needs_extra(f"Cloud TPU's API ({error.name}) needs", "gcp")) from None
        if self._endpoint:
            import grpc

            transport = types.TpuAsyncClient.get_transport_class("grpc_asyncio")
            channel = grpc.aio.insecure_channel(
                self._endpoint, options=[("grpc.enable_http_proxy", 0)]
            )
            return types.TpuAsyncClient(transport=transport(channel=channel))
        import google.auth
        from google.auth.exceptions import GoogleAuthError

        ask_metadata_directly()
        try:  # in a thread, because it may ask a server for them
            credentials, _ = await asyncio.to_thread(google.auth.default)
            return types.TpuAsyncClient(credentials=credentials)
        except GoogleAuthError as error:
            raise Trouble(f"no credentials for Google Cloud: {_line(str(error))}") from None


def make(option: str, tools: Tools, around: SourceSurroundings) -> Tpu:
    """Of a node's full name, and `@HOST:PORT` behind it for an emulator."""
    del around
    found = OPTION.fullmatch(option)
    if found is None:
        raise ConfigurationError(
            f"tpu needs a node, not {option!r}: write tpu:projects/P/locations/Z/nodes/NAME"
        )
    return Tpu(found[1], found[2] or "", tools)
