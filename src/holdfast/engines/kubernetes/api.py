"""The few questions and orders that Kubernetes is asked, over its own HTTP, one at a time.

cluster.get("/api/v1/namespaces/ml/pods/lm-0")     None: there is none
cluster.items(path, selector)                      all of a list, page by page
cluster.create(path, object)                       raises NameTaken where the name is taken
cluster.apply(path, object)                        as it is wished, whatever is there
"""

from __future__ import annotations

import http.client
import json
import re
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode, urlsplit

from holdfast.core.visible import clean
from holdfast.engines.kubernetes.kubeconfig import ClusterAccess
from holdfast.engines.protocol import EngineError
from holdfast.errors import ConfigurationError, HoldfastError

Object = dict[str, Any]
MANAGER = "holdfast"
LIMIT_S = 20.0
ANSWER_LIMIT_BYTES = 64 << 20
PAGE = 500
MOST_ROUNDS = 3  # of a list whose pages the server forgets
MOST_CHARS = 500  # of what it says
MOST_ASKS = 10  # of one that says that it is too busy, as kubectl
UNAUTHORIZED, NOT_FOUND, CONFLICT, GONE = 401, 404, 409, 410
_SECONDS = re.compile(r"[0-9]{1,3}")
BUSY = (429, 503)  # with when to come again: nothing of the request was done


class ClusterRefusal(EngineError):  # noqa: N818 - it is an answer, too
    """The cluster has answered, and not with what was asked for."""

    def __init__(self, words: str, status: int, document: Object) -> None:
        super().__init__(words)
        self.status, self.document = status, document

    @property
    def details(self) -> Mapping[str, Any]:
        """What it was about: its `kind` and `name`, where the server says so."""
        found = self.document.get("details")
        return found if isinstance(found, Mapping) else {}


class NameTaken(ClusterRefusal):
    """An object of that name is there."""


class Cluster:
    """One cluster, as somebody may ask it.

    `renew`: who asks, found anew: tokens of plugins and of service accounts are good for an hour.
    """

    def __init__(
        self, access: ClusterAccess, renew: Callable[[], ClusterAccess] | None = None
    ) -> None:
        self.access, self._renew = access, renew
        self._pause: Callable[[float], None] = time.sleep
        try:
            parts = urlsplit(access.server)
            host, port = parts.hostname, parts.port
        except ValueError:
            host = None
        if not host or parts.scheme not in ("http", "https"):
            raise ConfigurationError(
                f"{access.server!r} ({access.words}) is no address of a cluster: write "
                "http://HOST:PORT or https://HOST:PORT"
            )
        self._host, self._port, self._prefix = host, port, parts.path.rstrip("/")
        self._is_tls = parts.scheme == "https"

    @property
    def namespace(self) -> str:
        """Where everything is."""
        return self.access.namespace

    def get(self, path: str) -> Object | None:
        """An object; None: there is none. Raises EngineError."""
        try:
            return self._ask("GET", path)
        except ClusterRefusal as error:
            if error.status == NOT_FOUND:
                return None
            raise

    def items(self, path: str, **query: str) -> list[Object]:
        """All objects of a kind, by label or field selectors; raises EngineError.

        Where the server has forgotten the version that the pages are of (410), it begins anew.
        """
        for _ in range(MOST_ROUNDS):
            try:
                return self._pages(path, query)
            except ClusterRefusal as error:
                if error.status != GONE:
                    raise
        raise EngineError(f"{self._words} forgets {path} faster than it can be read")

    def _pages(self, path: str, query: Mapping[str, str]) -> list[Object]:
        found: list[Object] = []
        more = ""
        while True:
            page = {"limit": str(PAGE)} | ({"continue": more} if more else {})
            document = self._ask("GET", path, {**query, **page})
            items = document.get("items")
            if not isinstance(items, list):
                raise EngineError(f"{self._words} answers {path} without a list")
            found += [one for one in items if isinstance(one, dict)]
            more = str((document.get("metadata") or {}).get("continue") or "")
            if not more:
                return found

    def create(self, path: str, found: Object) -> Object:
        """A new object. Raises NameTaken, ClusterRefusal, EngineError."""
        query = {"fieldManager": MANAGER, "fieldValidation": "Strict"}
        return self._ask("POST", path, query, found)

    def apply(self, path: str, found: Object) -> Object:
        """Have it as it is wished (server-side apply). Raises ClusterRefusal, EngineError."""
        query = {"fieldManager": MANAGER, "fieldValidation": "Strict", "force": "true"}
        return self._ask("PATCH", path, query, found, "application/apply-patch+yaml")

    def delete(self, path: str, *, uid: str = "") -> bool:
        """Delete an object and what it has made; whether it was there. `uid`: only that one."""
        options: Object = {"propagationPolicy": "Background"}
        if uid:
            options["preconditions"] = {"uid": uid}
        try:
            self._ask("DELETE", path, {}, options)
        except ClusterRefusal as error:
            if error.status == NOT_FOUND:
                return False
            raise
        return True

    @property
    def _words(self) -> str:
        return f"the Kubernetes cluster at {self.access.server}"

    def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Object | None = None,
        kind: str = "application/json",
    ) -> Object:
        target = self._prefix + path + (f"?{urlencode(query)}" if query else "")
        headers = {"Accept": "application/json", **self.access.headers}
        data = None
        if body is not None:
            data, headers["Content-Type"] = json.dumps(body).encode(), kind
        try:
            status, answer = self._ask_busy(method, target, data, headers)
            if status == UNAUTHORIZED and self._is_renewed():
                headers |= self.access.headers
                status, answer = self._ask_busy(method, target, data, headers)
        except (OSError, http.client.HTTPException, ssl.SSLError) as error:
            why = _shown(str(error)) or type(error).__name__
            raise EngineError(
                f"no Kubernetes cluster answers at {self.access.server} ({self.access.words}): "
                f"{why}; try `kubectl get namespaces`"
            ) from error
        return self._understood(method, path, status, answer)

    def _is_renewed(self) -> bool:
        """Show who asks as that is known now; whether that is something else than before."""
        if self._renew is None:
            return False
        before = self.access
        try:
            found = self._renew()
        except HoldfastError:  # a file that is being written, a plugin that cannot ask now
            return False
        if found.server != before.server:
            return False
        self.access = replace(before, headers=found.headers, tls=found.tls)
        return found.headers != before.headers or found.tls is not None

    def _ask_busy(
        self, method: str, target: str, data: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, bytes]:
        """Ask again, as late as it says, while it is too busy: for 20 s at most."""
        left_s = LIMIT_S
        for _ in range(MOST_ASKS):
            status, answer, later = self._exchange(method, target, data, headers)
            if status not in BUSY or not _SECONDS.fullmatch(later) or int(later) > left_s:
                break
            left_s -= int(later)
            self._pause(int(later))
        return status, answer

    def _exchange(
        self, method: str, target: str, data: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, bytes, str]:
        """Status, answer, Retry-After; a connection each. Without proxies and redirects."""
        connection: http.client.HTTPConnection
        if self._is_tls:
            tls = self.access.tls or ssl.create_default_context()
            connection = http.client.HTTPSConnection(
                self._host, self._port, timeout=LIMIT_S, context=tls
            )
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=LIMIT_S)
        try:
            connection.request(method, target, data, dict(headers))
            answer = connection.getresponse()
            read = answer.read(ANSWER_LIMIT_BYTES)
            return answer.status, read, answer.headers.get("Retry-After", "")
        finally:
            connection.close()

    def _understood(self, method: str, path: str, status: int, answer: bytes) -> Object:
        try:
            document = json.loads(answer)
        except (ValueError, RecursionError):
            document = None
        if 200 <= status < 300 and isinstance(document, dict):
            return document
        told = document if isinstance(document, dict) else {}
        said = _shown(told.get("message") or "")
        if status == UNAUTHORIZED:
            raise ClusterRefusal(
                f"{self._words} does not know who asks ({self.access.words}): log in again",
                status,
                told,
            )
        words = f"{self._words} answers {method} {path} with {status} and no object"
        if said:
            words = f"{self._words} refuses ({status}): {said}"
        is_taken = status == CONFLICT and told.get("reason") == "AlreadyExists"
        raise (NameTaken if is_taken else ClusterRefusal)(words, status, told)


def _shown(text: object) -> str:
    """In one line that is safe on a terminal."""
    return clean(" ".join(str(text).split()))[:MOST_CHARS]
