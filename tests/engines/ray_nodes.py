"""Prints the living nodes of the cluster RAY_ADDRESS, as JSON: by address, the id."""

from __future__ import annotations

import json
import os

from ray._raylet import GcsClient

client = GcsClient(address=os.environ["RAY_ADDRESS"])
found = client.get_all_node_info(timeout=5).values()
print(json.dumps({one.node_manager_address: one.node_id.hex() for one in found if one.state == 0}))
