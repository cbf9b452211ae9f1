"""An emulator of Cloud TPU's API, as far as machines are made, looked at and deleted.

From the API's reference, spoken over gRPC with the message types of Google's own client library, in
its versions v2 and v2alpha1:

    with TpuEmulator() as tpu:
        CloudTpu("p", "z", endpoint=tpu.endpoint)
        tpu.do("preempt", "lm-g1")           # what happens to a node
        tpu.do("stockout", "2")              # how the next two creations end
        tpu.do("fail", "UNAVAILABLE", "1", "DeleteNode")

What takes time takes as long as `creating` and `deleting` say. With `scripts`, a folder, the
startup script of a node that becomes ready is run there as a process of this machine, and killed
with its node. With `machines` a node has hosts: what that object gives. `at`: a socket to listen at
too, for who has another network. What the service does is in `tpu_service`, how it is spoken to in
`tpu_wire`.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import grpc

from holdfast.testing.scripted import ScriptedEmulator
from holdfast.testing.tpu_scripts import NodeMachines, StartupScripts
from holdfast.testing.tpu_service import (
    NO_CAPACITY,
    NO_QUOTA,
    QueuedState,
    Shortage,
    State,
    TpuService,
    maintain,
)
from holdfast.testing.tpu_wire import ALPHA, Calls


class TpuEmulator(ScriptedEmulator):
    """All of Cloud TPU on the loopback; `nodes` and `queued` by their full names."""

    name: ClassVar[str] = "emulator of Cloud TPU's API"

    def __init__(
        self,
        *,
        scripts: Path | None = None,
        machines: NodeMachines | None = None,
        at: Path | None = None,
    ) -> None:
        super().__init__()
        self._at = at
        self._scripts = StartupScripts(scripts, machines)
        self._service = TpuService(self._scripts, lambda: self.elapsed())
        self.nodes, self.queued = self._service.nodes, self._service.queued
        self.calls = self._service.calls
        self._listen()

    def _listen(self) -> None:
        """Be there for whoever asks; a simulation has a network of its own."""
        self._clockwork = threading.Thread(target=self._run, daemon=True)
        self._clockwork.start()
        self._server = grpc.server(
            ThreadPoolExecutor(4), [Calls(self.call)], options=[("grpc.so_reuseport", 0)]
        )
        self.port: int = self._server.add_insecure_port("127.0.0.1:0")
        self.endpoint = f"127.0.0.1:{self.port}"
        if self._at is not None:
            self._server.add_insecure_port(f"unix:{self._at}")
        self._server.start()

    def call(self, method: str, request: Any) -> Any:
        """Answer one call, with messages of v2alpha1; raises ApiError."""
        with self.changed:
            try:
                return self._service.call(method, request)
            finally:
                self.changed.notify_all()

    def close(self) -> None:
        """Answer nobody any more; the nodes' processes end."""
        super().close()
        self._clockwork.join()
        self._server.stop(0).wait()
        self._scripts.close()

    def _run(self) -> None:
        """Do what is due; under `changed`, as all else."""
        with self.changed:
            while not self.is_closed:
                left_s = self._service.run_due()
                self.changed.notify_all()
                self.changed.wait(left_s)

    # --- what it is told ------------------------------------------------------------------------

    def verb_fail(self, code: str, times: str = "1", method: str = "") -> None:
        """Refuse the next `times` calls, or calls of that method, with a status code."""
        self._service.faults.extend([(grpc.StatusCode[code], method, False)] * int(times))

    def verb_lose(self, times: str = "1", method: str = "") -> None:
        """Do as the next calls say, and answer that it is not available."""
        self._service.faults.extend([(grpc.StatusCode.UNAVAILABLE, method, True)] * int(times))

    def verb_stockout(self, times: str = "1") -> None:
        """The next creations are accepted, and fail for want of machines."""
        self._service.shortages.extend([NO_CAPACITY] * int(times))

    def verb_quota(self, times: str = "1") -> None:
        """The project may not have more: the next nodes are refused, the next queued fail."""
        self._service.shortages.extend([NO_QUOTA] * int(times))

    def verb_spoil(self, code: str, words: str, times: str = "1") -> None:
        """The next creations are accepted, and fail with that status code, in those words."""
        spoilt = Shortage(grpc.StatusCode[code], words)
        self._service.shortages.extend([spoilt] * int(times))

    def verb_node(self, name: str) -> None:
        """A node is there, and ready, by its full name: projects/P/locations/Z/nodes/NAME."""
        healthy = ALPHA.Node.Health.HEALTHY
        self.nodes[name] = ALPHA.Node(name=name, state=State.READY, health=healthy)

    def verb_preempt(self, node: str) -> None:
        """Take a node; a queued resource is suspended with it."""
        found = self._service.node(node)
        self._scripts.kill(found.name)
        found.state = State.PREEMPTED
        if found.queued_resource in self.queued:
            self.queued[found.queued_resource].state.state = QueuedState.SUSPENDED

    def verb_maintain(self, node: str, words: str = "maintenance is under way") -> None:
        """Maintenance of a node begins."""
        maintain(self._service.node(node), words)

    def verb_window(self, node: str, start: str) -> None:
        """Announce maintenance of a node whose window opens then (RFC 3339), to its hosts too."""
        found = self._service.node(node)
        self._scripts.announce_window(found.name, start)
        found.upcoming_maintenance = ALPHA.UpcomingMaintenance(
            window_start_time=start,
            maintenance_status=ALPHA.UpcomingMaintenance.MaintenanceStatus.PENDING,
        )

    def verb_symptom(self, node: str, kind: str, worker: str = "0", details: str = "") -> None:
        """Tell a symptom of a node's worker, by the API's word for it."""
        word = ALPHA.Symptom.SymptomType[kind]
        self._service.node(node).symptoms.append(
            ALPHA.Symptom(symptom_type=word, worker_id=worker, details=details)
        )

    def verb_state(self, node: str, state: str) -> None:
        """A node's state is that word of the API's, or a number that nobody knows yet."""
        number = int(state) if state.isdecimal() else State[state].value
        ALPHA.Node.pb(self._service.node(node)).state = number  # the wrapper takes known ones alone

    def verb_health(self, node: str, health: str = "HEALTHY", words: str = "") -> None:
        """A node's health is that word of the API's; what was announced is over."""
        found = self._service.node(node)
        found.health, found.health_description = ALPHA.Node.Health[health], words
        found.upcoming_maintenance = None

    def verb_vanish(self, node: str) -> None:
        """A node is gone, and nobody has deleted it."""
        self._service.remove_node(self._service.node(node).name)

    def verb_unreachable(self, *places: str) -> None:
        """Lists say that these locations could not be asked; nothing: all could."""
        self._service.unreachable = list(places)

    def verb_creating(self, seconds: str) -> None:
        """Creations take that long."""
        self._service.creating_s = float(seconds)

    def verb_deleting(self, seconds: str) -> None:
        """Deletions take that long."""
        self._service.deleting_s = float(seconds)

    def verb_recover(self) -> None:
        """Forget the faults to come."""
        self._service.faults.clear()
        self._service.shortages.clear()
        self._service.unreachable = []
