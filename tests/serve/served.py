"""A server of a store, as a process of its own, and who asks it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

LIMIT_S = 120.0  # generous: only a hang comes near it


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    text: str


class Events:
    """A stream of server-sent events that is read as it comes."""

    def __init__(self, response: http.client.HTTPResponse, connection: http.client.HTTPConnection):
        self.response = response
        self.connection = connection
        self.mark = ""

    def next(self) -> dict[str, dict[str, str]]:
        """The next event's data; its id is the mark."""
        name, data = "", None
        while line := self.response.readline().decode().rstrip("\n"):
            if line.startswith("id: "):
                self.mark = line[4:]
            if line.startswith("event: "):
                name = line[7:]
            if line.startswith("data: "):
                data = json.loads(line[6:])
        return data if data is not None and name == "parts" else self.next()

    def until(self, true: Callable[[dict[str, dict[str, str]]], bool]) -> dict[str, dict[str, str]]:
        """The first that is so."""
        while not true(found := self.next()):
            pass
        return found

    def close(self) -> None:
        self.response.close()
        self.connection.close()


class Served:
    def __init__(
        self, process: subprocess.Popen[str], host: str, port: int, word: str = ""
    ) -> None:
        self.process, self.host, self.port, self.word = process, host, port, word
        self.streams: list[Events] = []  # of a failed test, too: not left to the next

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.host, self.port, timeout=LIMIT_S)

    def get(
        self, path: str, method: str = "GET", body: str | None = None, **headers: str
    ) -> Answer:
        connection = self.connect()
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, given)
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        heads = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, heads, text)

    def events(self, path: str) -> Events:
        connection = self.connect()
        connection.request("GET", path)
        response = connection.getresponse()
        assert response.status == 200
        self.streams.append(Events(response, connection))
        return self.streams[-1]

    def end(self) -> int:
        for stream in self.streams:
            stream.close()
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(LIMIT_S)


@contextmanager
def serving(mirror: Path) -> Iterator[Callable[..., Served]]:
    """Serves stores, with whatever flags are given, until the block is left.

    Without a token, unless a flag names one, or "--invite" leaves it to the usual link.
    """
    begun: list[Served] = []

    def begin(store: Path | str, *flags: str) -> Served:
        process = subprocess.Popen(
            [sys.executable, "-m", "holdfast.cli.main", "serve", "--store", store, "--port", "0",
             *(() if {"--token-file", "--invite"} & {*flags} else ("--no-token",)),
             *(flag for flag in flags if flag != "--invite")],
            stderr=subprocess.PIPE, text=True,
            env={**os.environ, "HOLDFAST_MIRROR": str(mirror)},
        )  # fmt: skip
        assert process.stderr is not None
        line = process.stderr.readline()
        assert "http://" in line, line + process.stderr.read()
        host, port = line.split("http://")[1].split("/")[0].rsplit(":", 1)
        word = line.partition("token=")[2].strip()
        begun.append(Served(process, host, int(port), word))
        return begun[-1]

    try:
        yield begin
    finally:
        for one in begun:
            if one.process.poll() is None:
                one.end()
            if one.process.stderr is not None:
                one.process.stderr.close()
