"""The machines of Cloud TPU's emulator, as far as they run something: their startup scripts.

Each has a metadata server of its own, which `GCE_METADATA_HOST` names to the script, as to Google's
libraries: it says which host of which slice this is, and what is coming.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from holdfast.testing.gce import GceEmulator


class NodeMachines(Protocol):
    """Something that has machines for nodes, by their full names."""

    def take(self, name: str) -> Sequence[str]:
        """A node is ready: the addresses of its hosts."""

    def give_back(self, name: str) -> None:
        """It is taken, or deleted; again is harmless."""


class StartupScripts:
    """Processes of this machine that stand in for nodes, in `folder`; None: nothing is run.

    Of node NAME the script is `NAME.sh` there, and what it prints `NAME.log`.
    """

    def __init__(self, folder: Path | None, machines: NodeMachines | None = None) -> None:
        self._machines = machines
        self._folder = None if folder is None else folder.resolve()
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._metadata: dict[str, GceEmulator] = {}

    def start(self, name: str, script: str, slice_id: int | None = None) -> Sequence[str]:
        """A node is ready; `name` is its full one, `slice_id` its number among several.

        Returns its hosts' addresses.
        """
        if self._folder is not None and script:
            self._run(self._folder, name, script, slice_id)
        return () if self._machines is None else self._machines.take(name)

    def _run(self, folder: Path, name: str, script: str, slice_id: int | None) -> None:
        stem = name.rpartition("/")[2]
        path = folder / f"{stem}.sh"
        path.write_text(script)
        metadata = self._metadata[name] = GceEmulator()
        metadata.do("set", "attributes/agent-worker-number", "0")
        about = "ZONE: 'z'\n" if slice_id is None else f"MEGASCALE_SLICE_ID: '{slice_id}'\n"
        metadata.do("set", "attributes/tpu-env", about)
        with (folder / f"{stem}.log").open("wb") as log:
            self._running[name] = subprocess.Popen(
                ["env", f"GCE_METADATA_HOST=127.0.0.1:{metadata.port}", "bash", str(path)],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def announce(self, name: str) -> None:
        """Have a node's metadata server announce that its host will be maintained."""
        if name in self._metadata:
            self._metadata[name].do("maintenance-event")

    def announce_window(self, name: str, start: str) -> None:
        """Have a node's metadata server say when its maintenance begins (RFC 3339)."""
        if name in self._metadata:
            self._metadata[name].do("upcoming", start)

    def kill(self, name: str) -> None:
        """A machine that is taken takes its processes with it."""
        if self._machines is not None:
            self._machines.give_back(name)
        metadata = self._metadata.pop(name, None)
        if metadata is not None:
            metadata.close()
        process = self._running.pop(name, None)
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def close(self) -> None:
        """End all that runs."""
        for name in list(self._running):
            self.kill(name)
