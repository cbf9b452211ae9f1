"""One host, connected: orders go there as lines, and answers come back."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from holdfast.core.hosts.reach import ReachedHost, Unreached
from holdfast.engines.protocol import EngineError
from holdfast.engines.ssh.words import Reach, Target, complaint, connect_words

PIECE_BYTES = 1 << 18
ORDER_LIMIT_S = 120.0
LOOK_LIMIT_S = 5.0  # of who has answered before: a machine that is gone says no goodbye
_HOST_SIDE = Path(__file__).with_name("host_side.py")


class ConnectionLostError(EngineError):
    """The host cannot be reached, or not any more; `unreached` says how that stands."""

    def __init__(self, unreached: Unreached) -> None:
        super().__init__(unreached.words)
        self.unreached = unreached


class HostRefusedError(EngineError):
    """The host could not do as it was told; its own words."""


class HostSession:
    """A connection to one host, for one run's folder there. Of one thread at a time."""

    def __init__(self, reach: Reach, target: Target, folder: str) -> None:
        self.target = target
        self._has_answered = self._has_looked = False
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        program = _HOST_SIDE.read_bytes() + f"\nmain({folder!r})\n".encode()
        try:
            self._client = subprocess.Popen(
                connect_words(reach, target),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._said,
                start_new_session=True,  # Ctrl-C is for us: a push is not to end in the middle
            )
        except OSError as error:
            self._said.close()
            raise EngineError(f"{error.filename} cannot be started ({error.strerror})") from error
        with contextlib.suppress(ConnectionLostError):  # the first order says so
            self._write(b"%d\n" % len(program) + program)

    def close(self) -> None:
        """End the connection; what runs over there goes on."""
        self._client.kill()
        self._client.wait()
        for pipe in (self._client.stdin, self._client.stdout):
            with contextlib.suppress(OSError):
                pipe and pipe.close()
        self._said.close()

    def look(self, log_at: int) -> ReachedHost:
        """How it stands there."""
        try:
            limit_s = LOOK_LIMIT_S if self._has_looked else ORDER_LIMIT_S
            order = {"do": "look", "log_at": log_at}
            found = ReachedHost.from_json(self.ask(order, limit_s=limit_s))
            self._has_looked = True
            return found
        except ValueError as error:
            raise HostRefusedError(f"it answers what cannot be ({error})") from error

    def ask(
        self,
        order: Mapping[str, Any],
        source: Path | None = None,
        on_port: Callable[[int], None] = lambda _port: None,
        limit_s: float | None = ORDER_LIMIT_S,
    ) -> dict[str, Any]:
        """The answer to an order, which a file may follow. Raises as the classes above.

        `on_port`: told where other hosts get what it takes.
        """
        watch = threading.Timer(limit_s, self._client.kill) if limit_s is not None else None
        if watch is not None:
            watch.daemon = True
            watch.start()
        try:
            return self._asked(order, source, on_port)
        finally:
            if watch is not None:
                watch.cancel()

    def _asked(
        self, order: Mapping[str, Any], source: Path | None, on_port: Callable[[int], None]
    ) -> dict[str, Any]:
        self._write(json.dumps(order).encode() + b"\n")
        sender = None
        if source is not None:
            sender = threading.Thread(target=self._send, args=(source,), daemon=True)
            sender.start()
        try:
            while True:
                answer = self._read()
                if "port" in answer:
                    on_port(int(answer["port"]))
                elif "error" in answer:
                    raise HostRefusedError(str(answer["error"]))
                else:
                    found = answer.get("ok")
                    return found if isinstance(found, dict) else {}
        finally:
            if sender is not None:
                sender.join(ORDER_LIMIT_S)

    def _send(self, path: Path) -> None:
        """A file; where it ends early the answer says why."""
        with contextlib.suppress(ConnectionLostError), path.open("rb") as source:
            while piece := source.read(PIECE_BYTES):
                self._write(piece)

    def _write(self, data: bytes) -> None:
        pipe = self._client.stdin
        try:
            assert pipe is not None  # noqa: S101
            pipe.write(data)
            pipe.flush()
        except (OSError, ValueError):
            raise self._lost() from None

    def _read(self) -> dict[str, Any]:
        pipe = self._client.stdout
        while pipe is not None and (line := pipe.readline()):
            with contextlib.suppress(ValueError):  # what a shell over there says at its start
                found = json.loads(line)
                if isinstance(found, dict):
                    self._has_answered = True
                    return found
        raise self._lost()

    def _lost(self) -> ConnectionLostError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._client.wait(5.0)
        said = os.pread(self._said.fileno(), 1 << 16, 0).decode(errors="replace")
        code = self._client.poll()
        code = 255 if code is None else code
        return ConnectionLostError(complaint(code, said, has_answered=self._has_answered))
