"""Prints what the head of the cluster RAY_ADDRESS knows of its nodes, as JSON.

nodes       that live and are not drained: by address, the id
drained     ids of those that live and are drained, as their raylets have told
left        of those that are gone: by id, why
free_cpus   of all that live
"""

from __future__ import annotations

import json
import os

from ray._raylet import GcsClient
from ray.core.generated.gcs_pb2 import GcsNodeInfo, NodeSnapshot

client = GcsClient(address=os.environ["RAY_ADDRESS"])
known = list(client.get_all_node_info(timeout=5).values())
living = [one for one in known if one.state == GcsNodeInfo.GcsNodeState.ALIVE]
drained = [one for one in living if one.state_snapshot.state == NodeSnapshot.DRAINING]
told = {
    usage.node_id: usage
    for usage in client.get_all_resource_usage(timeout=5).resource_usage_data.batch
}
free = sum(
    told[one.node_id].resources_available.get("CPU", 0) for one in living if one.node_id in told
)
print(
    json.dumps(
        {
            "nodes": {
                one.node_manager_address: one.node_id.hex() for one in living if one not in drained
            },
            "drained": [one.node_id.hex() for one in drained],
            "left": {
                one.node_id.hex(): one.death_info.reason_message
                for one in known
                if one not in living
            },
            "free_cpus": free,
        }
    )
)
