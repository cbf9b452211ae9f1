"""What Cloud TPU does, as far as machines are made, looked at and deleted, without a wire.

From the API's reference. Messages are those of v2alpha1. Nothing in here waits: what takes time is
done by `run_due`, when its moment has come.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import grpc
from google.longrunning import operations_pb2
from google.protobuf import any_pb2, empty_pb2

from holdfast.testing.tpu_scripts import StartupScripts
from holdfast.testing.tpu_wire import ALPHA, ApiError

EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED


class Shortage(NamedTuple):
    """What a creation fails of; `is_told_at_once`: a node's is then refused, and never begun."""

    code: grpc.StatusCode
    words: str
    is_told_at_once: bool = False


NO_CAPACITY = Shortage(
    EXHAUSTED, "There is no more capacity in the zone; you can try in another zone"
)
NO_QUOTA = Shortage(
    EXHAUSTED,
    "Quota limit 'TPUV5sLitepodPerProjectPerZone' has been exceeded. Limit: 8 in this zone.",
    is_told_at_once=True,
)
State, QueuedState = ALPHA.Node.State, ALPHA.QueuedResourceState.State


class TpuService:
    """Nodes, queued resources and operations by their full names; `elapsed` is its clock.

    `faults`: (code, method or "", whether it is done all the same) of calls to come. `shortages`:
    what the next creations will fail of.
    """

    def __init__(self, scripts: StartupScripts, elapsed: Callable[[], float]) -> None:
        self.nodes: dict[str, Any] = {}
        self.queued: dict[str, Any] = {}
        self.calls: list[str] = []
        self.creating_s = self.deleting_s = 0.01
        self.unreachable: list[str] = []
        self.faults: deque[tuple[grpc.StatusCode, str, bool]] = deque()
        self.shortages: deque[Shortage] = deque()
        self.scripts = scripts
        self._elapsed = elapsed
        self._operations: dict[str, Any] = {}
        self._numbers = itertools.count(1)
        self._later: list[tuple[float, int, Callable[[], None]]] = []

    def call(self, method: str, request: Any) -> Any:
        """Answer one call; raises ApiError."""
        self.calls.append(method)
        fault = next((one for one in self.faults if one[1] in ("", method)), None)
        if fault is None:
            return self._methods[method](self, request)
        self.faults.remove(fault)
        if fault[2]:
            self._methods[method](self, request)
        raise ApiError(fault[0], "it does not work now")

    def run_due(self) -> float | None:
        """Do what is due; how long it is until there is more, in seconds, or None."""
        now_s = self._elapsed()
        while self._later and self._later[0][0] <= now_s:
            heapq.heappop(self._later)[2]()
        return self._later[0][0] - now_s if self._later else None

    def node(self, name: str) -> Any:
        """A node by its name, or its full one; raises ValueError."""
        for full, node in self.nodes.items():
            if name in (full, full.rpartition("/")[2]):
                return node
        raise ValueError(f"there is no node {name!r}")

    def remove_node(self, name: str) -> None:
        """It is not there any more, by its full name."""
        self.scripts.kill(name)
        self.nodes.pop(name, None)

    # --- the methods ----------------------------------------------------------------------------

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
        if shortage is not None and shortage.is_told_at_once:
            raise ApiError(shortage.code, shortage.words)
        self._add_node(name, request.node)
        operation = self._operation()
        self._at(self.creating_s, lambda: self._created(name, operation, shortage))
        return operation

    def _created(self, name: str, operation: Any, shortage: Shortage | None) -> None:
        if shortage is not None:
            self.remove_node(name)
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
        self.scripts.kill(node.name)
        node.state = State.DELETING
        operation = self._operation()

        def gone() -> None:
            self.remove_node(request.name)
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

    def _granted(self, name: str, parent: str, shortage: Shortage | None) -> None:
        made = self.queued.get(name)
        if made is None or made.state.state != QueuedState.WAITING_FOR_RESOURCES:
            return
        if shortage is not None:
            made.state.state = QueuedState.FAILED
            made.state.failed_data.error.code = shortage.code.value[0]
            made.state.failed_data.error.message = shortage.words
            return
        for spec in made.tpu.node_spec:
            many = spec.multi_node_params
            ids = [f"{many.node_id_prefix}-{n}" for n in range(many.node_count)] or [spec.node_id]
            for number, one in enumerate(ids):
                full = f"{parent}/nodes/{one}"
                self._add_node(full, spec.node)
                self.nodes[full].queued_resource = name
                self.nodes[full].multislice_node = bool(many)
                self._ready(full, number if many else None)
        made.state.state = QueuedState.ACTIVE

    def _delete_queued(self, request: Any) -> Any:
        made = _known(self.queued, request.name)
        nodes = [name for name, node in self.nodes.items() if node.queued_resource == made.name]
        if nodes and not request.force:
            raise ApiError(grpc.StatusCode.FAILED_PRECONDITION, "it has nodes; use force")
        made.state.state = QueuedState.DELETING
        for name in nodes:
            self.scripts.kill(name)
            self.nodes[name].state = State.DELETING
        operation = self._operation()

        def gone() -> None:
            for name in nodes:
                self.remove_node(name)
            self.queued.pop(request.name, None)
            _finish(operation, None)

        self._at(self.deleting_s, gone)
        return operation

    def _simulate_maintenance(self, request: Any) -> Any:
        node = _known(self.nodes, request.name)
        if node.state != State.READY:
            raise ApiError(grpc.StatusCode.FAILED_PRECONDITION, "the node is not ready")
        self.scripts.announce(node.name)
        maintain(node, f"simulated on worker {', '.join(request.worker_ids)}")
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

    def _shortage(self) -> Shortage | None:
        """What the next creation fails of."""
        return self.shortages.popleft() if self.shortages else None

    def _add_node(self, name: str, wanted: Any) -> None:
        node = ALPHA.Node(wanted)
        node.name, node.state = name, State.CREATING
        self.nodes[name] = node

    def _ready(self, name: str, slice_id: int | None = None) -> None:
        node = self.nodes[name]
        node.state, node.health = State.READY, ALPHA.Node.Health.HEALTHY
        script = node.metadata.get("startup-script", "")
        node.network_endpoints = [
            ALPHA.NetworkEndpoint(ip_address=one)
            for one in self.scripts.start(name, script, slice_id)
        ]

    def _operation(self) -> Any:
        name = f"projects/p/locations/z/operations/operation-{next(self._numbers)}"
        self._operations[name] = operations_pb2.Operation(name=name)
        return self._operations[name]

    def _at(self, delay_s: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._later, (self._elapsed() + delay_s, next(self._numbers), act))


def maintain(node: Any, words: str) -> None:
    """Maintenance of a node is under way."""
    node.health, node.health_description = ALPHA.Node.Health.UNHEALTHY_MAINTENANCE, words
    node.upcoming_maintenance = ALPHA.UpcomingMaintenance(
        maintenance_status=ALPHA.UpcomingMaintenance.MaintenanceStatus.ONGOING
    )


def _known(things: dict[str, Any], name: str) -> Any:
    if name not in things:
        raise ApiError(grpc.StatusCode.NOT_FOUND, f"Resource '{name}' was not found")
    return things[name]


def _refuse_taken(things: dict[str, Any], name: str) -> None:
    if name in things:
        raise ApiError(grpc.StatusCode.ALREADY_EXISTS, f"Resource '{name}' already exists")


def _fail(operation: Any, shortage: Shortage) -> None:
    operation.done = True
    operation.error.code = shortage.code.value[0]
    operation.error.message = shortage.words


def _finish(operation: Any, made: Any | None) -> None:
    """Done; what was made is its response, and that of a deletion is empty."""
    operation.done = True
    packed = any_pb2.Any()
    packed.Pack(empty_pb2.Empty() if made is None else type(made).pb(made))
    operation.response.CopyFrom(packed)
