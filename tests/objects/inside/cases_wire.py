"""What goes over the wire to a service that answers in its own way: a small server plays it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from holdfast.errors import StoreUnavailable
from holdfast.journal import objects
from holdfast.journal.objects import Bucket, parse_place


class PlayedService(ThreadingHTTPServer):
    """Answers 204, and 404 to a path that it has not or does not have any more."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), PlayedAnswers)
        self.asked: list[str] = []
        self.conflicts = 0  # so many objects are refused for one that is being made
        self.refusal: tuple[int, bytes] | None = None  # to everything
        self.objects: set[str] = set()
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()


class PlayedAnswers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: PlayedService

    def answer(self) -> None:
        self.server.asked.append(self.path)
        is_there = self.path in self.server.objects
        self.server.objects.discard(self.path)
        status, words = self.server.refusal or (204 if is_there else 404, b"")
        self.send_response(status)
        self.send_header("Content-Length", str(len(words)))
        self.end_headers()
        self.wfile.write(words)

    do_GET = do_DELETE = answer

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.server.asked.append(self.path)
        self.send_response(409 if self.server.conflicts else 200)
        self.server.conflicts = max(0, self.server.conflicts - 1)
        self.send_header("Content-Length", "0")
        self.send_header("ETag", '"a-version"')
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def service() -> Iterator[PlayedService]:
    with PlayedService() as service:
        yield service
        service.shutdown()


@pytest.fixture
def s3(service: PlayedService, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "not-to-be-shown")
    monkeypatch.setenv("AWS_ENDPOINT_URL", service.url)
    return Bucket(parse_place("s3://bucket/runs"))


def test_what_is_not_there_keeps_nothing_else_from_being_removed(
    service: PlayedService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Google's service is asked for each object by itself, and a lost answer is asked for again.
    account = {"gcs_base_url": service.url, "disable_oauth": True}
    account |= dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
    (tmp_path / "account.json").write_text(json.dumps(account))
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", str(tmp_path / "account.json"))
    monkeypatch.setattr(objects, "uses_plain_http", lambda _scheme: True)
    service.objects |= {f"/bucket/runs%2F{number}" for number in range(40)}
    bucket = Bucket(parse_place("gs://bucket/runs"))
    bucket.delete(["gone", *map(str, range(40))])
    assert service.objects == set()
    bucket.delete(["gone"])


@pytest.mark.parametrize("place", ["gs://bucket/runs", "s3://bucket/runs"])
def test_a_proxy_is_never_asked_for_this_machines_identity(
    service: PlayedService, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setattr(objects, "QUICK_S", 0.1)
    monkeypatch.setenv("HTTP_PROXY", service.url)
    monkeypatch.setenv("NO_PROXY", "example.com")
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        Bucket(parse_place(place, instance=True)).get("x", 1)
    assert service.asked == []


def test_a_conflict_that_comes_to_nothing_is_tried_again(
    service: PlayedService, s3: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "CONFLICTS_S", (0.0, 0.0, 0.0))
    service.conflicts = 2
    assert s3.create("claim", b"mine") == '"a-version"'
    service.conflicts = 3
    with pytest.raises(StoreUnavailable, match="others try to, too; try again"):
        s3.create("claim", b"mine")


def test_credentials_that_have_expired_are_named(service: PlayedService, s3: Bucket) -> None:
    service.refusal = 400, b"<Error><Code>ExpiredToken</Code><Message>expired</Message></Error>"
    with pytest.raises(StoreUnavailable, match="s3://bucket have expired; renew them") as raised:
        s3.get("x", 1)
    assert "not-to-be-shown" not in str(raised.value)
