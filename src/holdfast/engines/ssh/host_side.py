"""What Holdfast does on a host before it is there: sent over SSH, and run by the host's own Python.

It needs nothing but the standard library of Python 3.7. Orders come on standard input, one JSON
object a line; each is answered by a line, and it ends when the connection does. What it has started
goes on: the run's process has a session of its own.

    ~/.holdfast/pushed/RUN-ID/trees/HASH/    a working tree, whole or not there
                              HASH.tar.gz    the archive that it came in, for other hosts
                              installed.json, install.log, job.json, job.code, job.log, secret
                              folder         something drawn, by which hosts with one home show
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import ipaddress
import json
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path
from typing import Any, BinaryIO

PIECE_BYTES = 1 << 18
LOG_BYTES = 1 << 16  # of an answer
TAIL_BYTES = 2000
DIAL_S = 10.0
STALL_S = 60.0
TOKEN_S = 5.0  # for who has dialled to say all of it
MOST_STRANGERS = 64  # who have not; each has a thread
PAUSE_S = 0.1
KILL_S = 5.0
MARK = "HOLDFAST_SSH_JOB"  # in the environment of all that a job has started
# What a job ended with is known although nobody was connected then.
WRAPPER = (
    "trap : TERM INT HUP; code=$1; shift; "
    '"$@"; ended=$?; echo "$ended" > "$code.new" && mv "$code.new" "$code"'
)


class HostError(Exception):
    """A sentence for who is connected."""


class Archive:
    """An archive as it arrives. Other hosts may read it meanwhile; nobody believes it before."""

    def __init__(self, path: Path, total: int, there: int = 0) -> None:
        self.total, self.there = total, there
        self.file = path.open("r+b" if there else "w+b")  # under whatever name it is later on
        self.changed = threading.Condition()
        self.is_broken = False

    def take(self, source: Any, digest: str) -> None:
        """All of it, into the file; raises HostError when it is not that archive."""
        seen = hashlib.sha256()
        try:
            while self.there < self.total:
                piece = source.read(min(PIECE_BYTES, self.total - self.there))
                if not piece:
                    raise HostError("the connection ended in the middle of the archive")
                self.file.write(piece)
                self.file.flush()
                seen.update(piece)
                with self.changed:
                    self.there += len(piece)
                    self.changed.notify_all()
            if not hmac.compare_digest(seen.hexdigest(), digest):
                raise HostError("what came is not the archive that was announced")
        except BaseException:
            with self.changed:
                self.is_broken = True
                self.changed.notify_all()
            raise

    def give(self, peer: socket.socket) -> None:
        """All of it to another host, as it comes."""
        sent = 0
        while sent < self.total and self._has_more_than(sent):
            piece = os.pread(self.file.fileno(), PIECE_BYTES, sent)
            peer.sendall(piece)
            sent += len(piece)

    def _has_more_than(self, count: int) -> bool:
        """Whether more is there, once it is; False where nothing comes any more."""
        with self.changed:
            self.changed.wait_for(lambda: self.there > count or self.is_broken, STALL_S)
            return self.there > count and not self.is_broken


class ArchiveServer:
    """Gives an archive to who knows the token; of others the oldest goes for the next."""

    def __init__(self, archive: Archive, token: str) -> None:
        self.archive, self.token = archive, token.encode()
        self.lock = threading.Lock()
        self.strangers: list[socket.socket] = []  # the oldest first

    def serve(self, server: socket.socket) -> None:
        """Until that is closed."""
        while server.fileno() >= 0:
            try:
                peer, _ = server.accept()
            except OSError:  # closed, or there are no descriptors left
                time.sleep(PAUSE_S)
                continue
            with self.lock:
                self.strangers.append(peer)
                if len(self.strangers) > MOST_STRANGERS:
                    with contextlib.suppress(OSError):  # its thread hears of it
                        self.strangers.pop(0).shutdown(socket.SHUT_RDWR)
            threading.Thread(target=self._give, args=(peer,), daemon=True).start()

    def _give(self, peer: socket.socket) -> None:
        with contextlib.suppress(OSError), peer:
            try:
                is_known = self._knows(peer)
            finally:
                with self.lock, contextlib.suppress(ValueError):  # it had to go
                    self.strangers.remove(peer)
            if is_known:
                peer.settimeout(STALL_S)
                self.archive.give(peer)

    def _knows(self, peer: socket.socket) -> bool:
        said, until_s = b"", time.monotonic() + TOKEN_S
        while len(said) < len(self.token):
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return False
            peer.settimeout(left_s)
            piece = peer.recv(len(self.token) - len(said))
            if not piece:
                return False
            said += piece
        return hmac.compare_digest(said, self.token)


class HostHere:
    """The host on which it runs, for one run. `source`: where orders come from."""

    def __init__(self, folder: Path, source: BinaryIO) -> None:
        self.folder, self.source = folder, source
        self.trees = folder / "trees"
        self.serving: socket.socket | None = None

    def look(self, order: dict[str, Any]) -> dict[str, Any]:
        """How it stands here, and what the job has printed since."""
        self.trees.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in (self.folder.parent, self.folder):
            path.chmod(0o700)
        told = os.environ.get("SSH_CONNECTION", "").split()
        log, at = self._log(int(order.get("log_at", 0)))
        return {
            "hostname": socket.gethostname(),
            "boot_id": _boot_id(),
            "boot_unix_ns": _boot_unix_ns(),
            "folder": self._mark(),
            "address": told[2] if len(told) == 4 and _leads_here(told[2]) else "",
            "python": list(sys.version_info[:3]),
            "machine": platform.machine(),
            "trees": sorted(one.name for one in self.trees.iterdir()),
            "pushed": self._json("pushed.json"),
            "installed": self._json("installed.json"),
            "job": self._job(),
            "now_unix_ns": time.time_ns(),
            "log": log,
            "log_at": at,
        }

    def push(self, order: dict[str, Any]) -> dict[str, Any]:
        """Take a working tree, from who is connected or from another host."""
        digest, total = order["tree"], int(order["bytes"])
        self._write("pushed.json", json.dumps({"tree": digest, "unix_ns": time.time_ns()}))
        self.clear()
        free = shutil.disk_usage(str(self.folder)).free
        wanted = total + int(order["unpacked_bytes"])
        if free < wanted:
            raise HostError(
                f"the disk of {self.folder} has {free >> 20} MiB left, and the tree needs "
                f"{(wanted >> 20) + 1}"
            )
        part = self.folder / f"{digest}.part"
        archive = Archive(part, total)
        self._serve(archive, order["token"])
        if order["from"] is None:
            archive.take(self.source, digest)
        else:
            with _dialled(order["from"], order["token"]) as peer, peer.makefile("rb") as stream:
                archive.take(stream, digest)
        self._unpack(part, digest)
        whole = self.folder / f"{digest}.tar.gz"
        part.rename(whole)
        for old in self.folder.glob("*.tar.gz"):
            if old != whole:
                old.unlink()
        return {}

    def offer(self, order: dict[str, Any]) -> dict[str, Any]:
        """Have other hosts take a tree that is here."""
        whole = self.folder / f"{order['tree']}.tar.gz"
        if not whole.exists():
            raise HostError("its archive is not here any more")
        size = whole.stat().st_size
        self._serve(Archive(whole, size, size), order["token"])
        return {}

    def install(self, order: dict[str, Any]) -> dict[str, Any]:
        """The user's command in the tree; what it printed last is told where it fails.

        One whose connection was cut goes on, and is waited for: two at once would break both.
        """
        with (self.folder / "install.lock").open("wb") as lock:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(lock, fcntl.LOCK_EX)
            known: dict[str, Any] = self._json("installed.json") or {}
            found = [known.get(one) for one in ("tree", "command", "code")]
            if known.get("version") and found == [order["tree"], order["command_digest"], 0]:
                return known
            return self._install(order)

    def _install(self, order: dict[str, Any]) -> dict[str, Any]:
        before = time.time_ns()
        log = self.folder / "install.log"
        with log.open("wb") as out:
            code = subprocess.call(
                ["/bin/sh", "-c", order["command"]],
                cwd=str(self.trees / order["tree"]),
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        version = self._version(order["program"]) if code == 0 else ""
        told = {
            "tree": order["tree"],
            "command": order["command_digest"],
            "code": code,
            "version": version,
            "start_unix_ns": before,
            "end_unix_ns": time.time_ns(),
            "tail": "" if code == 0 else _read(log)[-TAIL_BYTES:],
        }
        self._write("installed.json", json.dumps(told))
        return told

    def start(self, order: dict[str, Any]) -> dict[str, Any]:
        """The run, in a session of its own; again while it runs is harmless."""
        known = self._job()
        if known["state"] == "running":
            return known
        end_all(self.folder.name, signal.SIGKILL)  # of one that has died and left something
        if order["secret"] is not None:
            self._write("secret", order["secret"], mode=0o600)
        words = [str(self.folder / "secret") if one is None else one for one in order["words"]]
        self._write("job.code", "")  # none yet
        environment = dict(self._environment(), **order["environment"])
        environment[MARK] = self.folder.name
        with (self.folder / "job.log").open("ab") as out:
            process = subprocess.Popen(
                ["/bin/sh", "-c", WRAPPER, "sh", str(self.folder / "job.code"), *words],
                cwd=str(self.trees / order["tree"]),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        told = {
            "pid": process.pid,
            "ticks": _ticks(process.pid),
            "boot_id": _boot_id(),
            "tree": order["tree"],
            "index": order["index"],
            "since_unix_ns": time.time_ns(),
        }
        self._write("job.json", json.dumps(told))
        return self._job()

    def end(self, order: dict[str, Any]) -> dict[str, Any]:
        """Have the job end, in the time that is given to it; then all that it has left."""
        job = self._job()
        grace_s = float(order["grace_s"]) if job["state"] == "running" else 0.0
        if grace_s:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(job["pid"], signal.SIGTERM)
        for number, limit_s in ((0, grace_s), (signal.SIGKILL, KILL_S)):
            give_up = time.monotonic() + limit_s
            while end_all(self.folder.name, number) and time.monotonic() < give_up:
                time.sleep(0.02)  # the controller, too, gives the run back
        return self._job()

    def clear(self) -> None:
        """Away with what was begun and not ended."""
        for part in self.folder.glob("*.part"):
            with contextlib.suppress(OSError):
                shutil.rmtree(str(part)) if part.is_dir() else part.unlink()

    # --- its parts ------------------------------------------------------------------------------

    def _serve(self, archive: Archive, token: str) -> None:
        """Who knows the token gets the archive, as long as this connection lives."""
        if self.serving is not None:
            self.serving.close()
        server = self.serving = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        server.bind(("0.0.0.0", 0))  # noqa: S104 - whoever dials must know the token
        server.listen(64)
        serve = ArchiveServer(archive, token).serve
        threading.Thread(target=serve, args=(server,), daemon=True).start()
        say({"port": server.getsockname()[1]})

    def _unpack(self, archive: Path, digest: str) -> None:
        target = self.trees / digest
        if target.exists():
            return
        draft = self.folder / "tree.part"
        draft.mkdir()
        how: dict[str, Any] = {"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}
        with tarfile.open(str(archive), "r:gz") as tar:
            tar.extractall(str(draft), **how)  # noqa: S202
        os.sync()  # a power cut must leave no empty files under a name that is trusted
        draft.rename(target)

    def _job(self) -> dict[str, Any]:
        job: dict[str, Any] = self._json("job.json") or {}
        if not job:
            return {"state": "none"}
        is_same = job.get("boot_id") == _boot_id()
        if is_same and job.get("ticks") and _ticks(job["pid"]) == job["ticks"]:
            return dict(job, state="running")
        path = self.folder / "job.code"
        code = _read(path).strip()
        if not code.isdigit():
            return dict(job, state="ended", code=None)
        ago_ns = time.time_ns() - path.stat().st_mtime_ns
        return dict(job, state="ended", code=int(code), ended_ago_ns=ago_ns)

    def _log(self, at: int) -> tuple[str, int]:
        """What was printed since that place, whole lines; -1: the last lines alone."""
        path = self.folder / "job.log"
        try:
            size = path.stat().st_size
            with path.open("rb") as log:
                at = max(0, size - TAIL_BYTES) if at < 0 or at > size else at
                log.seek(at)
                found = log.read(LOG_BYTES)
        except OSError:
            return "", max(at, 0)
        cut = found.rfind(b"\n") + 1 or (len(found) if len(found) == LOG_BYTES else 0)
        return found[:cut].decode(errors="replace"), at + cut

    def _environment(self) -> dict[str, str]:
        own = str(Path.home() / ".local" / "bin")  # of `pip install --user`
        return dict(os.environ, PATH=os.pathsep.join([own, os.environ.get("PATH", os.defpath)]))

    def _version(self, program: list[str]) -> str:
        nothing = subprocess.DEVNULL
        try:
            said = subprocess.check_output(
                [*program, "--version"], env=self._environment(), stdin=nothing, stderr=nothing
            )
        except (OSError, subprocess.CalledProcessError):
            return ""
        return (said.decode(errors="replace").split() or [""])[-1]

    def _mark(self) -> str:
        """The same wherever this very folder is: hosts with one home could not be told apart."""
        path = self.folder / "folder"
        with contextlib.suppress(FileExistsError), path.open("x") as mark:
            mark.write(os.urandom(16).hex())
        return _read(path)

    def _json(self, name: str) -> Any:
        try:
            return json.loads(_read(self.folder / name))
        except ValueError:
            return None

    def _write(self, name: str, text: str, mode: int = 0o666) -> None:
        draft = self.folder / f"{name}.new"
        draft.touch(mode)
        draft.write_text(text)
        draft.rename(self.folder / name)


def end_all(mark: str, number: int) -> int:
    """A signal (0: none) to all processes that a job has started; how many there are."""
    wanted = f"{MARK}={mark}".encode()
    found = 0
    for pid in (int(one.name) for one in Path("/proc").glob("[0-9]*")):
        with contextlib.suppress(OSError):  # it has ended
            around = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            if wanted in around and pid != os.getpid():
                os.kill(pid, number)
                found += 1
    return found


def _dialled(place: list[Any], token: str) -> socket.socket:
    """A host that gives the archive on."""
    address, port = place
    try:
        peer = socket.create_connection((address, port), DIAL_S)
        peer.settimeout(STALL_S)
        peer.sendall(token.encode())
    except OSError as error:
        raise HostError(f"{address} cannot be reached ({error})") from error
    return peer


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _ticks(pid: int) -> int:
    """When a process began, in ticks of the kernel; 0: there is none, or it has ended."""
    fields = _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return int(fields[19]) if len(fields) > 19 and fields[0] not in "ZX" else 0


def _leads_here(address: str) -> bool:
    """Whether other hosts reach this one by it: behind a tunnel it is this machine's own loop."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return not (found.is_loopback or found.is_link_local)


def _boot_id() -> str:
    return _read(Path("/proc/sys/kernel/random/boot_id")).strip()


def _boot_unix_ns() -> int:
    told = dict(line.partition(" ")[::2] for line in _read(Path("/proc/stat")).splitlines())
    return int(told.get("btime", 0)) * 10**9


def say(answer: dict[str, Any]) -> None:
    """A line for who is connected."""
    print(json.dumps(answer), flush=True)


def main(folder: str) -> None:
    """Obey until the connection ends."""
    source = sys.stdin.buffer
    print(flush=True)  # a shell's start may have left a line without an end
    host = HostHere(Path.home() / ".holdfast" / "pushed" / folder, source)
    while True:
        line = source.readline()
        if not line:
            os._exit(0)  # also where a thread still gives an archive away
        order = json.loads(line)
        try:
            say({"ok": getattr(host, order["do"])(order)})
        except (HostError, OSError) as error:
            host.clear()
            say({"error": str(error)})
            if order["do"] == "push" and order["from"] is None:
                os._exit(1)  # what follows on this connection is the rest of the archive
