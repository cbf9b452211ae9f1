"""The machines of Cloud TPU's emulator, as far as they run something: their startup scripts."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path


class StartupScripts:
    """Processes of this machine that stand in for nodes, in `folder`; None: nothing is run.

    Of node NAME the script is `NAME.sh` there, and what it prints `NAME.log`.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = None if folder is None else folder.resolve()
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, script: str) -> None:
        """A node is ready; `name` is its full one."""
        if self._folder is None or not script:
            return
        stem = name.rpartition("/")[2]
        path = self._folder / f"{stem}.sh"
        path.write_text(script)
        with (self._folder / f"{stem}.log").open("wb") as log:
            self._running[name] = subprocess.Popen(
                ["bash", str(path)],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self, name: str) -> None:
        """A machine that is taken takes its processes with it."""
        process = self._running.pop(name, None)
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def close(self) -> None:
        """End all that runs."""
        for name in list(self._running):
            self.kill(name)
