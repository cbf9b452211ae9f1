"""An emulator of a Kubernetes cluster's API that takes Jobs and JobSets, and makes their pods.

From the Kubernetes documents on API concepts (lists in pages, 410 Gone, server-side apply, field
validation), on authorization, namespaces and resource quotas.

What is not emulated: admission beside quotas and schemas, finalizers, and the merging of lists in
server-side apply.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from holdfast.testing.emulator import HttpRequest, Reply
from holdfast.testing.kubernetes import NAMESPACE
from holdfast.testing.kubernetes_jobs import JOB_SETS, JOBS, PODS, KubernetesJobs, Object

APIS = ("/apis/jobset.x-k8s.io/v1alpha2", "/apis/batch/v1", "/apis/apps/v1", "/api/v1",
        "/apis/rbac.authorization.k8s.io/v1", "/apis/kueue.x-k8s.io/v1beta1")  # fmt: skip
APPLY = "application/apply-patch+yaml"
VERBS = {"GET": "get", "POST": "create", "PATCH": "patch", "DELETE": "delete"}
TOO_MANY = {"kind": "Status", "status": "Failure", "code": 429, "reason": "TooManyRequests",
            "message": "Too many requests, please try again later."}  # fmt: skip
RAN_OUT = "The provided continue parameter is too old to display a consistent list result."


class KubernetesClusterEmulator(KubernetesJobs):
    """One namespace, `ml`, of a cluster with JobSet."""

    name: ClassVar[str] = "emulator of a Kubernetes cluster"

    def __init__(
        self,
        *,
        tls: ssl.SSLContext | None = None,
        invalid: Callable[[Object], list[str]] = lambda _: [],
    ) -> None:
        """`invalid`: what is wrong with an object that is to be made, as schemas have it."""
        self._invalid = invalid
        self.missing: set[str] = set()  # APIs that the cluster lacks
        self.denied: set[tuple[str, str]] = set()  # verb and plural
        self.busy, self.later = 0, ""  # so many requests more are too many; when to come again
        self.page = 0  # objects in a page of a list; 0: as many as are asked for
        super().__init__(tls=tls)
        self.token = ""

    # --- what it is told --------------------------------------------------------------------

    def verb_lack(self, api: str) -> None:
        """Have no such API, such as that of JobSet, which somebody must install."""
        self.missing.add(api)

    def verb_deny(self, verb: str, plural: str) -> None:
        """Answer 403 to that verb on those objects, as access by roles does."""
        self.denied.add((verb, plural))

    def verb_limit(self, plural: str, words: str) -> None:
        """A resource quota by which none of those can be made."""
        self.quota[plural] = words

    def verb_throttle(self, requests: int, later: str = "1") -> None:
        """Answer the next ones 429, as priority and fairness do: come again in a second."""
        self.busy, self.later = requests, later

    # --- answers ----------------------------------------------------------------------------

    def answer(self, request: HttpRequest) -> Reply:
        """Of the objects of the namespace; the rest is the emulator's of one pod."""
        if self.token and request.headers.get("authorization") != f"Bearer {self.token}":
            return _status(401, "Unauthorized", "Unauthorized")
        if self.busy:
            self.busy -= 1
            return _json(TOO_MANY, 429, {"Retry-After": self.later})
        if request.query.get("watch") == "true":
            return super().answer(request)
        if request.path in APIS and request.path not in self.missing:
            return _json({"kind": "APIResourceList"})
        if not any(request.path.startswith(f"{api}/") for api in {*APIS} - self.missing):
            return Reply("404 page not found\n", 404, {"Content-Type": "text/plain"})
        with self.changed:
            reply = self._answer(request)
            self.changed.notify_all()
            return reply

    def _answer(self, request: HttpRequest) -> Reply:
        rest = request.path.split("/v1", 1)[1].split("/")[1:]
        rest = rest[1:] if rest and rest[0].startswith(("alpha", "beta")) else rest
        if rest[:1] == ["namespaces"] and len(rest) == 2 and request.method == "GET":
            return self._namespace(rest[1])
        space = rest[1] if rest[:1] == ["namespaces"] else ""
        plural, *names = rest[2:] if space else rest
        verb = VERBS[request.method] if names or request.method == "POST" else "list"
        group = request.path.split("/")[2] if request.path.startswith("/apis/") else ""
        if (verb, plural) in self.denied:
            return _forbidden(verb, plural, group, space)
        folder = request.path.rpartition("/")[0] if names else request.path
        if names[1:] == ["eviction"]:
            if f"{PODS}/{names[0]}" not in self.objects:
                return _missing(plural, names[0])
            self.verb_evict(names[0])
            return _status(201, "", "Success")
        if space not in ("", NAMESPACE) and request.method in ("POST", "PATCH"):
            return _missing("namespaces", space)
        if request.method == "GET":
            if not names:
                return self._list(request)
            found = self.objects.get(request.path)
            return _missing(plural, names[0]) if found is None else _json(found)
        if request.method == "DELETE":
            return self._delete(request, plural, names[0])
        return self._make(request, folder, plural)

    def _namespace(self, name: str) -> Reply:
        if ("get", "namespaces") in self.denied:
            return _forbidden("get", "namespaces", "", name)
        return _json({"kind": "Namespace"}) if name == NAMESPACE else _missing("namespaces", name)

    def _list(self, request: HttpRequest) -> Reply:
        """A page of what fits the selectors; its token is of a version that may be forgotten."""
        limit = self.page or int(request.query.get("limit", "0"))
        version, _, start = request.query.get("continue", f"{self.version}:0").partition(":")
        if int(version) < self.oldest:
            return _status(410, "Expired", RAN_OUT)
        found = [
            one
            for path, one in sorted(self.objects.items())
            if path.rpartition("/")[0] == request.path and _fits(one, request.query)
        ]
        page = found[int(start) :][: limit or None]
        end = int(start) + len(page)
        metadata = {"resourceVersion": str(self.version)}
        if end < len(found):
            metadata["continue"] = f"{version}:{end}"
        return _json({"kind": "List", "metadata": metadata, "items": page})

    def _make(self, request: HttpRequest, folder: str, plural: str) -> Reply:
        """POST makes a new object; a PATCH of apply's kind makes it, or has it as it is wished."""
        is_apply = request.method == "PATCH"
        if is_apply and request.headers.get("content-type") != APPLY:
            return _status(415, "UnsupportedMediaType", "the body of the request was in an unknown"
                           " format")  # fmt: skip
        if is_apply and not request.query.get("fieldManager"):
            return _status(422, "Invalid", "fieldManager is required for apply patch")
        wished = json.loads(request.body)
        name = wished["metadata"]["name"]
        path = f"{folder}/{name}"
        if plural in self.quota:
            words = f"{plural} {name!r} is forbidden: exceeded quota: {self.quota[plural]}"
            return _status(403, "Forbidden", words)
        if problems := self._invalid(wished):
            kind = wished.get("kind")
            return _status(422, "Invalid", f"{kind} {name!r} is invalid: {problems[0]}")
        if path in self.objects and not is_apply:
            return _status(409, "AlreadyExists", f"{plural} {name!r} already exists")
        if path in self.objects:
            _merge(self.objects[path], wished)
            self._changed(folder, self.objects[path])
            return _json(self.objects[path])
        if self.is_suspending and folder in (JOB_SETS, JOBS):
            wished["spec"]["suspend"] = True
        self._add(folder, wished)
        self._work(folder, wished)
        return _json(wished, 201)

    def _delete(self, request: HttpRequest, plural: str, name: str) -> Reply:
        found = self.objects.get(request.path)
        if found is None:
            return _missing(plural, name)
        wanted = json.loads(request.body or b"{}").get("preconditions", {}).get("uid")
        if wanted and wanted != found["metadata"]["uid"]:
            return _status(409, "Conflict", "the UID in the precondition does not match")
        self._remove(request.path)
        return _status(200, "", "Success")


def _fits(found: Object, query: Mapping[str, str]) -> bool:
    labels = found["metadata"].get("labels", {})
    for one in filter(None, query.get("labelSelector", "").split(",")):
        key, _, value = one.partition("=")
        if labels.get(key) != value:
            return False
    for one in filter(None, query.get("fieldSelector", "").split(",")):
        path, _, value = one.partition("=")
        inner: Any = found
        for key in path.split("."):
            inner = inner.get(key, {})
        if inner != value:
            return False
    return True


def _merge(found: Object, wished: Object) -> None:
    for key, value in wished.items():
        if isinstance(value, dict) and isinstance(found.get(key), dict):
            _merge(found[key], value)
        else:
            found[key] = value


def _json(document: Object, status: int = 200, more: Mapping[str, str] = {}) -> Reply:
    return Reply(json.dumps(document), status, {"Content-Type": "application/json", **more})


def _status(code: int, reason: str, message: str, details: Object | None = None) -> Reply:
    words = {"kind": "Status", "status": "Failure" if code >= 400 else "Success", "code": code}
    told = {"reason": reason, "message": message, "details": details or {}}
    return _json({**words, **told}, code)


def _missing(plural: str, name: str) -> Reply:
    details = {"name": name, "kind": plural}
    return _status(404, "NotFound", f'{plural} "{name}" not found', details)


def _forbidden(verb: str, plural: str, group: str, space: str) -> Reply:
    what = f"{plural}.{group}" if group else plural
    words = f'{what} is forbidden: User "ada" cannot {verb} resource "{plural}" in API group'
    return _status(403, "Forbidden", f'{words} "{group}" in the namespace "{space}"')
