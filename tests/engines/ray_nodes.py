"""Prints the living nodes of the cluster RAY_ADDRESS, and the CPUs that are free, as JSON."""

from __future__ import annotations

import json
import os

from ray._raylet import GcsClient
from ray.core.generated.gcs_pb2 import GcsNodeInfo

client = GcsClient(address=os.environ["RAY_ADDRESS"])
living = [
    one
    for one in client.get_all_node_info(timeout=5).values()
    if one.state == GcsNodeInfo.GcsNodeState.ALIVE
]
told = {
    usage.node_id: usage
    for usage in client.get_all_resource_usage(timeout=5).resource_usage_data.batch
}
free = sum(
    told[one.node_id].resources_available.get("CPU", 0) for one in living if one.node_id in told
)
nodes = {one.node_manager_address: one.node_id.hex() for one in living}
print(json.dumps({"nodes": nodes, "free_cpus": free}))
