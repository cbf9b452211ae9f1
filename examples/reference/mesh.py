"""Devices in a grid of three axes, and which part of each array lies where.

`data` divides the batch, and each device there has all parameters; `fsdp` divides the batch and the
parameters, which are gathered layer by layer (ZeRO-3, arXiv:1910.02054); `tensor` divides each
layer's products and heads (Megatron-LM, arXiv:1909.08053). Slices of accelerators are joined by the
slower network between them: only `data` goes over it.
"""

from __future__ import annotations

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

AXES = ("data", "fsdp", "tensor")
ROWS = PartitionSpec(("data", "fsdp"))

# By the name of the module that has the array; the first axis of a block's array is the layer.
PARTS = {
    "embedding": PartitionSpec(("tensor", "fsdp"), None),
    "qkv": PartitionSpec(None, "fsdp", "tensor"),
    "attention_out": PartitionSpec(None, "tensor", "fsdp"),
    "mlp_in": PartitionSpec(None, "fsdp", "tensor"),
    "mlp_out": PartitionSpec(None, "tensor", "fsdp"),
}


def grid(devices, fsdp: int, tensor: int, slices: int) -> Mesh:
    """`data` gets what the others leave, and is a multiple of `slices`."""
    data, rest = divmod(len(devices), fsdp * tensor)
    if rest or data % slices:
        wanted = f"fsdp {fsdp} × tensor {tensor} × slices {slices}"
        raise SystemExit(f"{len(devices)} devices cannot be divided into {wanted}")
    inside, between = (data // slices, fsdp, tensor), (slices, 1, 1)
    if slices > 1 and hasattr(devices[0], "slice_index"):
        places = mesh_utils.create_hybrid_device_mesh(inside, between, devices)
    elif devices[0].platform == "tpu":
        places = mesh_utils.create_device_mesh(inside, devices)
    else:  # whose order is that of the slices
        places = np.reshape(devices, (data, fsdp, tensor))
    return Mesh(places, AXES, axis_types=(AxisType.Auto,) * len(AXES))


def parts(mesh: Mesh, tree):
    """The shardings of a tree of parameters, or of an optimizer's moments of them."""

    def one(path, leaf):
        names = {getattr(key, "key", getattr(key, "name", None)) for key in path}
        found = [spec for name, spec in PARTS.items() if name in names and leaf.ndim > 1]
        return NamedSharding(mesh, found[0] if found else PartitionSpec())

    return jax.tree_util.tree_map_with_path(one, tree)


def row_devices() -> int:
    """Among how many devices rows are divided: 1 where no mesh is set."""
    shape = jax.sharding.get_abstract_mesh().shape
    return shape.get("data", 1) * shape.get("fsdp", 1)


def by_rows(x):
    """[B, …] divided by its rows among all devices; as it is where no mesh is set."""
    return placed(x, ROWS)


def everywhere(x):
    """The whole of it on each device."""
    return placed(x, PartitionSpec())


def placed(x, spec: PartitionSpec):
    if jax.sharding.get_abstract_mesh().empty:
        return x
    return jax.lax.with_sharding_constraint(x, spec)
