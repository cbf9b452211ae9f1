"""Who may ask what, by a request's head alone."""

from __future__ import annotations

import pytest

from holdfast.serve.access import SESSION_S, Access, AccessVerdict, RequestHead, host_of

TOKEN = "a-token-of-many-characters"
NOW_S = 1_800_000_000.0
GOOD = {"host": "localhost:8470"}


def verdict(access: Access, method: str = "GET", path: str = "/", **more: str) -> AccessVerdict:
    cookie = more.pop("cookie", None)
    headers = GOOD | {name.replace("_", "-"): value for name, value in more.items()}
    return access.judge(RequestHead(method, path, headers, cookie, "10.0.0.7"), NOW_S)[0]


@pytest.mark.parametrize(
    ("header", "host"),
    [
        ("localhost", "localhost"), ("LocalHost:80", "localhost"), ("127.0.0.1:8470", "127.0.0.1"),
        ("[::1]:8470", "::1"), ("[::1]", "::1"), ("localhost.:80", "localhost"),
        ("", None), ("a/b", None), ("a@b", None), ("a:b", None), ("[::1", None), ("[::1]x", None),
        ("a b", None), ("a,b", None), ("a:80:80", None), ("x" * 300, None), ("a\\b", None),
    ],
)  # fmt: skip
def test_hosts(header: str, host: str | None) -> None:
    assert host_of(header) == host


def test_a_name_that_was_pointed_here_is_not_served() -> None:
    access = Access()
    for host in ("localhost", "127.0.0.1:1", "[::1]:80", "10.0.0.7", "10.0.0.7:8470"):
        assert verdict(access, host=host) is AccessVerdict.SERVE, host
    for host in ("evil.example", "localhost.evil.example", "10.0.0.8", "", "127.0.0.1.nip.io",
                 "0.0.0.0", "localhost,evil.example"):  # fmt: skip
        assert verdict(access, host=host) is AccessVerdict.WRONG_HOST, host
    assert (
        verdict(Access(frozenset({"runs.example"})), host="runs.example:1") is AccessVerdict.SERVE
    )


def test_another_origin_is_not_served() -> None:
    access = Access()
    assert verdict(access, origin="http://localhost:8470") is AccessVerdict.SERVE
    for origin in ("http://localhost:8471", "http://evil.example", "null", "",
                   "file://localhost:8470", "http://evil.example@localhost:8470"):  # fmt: skip
        assert verdict(access, origin=origin) is AccessVerdict.FORBIDDEN, origin
    assert verdict(access, sec_fetch_site="same-origin") is AccessVerdict.SERVE
    assert verdict(access, sec_fetch_site="cross-site") is AccessVerdict.FORBIDDEN
    link = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"}
    assert verdict(access, **link, sec_fetch_dest="document") is AccessVerdict.SERVE
    assert verdict(access, **link, sec_fetch_dest="iframe") is AccessVerdict.FORBIDDEN
    assert (
        verdict(access, "POST", "/login", **link, sec_fetch_dest="document")
        is AccessVerdict.FORBIDDEN
    )


def test_only_looking_is_allowed() -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE"):
        assert verdict(Access(), method) is AccessVerdict.WRONG_METHOD
    assert verdict(Access(), "POST", "/login") is AccessVerdict.SERVE
    assert verdict(Access(), "HEAD") is AccessVerdict.SERVE


def test_a_token_opens_by_cookie_and_by_bearer_alone() -> None:
    access = Access(token=TOKEN)
    assert verdict(access) is AccessVerdict.LOG_IN
    assert verdict(access, path="/login") is AccessVerdict.SERVE
    assert verdict(access, authorization=f"Bearer {TOKEN}") is AccessVerdict.SERVE
    assert verdict(access, authorization=f"bearer {TOKEN} ") is AccessVerdict.SERVE
    for wrong in (f"Bearer {TOKEN}x", "Bearer ", f"Basic {TOKEN}", TOKEN, "Bearer \xe9"):
        assert verdict(access, authorization=wrong) is AccessVerdict.LOG_IN, wrong
    session = access.session(NOW_S)
    assert verdict(access, cookie=session) is AccessVerdict.SERVE
    assert access.is_session(session, NOW_S + SESSION_S - 2)
    assert not access.is_session(session, NOW_S + SESSION_S + 2)
    assert not Access(token=TOKEN + "2").is_session(session, NOW_S)  # the token was changed
    until, _, signed = session.partition(".")
    for forged in (f"{int(until) + 9}.{signed}", f"{until}.", until, "", ".", f"{until}.é",
                   f"{until}.{signed}0", "9" * 5000, TOKEN):  # fmt: skip
        assert verdict(access, cookie=forged) is AccessVerdict.LOG_IN, forged
    far = str(int(NOW_S) + 10 * SESSION_S)
    assert not access.is_session(f"{far}.{access._signed(far)}", NOW_S)
