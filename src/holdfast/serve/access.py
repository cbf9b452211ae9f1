"""Who may ask what: decided from a request's head alone, with the reason. Pure.

A page of another origin must not read runs through the browser of who may, so that:

- `Host` must be a name that this server was given, or the very address that was connected to. A
  page whose own name was pointed at this address (DNS rebinding) brings its own name along.
- `Origin`, where a browser sends one, must be this server's; what `Sec-Fetch-Site` calls
  cross-site may only be followed as a link.
- Where a token is set, a cookie made from it, or the token itself as a bearer, must come along.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

METHODS = ("GET", "HEAD")
LOGIN = "/login"
SESSION_S = 7 * 86_400
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
_BEARER = "bearer "
_MAX_HOST_CHARS = 255


class AccessVerdict(Enum):
    """What is done about a request; the value is the HTTP status."""

    SERVE = 200
    LOG_IN = 401
    FORBIDDEN = 403
    WRONG_METHOD = 405
    WRONG_HOST = 421


class RequestHead(NamedTuple):
    """A request's head. `headers` by lower-case name; `address`: where it was connected to."""

    method: str
    path: str
    headers: Mapping[str, str]
    cookie: str | None = None
    address: str | None = None


@dataclass(frozen=True, slots=True)
class Access:
    """What this server demands. `names`: lower case; `token` None: none.

    `proxies`: addresses whose word is taken on whether the way to the browser is encrypted.
    """

    names: Collection[str] = LOCAL_NAMES
    token: str | None = None
    proxies: Collection[str] = ()

    def judge(self, asked: RequestHead, now_s: float) -> tuple[AccessVerdict, str]:
        """What to do about it at a unix time, and why."""
        host = host_of(asked.headers.get("host", ""))
        if host is None or not (host in self.names or _is_address(host, asked.address)):
            return AccessVerdict.WRONG_HOST, "this server was not given that name (--allow-host)"
        is_login = asked.path == LOGIN and asked.method == "POST"
        if asked.method not in METHODS and not is_login:
            return AccessVerdict.WRONG_METHOD, "this server only shows"
        if (why := _is_foreign(asked, host)) is not None:
            return AccessVerdict.FORBIDDEN, why
        if self.token is None or asked.path == LOGIN:
            return AccessVerdict.SERVE, "no token is demanded"
        if self.is_token(_bearer(asked.headers)) or self.is_session(asked.cookie, now_s):
            return AccessVerdict.SERVE, "it has the token"
        return AccessVerdict.LOG_IN, "it has no token, or an old one"

    def is_token(self, given: str | None) -> bool:
        """Whether that is the token; takes as long for any wrong one."""
        if self.token is None or given is None:
            return False
        return hmac.compare_digest(_digest(given), _digest(self.token))

    def session(self, now_s: float) -> str:
        """What the cookie of who gave the token holds: until when, and that we said so."""
        until = str(int(now_s) + SESSION_S)
        return f"{until}.{self._signed(until)}"

    def is_session(self, cookie: str | None, now_s: float) -> bool:
        """Whether a cookie is one of ours and still good; not once the token was changed."""
        if self.token is None or cookie is None:
            return False
        until, _, signed = cookie.partition(".")
        is_ours = hmac.compare_digest(
            self._signed(until).encode(), signed.encode("utf-8", "replace")
        )
        if not is_ours or not until.isascii() or not until.isdigit() or len(until) > 12:
            return False
        return now_s < int(until) <= now_s + SESSION_S

    def _signed(self, until: str) -> str:
        key = _digest(self.token or "")
        return hmac.new(key, f"holdfast serve until {until}".encode(), hashlib.sha256).hexdigest()


def host_of(header: str) -> str | None:
    """The host of a Host header or an origin's rest, lower case, without its port; None: none."""
    if not header or len(header) > _MAX_HOST_CHARS or any(c in header for c in "/@?#\\ ,"):
        return None
    if header.startswith("["):
        host, bracket, rest = header[1:].partition("]")
        is_good = bracket and _is_port(rest)
    else:
        host, colon, rest = header.partition(":")
        is_good = _is_port(colon + rest)
    return host.lower().rstrip(".") or None if is_good else None


def _is_port(text: str) -> bool:
    return not text or (text[0] == ":" and text[1:].isascii() and text[1:].isdigit())


def _is_address(host: str, address: str | None) -> bool:
    """Whether the host is the very address; an address cannot be rebound."""
    if address is None:
        return False
    try:
        return ipaddress.ip_address(host) == ipaddress.ip_address(address)
    except ValueError:
        return False


def _is_foreign(asked: RequestHead, host: str) -> str | None:
    """Why a request comes from elsewhere; None: it does not."""
    origin = asked.headers.get("origin")
    if origin is not None:
        scheme, _, rest = origin.partition("://")
        same = scheme in ("http", "https") and rest.lower() == asked.headers["host"].lower()
        if not same or host_of(rest) != host:
            return "it was sent by a page of another origin"
    site = asked.headers.get("sec-fetch-site")
    if site in (None, "same-origin", "none"):
        return None
    is_link = asked.method in METHODS and asked.headers.get("sec-fetch-mode") == "navigate"
    if is_link and asked.headers.get("sec-fetch-dest") == "document":
        return None
    return "it was sent by a page of another origin"


def _bearer(headers: Mapping[str, str]) -> str | None:
    value = headers.get("authorization", "")
    return value[len(_BEARER) :].strip() if value.lower().startswith(_BEARER) else None


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()
