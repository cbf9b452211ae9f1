"""A standby's task, and its two pipes: JSON lines from and to the one who started it."""

from __future__ import annotations

import json
import os
import signal
import sys

from . import priority

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

VARIABLE = "HOLDFAST_STANDBY_TASK"
PATHS = "PYTHONPATH"
NOT_FOUND = 127  # what a shell exits with when a command cannot be started


class Task:
    """The value of HOLDFAST_STANDBY_TASK.

    `stage` is which of its lives the process is in; `pythonpath` what PYTHONPATH was before we put
    ourselves in front of it, None: not set. `is_lowered`: we have made the process idle.
    `server_of`: the agent for which this is the fork server (`server`); 0: this waits to be a rank.
    """

    __slots__ = (
        "argv", "imports", "is_lowered", "pythonpath", "server_of", "stage", "status_fd", "wake_fd"
    )  # fmt: skip

    def __init__(self, fields: dict[str, Any]) -> None:
        self.wake_fd: int = fields["wake_fd"]
        self.status_fd: int = fields["status_fd"]
        self.imports: str = fields["imports"]
        self.argv: list[str] = fields["argv"]
        self.stage: str = fields.get("stage", "begin")
        self.is_lowered: bool = fields.get("is_lowered", False)
        self.server_of: int = fields.get("server_of", 0)
        self.pythonpath: str | None = fields.get("pythonpath", os.environ.get(PATHS))

    @classmethod
    def take(cls) -> Task:
        """From the environment, which then is what the user's program would have found."""
        task = cls(json.loads(os.environ.pop(VARIABLE)))
        if task.pythonpath is None:
            os.environ.pop(PATHS, None)
        else:
            os.environ[PATHS] = task.pythonpath
        return task

    def environment(self, stage: str, folder: str) -> dict[str, str]:
        """For the next life: our folder in front of the user's paths, and this task."""
        fields = {name: getattr(self, name) for name in self.__slots__} | {"stage": stage}
        paths = folder if not self.pythonpath else folder + os.pathsep + self.pythonpath
        return dict(os.environ) | {PATHS: paths, VARIABLE: json.dumps(fields)}

    def tell(self, event: str, **fields: Any) -> None:
        """One line; if nobody is there to read it, nobody is told."""
        data = (json.dumps({"event": event, **fields}) + "\n").encode()
        while data:
            try:
                data = data[os.write(self.status_fd, data) :]
            except OSError:
                return

    def tell_ready(self, **fields: Any) -> None:
        """All is imported; with what waiting costs: resident memory, and our share of it."""
        self.tell("ready", modules=len(sys.modules), **fields, **_memory())

    def read_line(self) -> bytes:
        """The next line that comes; at the end of the pipe nobody wants this process any more."""
        line = b""
        while not line.endswith(b"\n"):
            # A byte at a time would be slow for an environment, and a line more may be on its way.
            data = os.read(self.wake_fd, 1 << 16)
            if not data:
                os._exit(0)
            line += data
        return line

    def close(self) -> None:
        """Leave no descriptor behind."""
        os.close(self.wake_fd)
        os.close(self.status_fd)


def _memory() -> dict[str, int]:
    wanted = {b"Rss:": "rss_bytes", b"Pss:": "pss_bytes"}
    found = {}
    try:
        with open("/proc/self/smaps_rollup", "rb") as file:
            for line in file:
                words = line.split()
                if words[0] in wanted:
                    found[wanted[words[0]]] = int(words[1]) << 10
    except OSError:
        pass
    return found


class Wake:
    """What a standby is woken with. `is_held`: one more line comes before the program may run.

    `is_beside`: it runs beside others that train, and gives way to them.
    """

    __slots__ = ("argv", "cwd", "env", "is_beside", "is_held", "was_freed")

    def __init__(self, lines: bytes) -> None:
        first, _, more = lines.partition(b"\n")
        fields = json.loads(first)
        self.argv: list[str] = fields["argv"]
        self.env: dict[str, str] = fields["env"]
        self.cwd: str = fields["cwd"]
        self.is_held: bool = fields.get("hold", False)
        self.is_beside: bool = fields.get("beside", False)
        self.was_freed = bool(more)  # the second line came with the first

    def await_go(self, task: Task) -> None:
        """Until the program may run."""
        if self.is_held and not self.was_freed:
            task.read_line()


def default_signals() -> None:
    """Python ignores these two, and exec would keep that."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)


def become_cold(task: Task, wake: Wake, why: str) -> NoReturn:
    """The command in our place, from its very beginning."""
    task.tell("cold", why=why)
    wake.await_go(task)
    os.set_inheritable(task.wake_fd, False)
    os.set_inheritable(task.status_fd, False)
    default_signals()
    try:
        os.chdir(wake.cwd)
        os.execvpe(wake.argv[0], wake.argv, wake.env)  # noqa: S606 - no shell
    except OSError as error:
        where = os.fsdecode(error.filename or wake.argv[0])
        task.tell("failed", errno=error.errno, where=where)
    os._exit(NOT_FOUND)


def wait_cold(task: Task, why: str) -> NoReturn:
    """A standby that cannot help: woken, it starts the command as if it had never been."""
    if task.is_lowered:
        priority.restore()
    task.tell("unfit", why=why)
    if task.server_of:
        os._exit(0)
    wake = Wake(task.read_line())
    become_cold(task, wake, why)
