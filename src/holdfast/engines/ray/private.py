"""What Ray keeps to itself and we need: nodes that are drained. It may change with any version.

Each of these costs a feature when it fails, and one sentence; nothing else depends on it. Tried
with Ray 2.60.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

PREEMPTION = "DRAIN_NODE_REASON_PREEMPTION"


class RayHooks:
    """`say` is told, once for each, when one does not work."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._failed: set[str] = set()

    def draining(self) -> dict[str, int]:
        """By node, when it is taken: unix milliseconds, 0: nobody knows."""
        try:
            from ray._private.state import state

            return dict(state.get_draining_nodes())
        except Exception as error:
            self._fails("hear that a node is drained", error)
            return {}

    def drain(self, node: str, words: str) -> bool:
        """Have Ray give nothing more to that node; whether it does.

        No task or actor begins there any more, not even in a bundle that is placed there, and the
        raylet ends once nothing runs or is reserved on it. Ray says yes to a node that it does not
        know, too. The 0: nobody knows when the node goes.
        """
        try:
            import ray
            from ray._raylet import GcsClient
            from ray.core.generated import autoscaler_pb2

            reason: Any = autoscaler_pb2.DrainNodeReason.Value(PREEMPTION)
            client = GcsClient(address=ray.get_runtime_context().gcs_address)
            is_taken, why_not = client.drain_node(node, reason, words, 0)
        except Exception as error:
            self._fails("tell that a node will go", error)
            return False
        if not is_taken:
            self._say(f"Ray does not drain node {node}: {why_not}")
        return bool(is_taken)

    def _fails(self, what: str, error: Exception) -> None:
        if what not in self._failed:
            self._failed.add(what)
            self._say(f"Ray's own function to {what} does not work here ({error!r})")
