"""What stands before every page: `access` asked of each request, and headers on each answer."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import TYPE_CHECKING
from urllib.parse import quote

from holdfast.serve.access import LOGIN, Access, AccessVerdict, RequestHead
from holdfast.serve.crowd import GRANTED

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_COOKIE_CHARS = 4096
# Beside a page's own policy, which says what may run in it.
HEADERS = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
)
NOTHING = b"default-src 'none'; frame-ancestors 'none'"  # the policy of what is no page


def cookie_name(port: int) -> str:
    """Cookies are a host's, not a port's: each server has its own."""
    return f"holdfast_{port}"


class AccessGuard:
    """Wraps the application. `port`: what the cookie is named by."""

    def __init__(self, app: ASGIApp, access: Access, port: int) -> None:
        self._app = app
        self._access = access
        self._cookie = cookie_name(port)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer what may not be served, and have the rest served."""
        if scope["type"] != "http":
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name for name, _ in message["headers"]}
                more = [pair for pair in HEADERS if pair[0] not in given]
                if b"content-security-policy" not in given:
                    more.append((b"content-security-policy", NOTHING))
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        verdict, why = self._judge(scope)
        if verdict is AccessVerdict.SERVE:
            if scope["path"] != LOGIN and (granted := scope.get("state", {}).get(GRANTED)):
                granted()
            await self._app(scope, receive, with_headers)
        elif verdict is AccessVerdict.LOG_IN and _wants_page(scope):
            query = scope.get("query_string", b"").decode("latin-1")
            to = quote(scope["path"], safe="/") + (f"?{query}" if query else "")
            place = f"{LOGIN}?to={quote(to, safe='/')}"
            await _answer(with_headers, 303, "log in", [(b"location", place.encode())])
        else:
            more = [(b"www-authenticate", b"Bearer")] if verdict is AccessVerdict.LOG_IN else []
            if verdict is AccessVerdict.WRONG_METHOD:
                more = [(b"allow", b"GET, HEAD")]
            await _answer(with_headers, verdict.value, f"not served: {why}", more)

    def _judge(self, scope: Scope) -> tuple[AccessVerdict, str]:
        headers: dict[str, str] = {}
        for raw, value in scope["headers"]:
            name = raw.decode("latin-1").lower()
            if name in headers and name in ("host", "origin", "authorization"):
                return AccessVerdict.FORBIDDEN, f"it has two {name} headers"
            headers[name] = value.decode("latin-1")
        server = scope.get("server") or (None, None)
        asked = RequestHead(
            method=scope["method"],
            path=scope["path"],
            headers=headers,
            cookie=_cookie(headers.get("cookie", ""), self._cookie),
            address=server[0],
        )
        return self._access.judge(asked, time.time())


def is_encrypted(scope: Scope, proxies: Collection[str]) -> bool:
    """Whether a proxy that is known says that the browser speaks TLS with it."""
    client = scope.get("client") or ("", 0)
    said = [value for name, value in scope["headers"] if name.lower() == b"x-forwarded-proto"]
    return client[0] in proxies and bool(said) and said[-1].split(b",")[-1].strip() == b"https"


def _cookie(header: str, wanted: str) -> str | None:
    if len(header) > MAX_COOKIE_CHARS:
        return None
    for pair in header.split(";"):
        name, _, value = pair.strip().partition("=")
        if name == wanted:
            return value
    return None


def _wants_page(scope: Scope) -> bool:
    """Whether a person is to see the answer: not a script, and not a stream of events."""
    accepted = next((value for name, value in scope["headers"] if name == b"accept"), b"")
    return b"text/html" in accepted


async def _answer(
    send: Send, status: int, words: str, headers: list[tuple[bytes, bytes]] | None = None
) -> None:
    body = f"{words}\n".encode()
    start = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", b"%d" % len(body)),
    ]
    await send(
        {"type": "http.response.start", "status": status, "headers": [*start, *(headers or [])]}
    )
    await send({"type": "http.response.body", "body": body})
