"""What is asked of Cloud TPU: a run's machines as the messages of one version of its API."""

from __future__ import annotations

from typing import Any

from holdfast.core.hosts.wanted import Buy, Machines
from holdfast.errors import ConfigurationError
from holdfast.provision.protocol import RUN_LABEL

ALPHA, STABLE = "v2alpha1", "v2"
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
STARTUP_SCRIPT = "startup-script"


def check(machines: Machines) -> None:
    """Raise ConfigurationError for what that version of the API does not have."""
    if machines.api not in (ALPHA, STABLE):
        raise ConfigurationError(f"Cloud TPU has no API {machines.api!r}; use {ALPHA} or {STABLE}")
    if machines.api == ALPHA:
        return
    if machines.autocheckpoint:
        raise ConfigurationError(
            f"autocheckpoint is not in version {machines.api} of Cloud TPU's API; "
            f"use {ALPHA}, or --no-autocheckpoint"
        )
    if machines.is_queued and machines.buy in (Buy.BEST_EFFORT, Buy.RESERVED):
        raise ConfigurationError(
            f"{machines.buy} queued resources are not in version {machines.api} of Cloud TPU's "
            f"API; use {ALPHA}"
        )


def node_message(types: Any, machines: Machines) -> Any:
    """A `Node` without its name. `types` is the version's module."""
    node = types.Node(
        accelerator_type=machines.accelerator,
        runtime_version=machines.runtime,
        labels=dict(machines.labels) | {RUN_LABEL: machines.owner},
        metadata=dict(machines.metadata) | {STARTUP_SCRIPT: machines.script},
        # As gcloud does, where the service by itself gives none: without, a script that installs
        # waits for ever, and nobody comes in by SSH.
        network_config=types.NetworkConfig(network=machines.network, enable_external_ips=True),
    )
    if machines.service_account:
        node.service_account = types.ServiceAccount(email=machines.service_account, scope=[SCOPE])
    if machines.autocheckpoint:
        node.autocheckpoint_enabled = True
    if not machines.is_queued and machines.buy is not Buy.ON_DEMAND:
        node.scheduling_config = types.SchedulingConfig(
            spot=machines.buy is Buy.SPOT, reserved=machines.buy is Buy.RESERVED
        )
    return node


def queued_message(types: Any, machines: Machines, name: str, parent: str) -> Any:
    """A `QueuedResource` with one node of that name, or so many whose names begin with it."""
    queued = types.QueuedResource
    spec = queued.Tpu.NodeSpec(parent=parent, node=node_message(types, machines))
    if machines.slices == 1:
        spec.node_id = name
    elif machines.api == ALPHA:
        spec.multi_node_params = queued.Tpu.NodeSpec.MultiNodeParams(
            node_count=machines.slices, node_id_prefix=name
        )
    else:
        spec.multislice_params = queued.Tpu.NodeSpec.MultisliceParams(
            node_count=machines.slices, node_id_prefix=name
        )
    message = queued(tpu=queued.Tpu(node_spec=[spec]))
    if machines.buy is Buy.SPOT:
        message.spot = queued.Spot()
    elif machines.buy is Buy.BEST_EFFORT:
        message.best_effort = queued.BestEffort()
    elif machines.buy is Buy.RESERVED:
        message.guaranteed = queued.Guaranteed(reserved=True)
    else:
        message.guaranteed = queued.Guaranteed()
    return message
