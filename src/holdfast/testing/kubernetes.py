"""An emulator of the Kubernetes API, as far as one pod and its node go: list and watch.

From the Kubernetes documents on API concepts (`resourceVersion`, watches, bookmarks, 410 Gone), on
authenticating (bearer tokens of service accounts) and on the termination of pods.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, ClassVar, NamedTuple

from holdfast.testing.emulator import Emulator, HttpRequest, Pause, Reply

NAMESPACE, POD, NODE = "ml", "trainer-0", "node-a"
PODS, NODES = f"/api/v1/namespaces/{NAMESPACE}/pods", "/api/v1/nodes"


class Event(NamedTuple):
    """What a watch tells."""

    version: int
    folder: str
    kind: str
    fields: str  # as JSON


class KubernetesEmulator(Emulator):
    """One pod on one node, asked for with the token that is good now."""

    name: ClassVar[str] = "emulator of the Kubernetes API"

    def __init__(self, *, tls: ssl.SSLContext | None = None) -> None:
        self.token = "first"  # noqa: S105 - the emulator's own
        self.forbidden: set[str] = set()
        self.version = 1
        self.oldest = 0  # the last version whose events are forgotten
        self.ended = 0  # how often the watches were ended
        self.watching: list[str] = []  # the paths of those that are open
        self.events: list[Event] = []
        self.objects: dict[str, dict[str, Any]] = {
            f"{PODS}/{POD}": {
                "kind": "Pod",
                "metadata": {"name": POD, "namespace": NAMESPACE, "resourceVersion": "1"},
                "spec": {"nodeName": NODE},
                "status": {"conditions": []},
            },
            f"{NODES}/{NODE}": {
                "kind": "Node",
                "metadata": {"name": NODE, "labels": {}, "resourceVersion": "1"},
                "spec": {"taints": []},
            },
        }
        super().__init__(tls=tls)

    def verb_taint(self, key: str, effect: str = "NoSchedule") -> None:
        """Taint the node; an effect `-` takes the taint away."""
        taints = self._node["spec"]["taints"]
        kept = [one for one in taints if one["key"] != key]
        self._node["spec"]["taints"] = (
            kept if effect == "-" else [*kept, {"key": key, "effect": effect}]
        )
        self._modified(NODES, self._node)

    def verb_label(self, key: str, value: str = "") -> None:
        """Label the node; an empty value takes the label away."""
        self._node["metadata"]["labels"].pop(key, None)
        if value:
            self._node["metadata"]["labels"][key] = value
        self._modified(NODES, self._node)

    def verb_delete_pod(self, grace_s: str = "30", reason: str = "") -> None:
        """Delete the pod: its timestamp is the moment at which its grace period ends."""
        pod = self.objects[f"{PODS}/{POD}"]
        at = datetime.fromtimestamp(self.calendar() + float(grace_s), UTC)
        pod["metadata"]["deletionTimestamp"] = at.strftime("%Y-%m-%dT%H:%M:%SZ")
        pod["metadata"]["deletionGracePeriodSeconds"] = int(float(grace_s))
        if reason:
            target = {"type": "DisruptionTarget", "status": "True", "reason": reason}
            pod["status"]["conditions"] = [target]
        self._modified(PODS, pod)

    def verb_remove_pod(self) -> None:
        """It is gone."""
        self._modified(PODS, self.objects.pop(f"{PODS}/{POD}"), "DELETED")

    def verb_bookmark(self) -> None:
        """Tell the watches a newer version."""
        for folder in (PODS, NODES):
            self._modified(folder, {"metadata": {}}, "BOOKMARK")

    def verb_compact(self) -> None:
        """Forget what has happened so far, and end the watches: who goes on from it is told 410."""
        self.version += 1
        self.oldest = self.version
        self.verb_end()

    def verb_end(self) -> None:
        """End the watches, as their time-out does."""
        self.ended += 1

    def verb_rotate(self, token: str) -> None:
        """Take that token alone from now on; watches go on. An empty one: who asks is not asked."""
        self.token = token

    def verb_forbid(self, what: str = "nodes") -> None:
        """Answer 403 to questions about pods or nodes."""
        self.forbidden.add(what)

    def verb_allow(self, what: str = "nodes") -> None:
        """Answer them again."""
        self.forbidden.discard(what)

    @property
    def _node(self) -> dict[str, Any]:
        return self.objects[f"{NODES}/{NODE}"]

    def _modified(self, folder: str, fields: dict[str, Any], kind: str = "MODIFIED") -> None:
        self.version += 1
        fields["metadata"]["resourceVersion"] = str(self.version)
        self.events.append(Event(self.version, folder, kind, json.dumps(fields)))

    def answer(self, request: HttpRequest) -> Reply:
        """The list of the objects of a name, or a watch for them."""
        if self.token and request.headers.get("authorization") != f"Bearer {self.token}":
            return _status(401, "Unauthorized")
        if any(f"/{what}" in request.path for what in self.forbidden):
            return _status(403, "Forbidden")
        if request.path not in (PODS, NODES):
            return _status(404, "NotFound")
        if request.query.get("watch") == "true":
            return Reply(stream=self._watch(request))
        with self.changed:
            found = self.objects.get(f"{request.path}/{_name(request)}")
            document = {"metadata": {"resourceVersion": str(self.version)}}
            return Reply(json.dumps({**document, "items": [found] if found else []}))

    def _watch(self, request: HttpRequest) -> Iterator[bytes | Pause]:
        seen, ended = int(request.query["resourceVersion"]), self.ended
        name = _name(request)
        if seen < self.oldest:
            error = json.loads(_status(410, "Expired").body)
            yield _line({"type": "ERROR", "object": error})
            return
        end_s = self.elapsed() + float(request.query.get("timeoutSeconds", "1800"))
        self.watching.append(request.path)
        try:
            while self.ended == ended and not self.is_closed and self.elapsed() < end_s:
                news = lambda: self.version > seen or self.ended != ended  # noqa: B023, E731
                yield Pause(news, end_s - self.elapsed())
                for event in self._after(seen):
                    seen, fields = event.version, json.loads(event.fields)
                    is_theirs = fields["metadata"].get("name") == name or event.kind == "BOOKMARK"
                    if event.folder == request.path and is_theirs:
                        yield _line({"type": event.kind, "object": fields})
        finally:
            self.watching.remove(request.path)

    def _after(self, seen: int) -> list[Event]:
        """What has happened since that version."""
        with self.changed:
            return [one for one in self.events if one.version > seen]


def _name(request: HttpRequest) -> str:
    return request.query.get("fieldSelector", "").removeprefix("metadata.name=")


def _status(code: int, reason: str) -> Reply:
    status = {"kind": "Status", "status": "Failure", "reason": reason, "code": code}
    return Reply(json.dumps(status), code, {"Content-Type": "application/json"})


def _line(event: dict[str, Any]) -> bytes:
    return json.dumps(event).encode() + b"\n"
