"""Prints of the living nodes of the cluster RAY_ADDRESS which take a task now, as JSON, by id."""

from __future__ import annotations

import json

import ray
from ray.exceptions import TaskUnschedulableError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy


@ray.remote(num_cpus=0)
def here() -> bool:
    return True


def takes(answer: ray.ObjectRef) -> bool:
    try:
        return ray.get(answer)
    except TaskUnschedulableError:
        return False


ray.init(log_to_driver=False)
living = [one["NodeID"] for one in ray.nodes() if one["Alive"]]
asked = {
    node: here.options(
        scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)
    ).remote()
    for node in living
}
print(json.dumps({node: takes(answer) for node, answer in asked.items()}))
