"""A run's placement group and the actors in it: made by whoever submits, found by its foreman.

The submitter makes them at once, and each starts its agent: the foreman's process may come later
than theirs. What is missing then, or later, the foreman makes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.engines.ray.host import HostTold, RayHost
from holdfast.engines.ray.options import RayOptions

HEAD = "node:__internal_head__"  # a resource that Ray gives to that node alone


@dataclass(frozen=True, slots=True)
class ForemanTold:
    """What a foreman is told, in each of its lives. `order`: this submission's own id.

    `since_term`: of the run's newest controller before it. `grace_s`: of agents that are to go.
    """

    submission: dict[str, Any]
    options: RayOptions
    name: str
    order: str
    since_term: int
    grace_s: float = 30.0

    @property
    def place(self) -> str:
        """Of what this order has in Ray, the beginning of each name."""
        return f"{self.name}-{self.order}"


def find_group(told: ForemanTold) -> Any:
    """The one that was made before; None: there is none."""
    from ray.util.placement_group import get_placement_group

    try:
        return get_placement_group(told.place)
    except ValueError:
        return None


def make_group(told: ForemanTold) -> Any:
    """Ask for the bundles, which may come much later."""
    from ray.util.placement_group import placement_group

    options, count = told.options, told.submission["hosts"] + told.submission["spares"]
    labels = {"bundle_label_selector": [options.labels] * count} if options.labels else {}
    return placement_group(
        [options.bundle] * count,
        strategy="STRICT_SPREAD",
        name=told.place,
        lifetime="detached",
        **labels,
    )


def on_head(nodes: Iterable[Mapping[str, Any]]) -> Any:
    """Where the foreman is to be: beside no rank, unless Ray has no room for it on the head."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    for node in nodes:
        if node["Alive"] and HEAD in node["Resources"]:
            return NodeAffinitySchedulingStrategy(node["NodeID"], soft=True)
    return "DEFAULT"


def fitting(nodes: Iterable[Mapping[str, Any]], options: RayOptions) -> int:
    """How many of Ray's nodes live and have what a host needs, whoever uses it now."""

    def fits(node: Mapping[str, Any]) -> bool:
        has, labels = node["Resources"], node.get("Labels", {})
        return (
            node["Alive"]
            and all(has.get(name, 0) >= value for name, value in options.bundle.items())
            and all(labels.get(name) == value for name, value in options.plain_labels.items())
        )

    return sum(map(fits, nodes))


def open_host(
    told: ForemanTold, group: Any, index: int, *, since_unix_ns: int, starts: bool = False
) -> Any:
    """The actor of that host, in its bundle; the one that is there, if it lives."""
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    key = f"ray-{told.submission['run_id']}-{told.order}-{index}"
    reserved = dict(told.options.bundle)
    return (
        ray.remote(RayHost)
        .options(
            name=f"{told.place}-{index}",
            get_if_exists=True,
            lifetime="detached",
            max_restarts=0,
            max_concurrency=4,
            num_cpus=reserved.pop("CPU", 0),
            num_gpus=reserved.pop("GPU", 0),
            resources=reserved,
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, index),
        )
        .remote(
            HostTold(
                told.submission,
                index,
                key,
                told.options.cwd,
                told.options.variables,
                since_unix_ns,
                starts,
            )
        )
    )
