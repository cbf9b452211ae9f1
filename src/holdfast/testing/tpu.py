"""An emulator of Cloud TPU's API, as far as machines are made, looked at and deleted.

From the API's reference, spoken over gRPC with the message types of Google's own client library, in
its versions v2 and v2alpha1:

    with TpuEmulator() as tpu:
        CloudTpu("p", "z", endpoint=tpu.endpoint)
        tpu.do("preempt", "lm-g1")           # what happens to a node
        tpu.do("stockout", "2")              # how the next two creations end
        tpu.do("fail", "UNAVAILABLE", "1", "DeleteNode")

What takes time takes `creating_s` and `deleting_s`. With `scripts`, a folder, the startup script of
a node that becomes ready is run there as a process of this machine, and killed with its node.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import grpc
from google.cloud import tpu_v2, tpu_v2alpha1
from google.longrunning import operations_pb2
from google.protobuf import any_pb2, empty_pb2

from holdfast.testing.told import Told

ALPHA = tpu_v2alpha1
VERSIONS = {"v2": tpu_v2, "v2alpha1": tpu_v2alpha1}
NO_CAPACITY = "There is no more capacity in the zone; you can try in another zone"
NO_QUOTA = "Quota limit 'TPUV5sLitepodPerProjectPerZone' has been exceeded. Limit: 8 in this zone."
DAMAGED = ALPHA.Node.Health.UNHEALTHY_MAINTENANCE
State, QueuedState = ALPHA.Node.State, ALPHA.QueuedResourceState.State


class ApiError(Exception):
    """What a call is refused with."""

    def __init__(self, code: grpc.StatusCode, words: str) -> None:
        super().__init__(words)
        self.code = code
        self.words = words


class TpuEmulator(Told):
    """All of Cloud TPU on the loopback; `nodes` and `queued` by their full names."""

    name: ClassVar[str] = "emulator of Cloud TPU's API"

    def __init__(self, *, scripts: Path | None = None) -> None:
        super().__init__()
        self.nodes: dict[str, Any] = {}
        self.queued: dict[str, Any] = {}
        self.calls: list[str] = []
        self.creating_s = self.deleting_s = 0.01
        self.unreachable: list[str] = []
        self.scripts = None if scripts is None else scripts.resolve()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._operations: dict[str, Any] = {}
        self._numbers = itertools.count(1)
        self._faults: deque[tuple[grpc.StatusCode, str, bool]] = deque()
        self._shortages: deque[str] = deque()
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._listen()

    def _listen(self) -> None:
        """Be there for whoever asks; a simulation has a network of its own."""
        self._clockwork = threading.Thread(target=self._run, daemon=True)
        self._clockwork.start()
        self._server = grpc.server(
            ThreadPoolExecutor(4), [_Calls(self)], options=[("grpc.so_reuseport", 0)]
        )
        self.port: int = self._server.add_insecure_port("127.0.0.1:0")
        self.endpoint = f"127.0.0.1:{self.port}"
        self._server.start()

    def close(self) -> None:
        """Answer nobody any more; the nodes' processes end."""
        super().close()
        self._clockwork.join()
        self._server.stop(0).wait()
        for name in list(self._processes):
            self._kill(name)

    # --- what it is told ------------------------------------------------------------------------

    def verb_fail(self, code: str, times: str = "1", method: str = "") -> None:
        """Refuse the next `times` calls, or calls of that method, with a status code."""
        self._faults.extend([(grpc.StatusCode[code], method, False)] * int(times))

    def verb_lose(self, times: str = "1", method: str = "") -> None:
        """Do as the next calls say, and answer that it is not available."""
        self._faults.extend([(grpc.StatusCode.UNAVAILABLE, method, True)] * int(times))

    def verb_stockout(self, times: str = "1") -> None:
        """The next creations are accepted, and fail for want of machines."""
        self._shortages.extend([NO_CAPACITY] * int(times))

    def verb_quota(self, times: str = "1") -> None:
        """The next creations are refused: the project may not have more."""
        self._shortages.extend([NO_QUOTA] * int(times))

    def verb_node(self, name: str) -> None:
        """A node is there, and ready, by its full name: projects/P/locations/Z/nodes/NAME."""
        healthy = ALPHA.Node.Health.HEALTHY
        self.nodes[name] = ALPHA.Node(name=name, state=State.READY, health=healthy)

    def verb_preempt(self, node: str) -> None:
        """Take a node; a queued resource is suspended with it."""
        found = self._node(node)
        self._kill(found.name)
        found.state = State.PREEMPTED
        if found.queued_resource in self.queued:
            self.queued[found.queued_resource].state.state = QueuedState.SUSPENDED

    def verb_maintain(self, node: str, words: str = "maintenance is under way") -> None:
        """Maintenance of a node begins."""
        found = self._node(node)
        found.health, found.health_description = DAMAGED, words
        found.upcoming_maintenance = ALPHA.UpcomingMaintenance(
            maintenance_status=ALPHA.UpcomingMaintenance.MaintenanceStatus.ONGOING
        )

    def verb_window(self, node: str, start: str) -> None:
        """Announce maintenance of a node whose window opens then (RFC 3339)."""
        self._node(node).upcoming_maintenance = ALPHA.UpcomingMaintenance(
            window_start_time=start,
            maintenance_status=ALPHA.UpcomingMaintenance.MaintenanceStatus.PENDING,
        )

    def verb_symptom(self, node: str, kind: str, worker: str = "0", details: str = "") -> None:
        """Tell a symptom of a node's worker, by the API's word for it."""
        word = ALPHA.Symptom.SymptomType[kind]
        self._node(node).symptoms.append(
            ALPHA.Symptom(symptom_type=word, worker_id=worker, details=details)
        )

    def verb_state(self, node: str, state: str) -> None:
        """A node's state is that word of the API's, or a number that nobody knows yet."""
        number = int(state) if state.isdecimal() else State[state].value
        ALPHA.Node.pb(self._node(node)).state = number  # the wrapper takes known ones alone

    def verb_health(self, node: str, health: str = "HEALTHY", words: str = "") -> None:
        """A node's health is that word of the API's; what was announced is over."""
        found = self._node(node)
        found.health, found.health_description = ALPHA.Node.Health[health], words
        found.upcoming_maintenance = None

    def verb_vanish(self, node: str) -> None:
        """A node is gone, and nobody has deleted it."""
        self._remove_node(self._node(node).name)

    def verb_unreachable(self, *places: str) -> None:
        """Lists say that these locations could not be asked; nothing: all could."""
        self.unreachable = list(places)

    def verb_creating(self, seconds: str) -> None:
        """Creations take that long."""
        self.creating_s = float(seconds)

    def verb_deleting(self, seconds: str) -> None:
        """Deletions take that long."""
        self.deleting_s = float(seconds)

    def verb_recover(self) -> None:
        """Forget the faults to come."""
        self._faults.clear()
        self._shortages.clear()
        self.unreachable = []

    def _node(self, name: str) -> Any:
        for full, node in self.nodes.items():
            if name in (full, full.rpartition("/")[2]):
                return node
        raise ValueError(f"there is no node {name!r}")

    # --- the service ----------------------------------------------------------------------------

    def call(self, method: str, request: Any) -> Any:
        """Answer one call, with messages of v2alpha1; raises ApiError."""
        with self.changed:
            self.calls.append(method)
            fault = next((one for one in self._faults if one[1] in ("", method)), None)
            if fault is not None:
                self._faults.remove(fault)
                if fault[2]:
                    self._methods[method](self, request)
                    self.changed.notify_all()
                raise ApiError(fault[0], "it does not work now")
            answer = self._methods[method](self, request)
            self.changed.notify_all()
            return answer

    def _list_nodes(self, request: Any) -> Any:
        below = f"{request.parent}/"
        found = [node for name, node in self.nodes.items() if name.startswith(below)]
        return ALPHA.ListNodesResponse(nodes=found, unreachable=self.unreachable)

    def _list_queued(self, request: Any) -> Any:
        below = f"{request.parent}/"
        found = [one for name, one in self.queued.items() if name.startswith(below)]
        return ALPHA.ListQueuedResourcesResponse(
            queued_resources=found, unreachable=self.unreachable
        )

    def _get_node(self, request: Any) -> Any:
        return _known(self.nodes, request.name)

    def _get_queued(self, request: Any) -> Any:
        return _known(self.queued, request.name)

    def _create_node(self, request: Any) -> Any:
        name = f"{request.parent}/nodes/{request.node_id}"
        _refuse_taken(self.nodes, name)
        shortage = self._shortage()
        self._add_node(name, request.node)
        operation = self._operation()
        self._at(self.creating_s, lambda: self._created(name, operation, shortage))
        return operation

    def _created(self, name: str, operation: Any, shortage: str) -> None:
        if shortage:
            self._remove_node(name)
            _fail(operation, shortage)
        elif name in self.nodes and self.nodes[name].state == State.CREATING:
            self._ready(name)
            _finish(operation, self.nodes[name])

    def _delete_node(self, request: Any) -> Any:
        node = _known(self.nodes, request.name)
        if node.queued_resource in self.queued:
            raise ApiError(
                grpc.StatusCode.FAILED_PRECONDITION,
                "a node of a queued resource is deleted by the latter",
            )
        self._kill(node.name)
        node.state = State.DELETING
        operation = self._operation()

        def gone() -> None:
            self._remove_node(request.name)
            _finish(operation, None)

        self._at(self.deleting_s, gone)
        return operation

    def _create_queued(self, request: Any) -> Any:
        name = f"{request.parent}/queuedResources/{request.queued_resource_id}"
        _refuse_taken(self.queued, name)
        shortage = self._shortage()
        made = ALPHA.QueuedResource(request.queued_resource)
        made.name = name
        made.state.state = QueuedState.WAITING_FOR_RESOURCES
        self.queued[name] = made
        operation = self._operation()
        _finish(operation, made)
        self._at(self.creating_s, lambda: self._granted(name, request.parent, shortage))
        return operation

    def _granted(self, name: str, parent: str, shortage: str) -> None:
        made = self.queued.get(name)
        if made is None or made.state.state != QueuedState.WAITING_FOR_RESOURCES:
            return
        if shortage:
            made.state.state = QueuedState.FAILED
            made.state.failed_data.error.message = shortage
            return
        for spec in made.tpu.node_spec:
            many = spec.multi_node_params
            ids = [f"{many.node_id_prefix}-{n}" for n in range(many.node_count)] or [spec.node_id]
            for one in ids:
                full = f"{parent}/nodes/{one}"
                self._add_node(full, spec.node)
                self.nodes[full].queued_resource = name
                self.nodes[full].multislice_node = bool(many)
                self._ready(full)
        made.state.state = QueuedState.ACTIVE

    def _delete_queued(self, request: Any) -> Any:
        made = _known(self.queued, request.name)
        nodes = [name for name, node in self.nodes.items() if node.queued_resource == made.name]
        if nodes and not request.force:
            raise ApiError(grpc.StatusCode.FAILED_PRECONDITION, "it has nodes; use force")
        made.state.state = QueuedState.DELETING
        for name in nodes:
            self._kill(name)
            self.nodes[name].state = State.DELETING
        operation = self._operation()

        def gone() -> None:
            for name in nodes:
                self._remove_node(name)
            self.queued.pop(request.name, None)
            _finish(operation, None)

        self._at(self.deleting_s, gone)
        return operation

    def _simulate_maintenance(self, request: Any) -> Any:
        node = _known(self.nodes, request.name)
        if node.state != State.READY:
            raise ApiError(grpc.StatusCode.FAILED_PRECONDITION, "the node is not ready")
        self.verb_maintain(node.name, f"simulated on worker {', '.join(request.worker_ids)}")
        operation = self._operation()
        _finish(operation, self.nodes[request.name])
        return operation

    def _get_operation(self, request: Any) -> Any:
        return _known(self._operations, request.name)

    _methods: ClassVar[dict[str, Callable[[Any, Any], Any]]] = {
        "ListNodes": _list_nodes,
        "GetNode": _get_node,
        "CreateNode": _create_node,
        "DeleteNode": _delete_node,
        "ListQueuedResources": _list_queued,
        "GetQueuedResource": _get_queued,
        "CreateQueuedResource": _create_queued,
        "DeleteQueuedResource": _delete_queued,
        "SimulateMaintenanceEvent": _simulate_maintenance,
        "GetOperation": _get_operation,
    }

    # --- its parts ------------------------------------------------------------------------------

    def _shortage(self) -> str:
        """What the next creation will want of; a quota's is told at once."""
        words = self._shortages.popleft() if self._shortages else ""
        if words == NO_QUOTA:
            raise ApiError(grpc.StatusCode.RESOURCE_EXHAUSTED, words)
        return words

    def _add_node(self, name: str, wanted: Any) -> None:
        node = ALPHA.Node(wanted)
        node.name, node.state = name, State.CREATING
        self.nodes[name] = node

    def _remove_node(self, name: str) -> None:
        self._kill(name)
        self.nodes.pop(name, None)

    def _ready(self, name: str) -> None:
        node = self.nodes[name]
        node.state, node.health = State.READY, ALPHA.Node.Health.HEALTHY
        script = node.metadata.get("startup-script", "")
        if self.scripts is not None and script:
            stem = name.rpartition("/")[2]
            path = self.scripts / f"{stem}.sh"
            path.write_text(script)
            with (self.scripts / f"{stem}.log").open("wb") as log:
                self._processes[name] = subprocess.Popen(
                    ["bash", str(path)],
                    cwd=self.scripts,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )

    def _kill(self, name: str) -> None:
        """A machine that is taken takes its processes with it."""
        process = self._processes.pop(name, None)
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _operation(self) -> Any:
        name = f"projects/p/locations/z/operations/operation-{next(self._numbers)}"
        self._operations[name] = operations_pb2.Operation(name=name)
        return self._operations[name]

    def _at(self, delay_s: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._later, (time.monotonic() + delay_s, next(self._numbers), act))

    def _run(self) -> None:
        """Do what is due; under `changed`, as all else."""
        with self.changed:
            while not self.is_closed:
                now_s = time.monotonic()
                while self._later and self._later[0][0] <= now_s:
                    heapq.heappop(self._later)[2]()
                    self.changed.notify_all()
                self.changed.wait(self._later[0][0] - now_s if self._later else None)


def _known(things: dict[str, Any], name: str) -> Any:
    if name not in things:
        raise ApiError(grpc.StatusCode.NOT_FOUND, f"Resource '{name}' was not found")
    return things[name]


def _refuse_taken(things: dict[str, Any], name: str) -> None:
    if name in things:
        raise ApiError(grpc.StatusCode.ALREADY_EXISTS, f"Resource '{name}' already exists")


def _fail(operation: Any, words: str) -> None:
    operation.done = True
    operation.error.code = grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
    operation.error.message = words


def _finish(operation: Any, made: Any | None) -> None:
    """Done; what was made is its response, and that of a deletion is empty."""
    operation.done = True
    packed = any_pb2.Any()
    packed.Pack(empty_pb2.Empty() if made is None else type(made).pb(made))
    operation.response.CopyFrom(packed)


# --- the wire -----------------------------------------------------------------------------------


class _Calls(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Finds a call's method, and carries its messages between the versions."""

    def __init__(self, emulator: TpuEmulator) -> None:
        self._emulator = emulator

    def service(self, details: Any) -> Any:
        """How a call is answered; None: it is not known here."""
        _, service, method = details.method.split("/")
        if method == "GetOperation":
            read = operations_pb2.GetOperationRequest.FromString
            return self._handler(method, read, lambda request: request, _bytes)
        types = VERSIONS.get(service.removeprefix("google.cloud.tpu.").removesuffix(".Tpu"))
        kind = getattr(types, f"{method}Request", None)
        if kind is None:
            return None
        return self._handler(method, kind.deserialize, _to_alpha, lambda one: _sent(types, one))

    def _handler(self, method: str, read: Any, taken: Any, write: Any) -> Any:
        def answer(request: Any, context: Any) -> Any:
            try:
                return self._emulator.call(method, taken(request))
            except ApiError as error:
                context.abort(error.code, error.words)

        return grpc.unary_unary_rpc_method_handler(answer, read, write)


def _to_alpha(request: Any) -> Any:
    """A request in v2alpha1; v2 has another name for several slices."""
    kind = getattr(ALPHA, type(request).__name__)
    if isinstance(request, kind):
        return request
    text = _json(request).replace('"multisliceParams"', '"multiNodeParams"')
    return kind.from_json(text, ignore_unknown_fields=True)


def _sent(types: Any, answer: Any) -> bytes:
    """An answer as bytes, in the version that was asked."""
    if not isinstance(answer, operations_pb2.Operation):
        return _bytes(_in_version(types, answer))
    kind = getattr(ALPHA, answer.response.TypeName().rpartition(".")[2], None)
    if kind is not None:
        copy = operations_pb2.Operation()
        copy.CopyFrom(answer)
        copy.response.Pack(_in_version(types, kind.deserialize(answer.response.value)))
        answer = copy
    return _bytes(answer)


def _in_version(types: Any, answer: Any) -> Any:
    """A message of v2alpha1 in that version, without what that one does not have."""
    kind = getattr(types, type(answer).__name__)
    if not isinstance(answer, kind):
        text = _json(answer).replace('"multiNodeParams"', '"multisliceParams"')
        answer = kind.from_json(text, ignore_unknown_fields=True)
    return kind.pb(answer)


def _json(message: Any) -> str:
    """Only what is there: of fields that exclude each other, one."""
    kind = type(message)
    return str(kind.to_json(message, always_print_fields_with_no_presence=False))


def _bytes(message: Any) -> bytes:
    return bytes(message.SerializeToString())
