"""Kubernetes: this pod's deletion, and what the taints and labels of its node announce.

Both objects are read once and then watched, as the Kubernetes API's concepts have it: from a
`resourceVersion` on, which the server has forgotten when it says 410; then they are read again. The
pod's service account needs `list` and `watch` for pods in its namespace and for nodes; where it may
not look at nodes, that is said once, and the pod alone is watched.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeGuard

from holdfast.core.durations import SECOND_NS
from holdfast.core.notices.board import Notice, NoticeAction, NoticeState
from holdfast.notices.found import SERVICE_ACCOUNT
from holdfast.notices.protocol import News, SourceSurroundings, Tools, Trouble, Watch
from holdfast.notices.said import Said, SourceMemory

if TYPE_CHECKING:
    from holdfast.notices.fetch import Server

WATCH_S = 300  # after which the server ends a watch, and another one goes on from there
PATIENCE_S = 15.0
FORBIDDEN_S = 60.0  # until something that may not be read is tried again
HASTE_S = 1.0  # between two watches
GAP_NS = 2 * SECOND_NS  # without one, which may be left out of account
EVENT_LIMIT_BYTES = 4 << 20  # an object may be as large as etcd lets it be, 1.5 MiB
GONE = 410

# Taints, by who sets them: what is done to the node, and how long ahead it is said at least.
TAINTS = {
    # Google: the node's machine is preempted, or its host is maintained.
    "cloud.google.com/impending-node-termination": (NoticeAction.TERMINATE, 30 * SECOND_NS),
    # Amazon's node termination handler, when it may taint: a Spot interruption, rebalance advice.
    "aws-node-termination-handler/spot-itn": (NoticeAction.TERMINATE, 120 * SECOND_NS),
    "aws-node-termination-handler/rebalance-recommendation": (NoticeAction.REBALANCE, None),
    # The autoscalers: its pods are evicted next.
    "ToBeDeletedByClusterAutoscaler": (NoticeAction.DRAIN, None),
    "karpenter.sh/disrupted": (NoticeAction.DRAIN, None),
    # `kubectl cordon`, with which a drain begins.
    "node.kubernetes.io/unschedulable": (NoticeAction.DRAIN, None),
}
MAINTENANCE_AT = "cloud.google.com/scheduled-maintenance-time"  # in seconds since 1970
MAINTENANCE_NOW = "cloud.google.com/active-node-maintenance"


class Forgotten(Exception):  # noqa: N818 - it says that the object is to be read again
    """The server does not know that version any more."""


class Forbidden(Trouble):
    """The service account may not look at that."""


def node_says(node: Mapping[str, Any], now_unix_ns: int) -> dict[str, Said]:
    """What the taints and labels of a node announce.

    Maintenance whose date has passed counts as started, also where no label says so.
    """
    says = {}
    for taint in _list(_inner(node, "spec").get("taints")):
        key = str(taint.get("key", ""))
        if key in TAINTS:
            action, lead_ns = TAINTS[key]
            says[key] = Said(action, f"taint {key}", lead_ns=lead_ns)
    labels = _inner(_inner(node, "metadata"), "labels")
    at_unix_ns = None
    if text := labels.get(MAINTENANCE_AT):
        if not (isinstance(text, str) and text.isdecimal() and len(text) < 12):
            raise Trouble(f"the label {MAINTENANCE_AT} says {str(text)[:40]!r} instead of seconds")
        at_unix_ns = int(text) * SECOND_NS
    is_now = str(labels.get(MAINTENANCE_NOW, "")).upper() == "ONGOING"
    words = "maintenance of the node's host"
    if is_now or (at_unix_ns is not None and at_unix_ns <= now_unix_ns):
        says["maintenance"] = Said(NoticeAction.TERMINATE, words, NoticeState.STARTED)
    elif at_unix_ns is not None:
        says["maintenance"] = Said(NoticeAction.TERMINATE, words, at_unix_ns=at_unix_ns)
    return says


def pod_says(pod: Mapping[str, Any], _: int) -> dict[str, Said]:
    """When a pod is deleted: its `deletionTimestamp` has the grace period in it."""
    text = _inner(pod, "metadata").get("deletionTimestamp")
    if not text:
        return {}
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise Trouble(f"the pod's deletionTimestamp says {str(text)[:40]!r} instead of a date")
    words = "the pod is deleted"
    for condition in _list(_inner(pod, "status").get("conditions")):
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            words = f"the pod is deleted: {condition.get('reason')}"
    at_unix_ns = int(moment.timestamp()) * SECOND_NS
    return {"pod": Said(NoticeAction.TERMINATE, words, at_unix_ns=at_unix_ns)}


def _is_object(value: object) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, Mapping)


def _inner(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    inner = value.get(name)
    return inner if isinstance(inner, Mapping) else {}


def _list(value: object) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


class WatchedObject:
    """One object, and what it has announced so far."""

    def __init__(
        self,
        source: Kubernetes,
        folder: str,
        name: str,
        says: Callable[[Mapping[str, Any], int], dict[str, Said]],
    ) -> None:
        """`folder`: the path of all of its kind. `says`: what its fields announce at a moment."""
        self._source, self._folder, self._name, self._says = source, folder, name, says
        self._query = {"fieldSelector": f"metadata.name={name}"}
        self._memory = SourceMemory(source.name, source.tools)
        self._version = ""  # from which on it is watched; "": it must be read
        self._is_forbidden = False
        self._seen_ns: int | None = None  # until when it was watched
        self.fields: Mapping[str, Any] = {}

    async def read(self) -> list[Notice]:
        """Read it; what is new in it.

        As a list with one entry, because a list's version is the cluster's own, from which a watch
        can begin; that of an object may long be forgotten.
        """
        from holdfast.notices.fetch import fetch

        source = self._source
        answer = await fetch(
            source.server(),
            self._folder,
            query=self._query,
            headers=source.headers(),
            limit_s=PATIENCE_S,
            limit_bytes=EVENT_LIMIT_BYTES,
        )
        _check(answer.status, self._folder)
        document = answer.json()
        version = (
            _inner(document, "metadata").get("resourceVersion") if _is_object(document) else None
        )
        if not version or not isinstance(document.get("items"), list):
            raise Trouble(
                f"it answers {self._folder} with {str(document)[:40]!r} instead of a list"
            )
        their_unix_ns = answer.date_unix_ns or source.tools.clock().unix_ns
        if not document["items"] and not self.fields:
            raise Trouble(
                f"{self._folder} has no {self._name}: set POD_NAME and NODE_NAME to the pod's name "
                "and its node's"
            )
        notices = [] if document["items"] else self._gone()
        for item in document["items"][:1]:
            notices = self._take(item, their_unix_ns, self._unseen_ns())
        self._version = str(version)
        self._seen_ns = source.tools.now_ns()
        return notices

    def _unseen_ns(self) -> int:
        """For how long nobody has looked; a moment between two watches is left out of account."""
        now_ns = self._source.tools.now_ns()
        gap_ns = now_ns - (now_ns if self._seen_ns is None else self._seen_ns)
        return gap_ns if gap_ns > GAP_NS else 0

    def _gone(self) -> list[Notice]:
        """It was there, and is not any more; what it has announced is not called off by that."""
        if not self.fields:
            return []
        kind = self._folder.rpartition("/")[2].removesuffix("s")
        words = f"the {kind} is deleted"
        return self._memory.news(kind, Said(NoticeAction.TERMINATE, words, NoticeState.STARTED))

    async def watch(self) -> News:
        """What changes in it, for ever."""
        try:
            while True:
                if not self._version:
                    yield await self.read()
                try:
                    async with aclosing(self._changes()) as changes:
                        async for news in changes:
                            self._is_forbidden = False
                            yield news
                except Forgotten:
                    self._version = ""
                await self._source.tools.sleep(HASTE_S)
        except Forbidden:
            if self._is_forbidden:
                await self._source.tools.sleep(FORBIDDEN_S)
            self._is_forbidden = True
            raise

    async def _changes(self) -> News:
        """What one watch tells, until the server ends it."""
        from holdfast.notices.fetch import lines, stream

        source = self._source
        query = self._query | {
            "watch": "true",
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_S),
        }
        is_open = False
        try:
            async with (
                asyncio.timeout(PATIENCE_S) as limit,
                stream(source.server(), self._folder, query=query, headers=source.headers()) as (
                    head,
                    chunks,
                ),
            ):
                if head.status == GONE:
                    raise Forgotten
                _check(head.status, self._folder)
                is_open = True
                unseen_ns = self._unseen_ns()  # what it tells first may be as old as that
                opened_ns = source.tools.now_ns()
                limit.reschedule(asyncio.get_running_loop().time() + WATCH_S + PATIENCE_S)
                ahead_ns = 0
                if head.date_unix_ns is not None:
                    ahead_ns = head.date_unix_ns - source.tools.clock().unix_ns
                yield []
                async for line in lines(chunks, EVENT_LIMIT_BYTES):
                    now_unix_ns = source.tools.clock().unix_ns + ahead_ns
                    is_first = source.tools.now_ns() - opened_ns < GAP_NS
                    yield self._event(line, now_unix_ns, unseen_ns if is_first else 0)
                    self._seen_ns = source.tools.now_ns()
        except TimeoutError:
            if not is_open:
                raise Trouble(f"a watch has not begun within {PATIENCE_S:g} s") from None
            # Else it is a server that ends no watch: it is asked again from there.
        finally:
            if is_open:
                self._seen_ns = source.tools.now_ns()

    def _event(self, line: bytes, their_unix_ns: int, unseen_ns: int) -> list[Notice]:
        if not line.strip():
            return []
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            event = None
        found = event.get("object") if _is_object(event) else None
        if not _is_object(found):
            self._version = ""
            raise Trouble(f"its watch says {line[:40].decode('utf-8', 'replace')!r}")
        if event.get("type") == "ERROR":
            code = found.get("code")
            if code == GONE:
                raise Forgotten
            self._version = ""
            raise Trouble(f"its watch ends with {code}: {str(found.get('message'))[:80]}")
        if event.get("type") == "BOOKMARK":
            self._version = str(_inner(found, "metadata").get("resourceVersion") or "")
            return []
        self._version = ""  # until it is understood
        notices = (
            self._gone()
            if event.get("type") == "DELETED"
            else self._take(found, their_unix_ns, unseen_ns)
        )
        self._version = str(_inner(found, "metadata").get("resourceVersion") or "")
        return notices

    def _take(self, found: Any, their_unix_ns: int, unseen_ns: int) -> list[Notice]:
        if not _is_object(found) or _inner(found, "metadata").get("name") != self._name:
            raise Trouble(f"it answers with {str(found)[:40]!r} instead of {self._name}")
        self.fields = found
        says = self._says(found, their_unix_ns)
        return self._memory.all_news(says, their_unix_ns, unseen_ns=unseen_ns)


def _check(status: int, path: str) -> None:
    if status == 403:
        raise Forbidden(f"the service account may not list and watch {path}")
    if status != 200:
        raise Trouble(f"the cluster answers {path} with status {status}")


class Kubernetes:
    """The cluster's API, as this pod may ask it."""

    name = "kubernetes"

    def __init__(
        self, address: str, pod: tuple[str, str], tools: Tools, look: SourceSurroundings
    ) -> None:
        """`pod`: its namespace and name."""
        self.tools = tools
        self._address, self._around = address, look
        namespace, name = pod
        self._pods, self._pod_name = f"/api/v1/namespaces/{namespace}/pods", name
        self._pod = WatchedObject(self, self._pods, name, pod_says)
        self._node: WatchedObject | None = None
        self._node_name = look.environment.get("NODE_NAME", "")

    @property
    def watches(self) -> Sequence[Watch]:
        """What is announced of the pod, and of its node."""
        return self._pod.watch, self._watch_node

    async def _watch_node(self) -> News:
        if self._node is None:
            name = self._node_name or await self._name_of_the_node()
            self._node = WatchedObject(self, "/api/v1/nodes", name, node_says)
        async with aclosing(self._node.watch()) as answers:
            async for news in answers:
                yield news

    async def _name_of_the_node(self) -> str:
        pod = WatchedObject(self, self._pods, self._pod_name, pod_says)
        await pod.read()
        name = _inner(pod.fields, "spec").get("nodeName")
        if not name:
            raise Trouble("the pod is on no node: set NODE_NAME to its node's")
        return str(name)

    def headers(self) -> dict[str, str]:
        """With the token of this moment: the kubelet writes a new one within the hour."""
        token = self._around.read(f"{SERVICE_ACCOUNT}/token")
        headers = {"Accept": "application/json"}
        if token and token.isascii() and token.isprintable():
            headers["Authorization"] = f"Bearer {token}"
        return headers

    def server(self) -> Server:
        """The API server, which must have a certificate of the cluster's authority."""
        from holdfast.notices.fetch import Server

        if self._address.startswith("http://"):
            return Server.at(self._address)
        path = self._around.root / SERVICE_ACCOUNT.lstrip("/") / "ca.crt"
        try:
            tls = ssl.create_default_context(cafile=str(path))
        except OSError as error:
            why = error.strerror or error
            raise Trouble(f"{path} is no certificate to check the cluster's by: {why}") from None
        return Server.at(self._address, tls=tls)


def make(option: str, tools: Tools, around: SourceSurroundings) -> Kubernetes:
    """Of the API server's address; the pod's own cluster where none is given.

    The pod's namespace and name are those of its service account and its host name, or of the
    variables POD_NAMESPACE and POD_NAME.
    """
    from holdfast.notices.fetch import Server

    environment = around.environment
    host = environment.get("KUBERNETES_SERVICE_HOST", "") or "kubernetes.default.svc"
    host = f"[{host}]" if ":" in host else host
    address = option or f"https://{host}:{environment.get('KUBERNETES_SERVICE_PORT', '') or 443}"
    Server.at(address)
    namespace = environment.get("POD_NAMESPACE", "") or around.read(f"{SERVICE_ACCOUNT}/namespace")
    name = (
        environment.get("POD_NAME", "")
        or environment.get("HOSTNAME", "")
        or around.read("/etc/hostname")
    )
    return Kubernetes(address, (namespace or "default", name), tools, around)
