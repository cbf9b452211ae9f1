"""What JAX knows about a program, as JSON and back: shardings, types, layouts, trees.

Reading creates numbers, names and JAX's own types only. Private to JAX, as `executables` is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

Description = dict[str, Any]

# What a program has of each argument or result, by JAX's own names.
LISTS = (
    "input_avals",
    "output_avals",
    "input_shardings",
    "output_shardings",
    "xla_in_layouts",
    "dispatch_in_layouts",
    "xla_out_layouts",
)


class ProgramError(Exception):
    """A program that cannot be kept; the text says why."""


# --- devices, shardings, layouts, types -----------------------------------------------------------


def say_sharding(sharding: Any) -> Description:
    """A sharding as JSON; raises UnkeptError."""
    from jax.sharding import NamedSharding, SingleDeviceSharding

    if isinstance(sharding, SingleDeviceSharding):
        (device,) = sharding.device_set
        return {"device": device.id, "memory": sharding.memory_kind}
    if isinstance(sharding, NamedSharding):
        return {
            "mesh": say_mesh(sharding.mesh),
            "spec": say_spec(sharding.spec),
            "memory": sharding.memory_kind,
        }
    raise ProgramError(f"a sharding of the kind {type(sharding).__name__}")


def say_mesh(mesh: Any) -> Description:
    """A mesh as JSON."""
    return {
        "axes": list(mesh.axis_names),
        "shape": list(mesh.devices.shape),
        "devices": [device.id for device in mesh.devices.flat],
        "types": [kind.name for kind in mesh.axis_types],
    }


class Reader:
    """Makes JAX's objects from their JSON, with the devices of this process."""

    def __init__(self, backend: Any) -> None:
        self._devices = {device.id: device for device in backend.devices()}
        self._meshes: dict[str, Any] = {}

    def devices(self, ids: Sequence[int]) -> list[Any]:
        """The devices of these numbers; raises UnkeptError when one is not there."""
        try:
            return [self._devices[number] for number in ids]
        except KeyError as missing:
            raise ProgramError(f"device {missing} is not there") from None

    def sharding(self, words: Description) -> Any:
        """The inverse of `say_sharding`."""
        from jax.sharding import NamedSharding, SingleDeviceSharding

        if "device" in words:
            (device,) = self.devices([words["device"]])
            return SingleDeviceSharding(device, memory_kind=words["memory"])
        mesh, spec = self._mesh(words["mesh"]), read_spec(words["spec"])
        return NamedSharding(mesh, spec, memory_kind=words["memory"])

    def aval(self, words: Description) -> Any:
        """The inverse of `say_aval`."""
        import jax
        import jax.numpy as jnp
        from jax._src import core
        from jax.sharding import NamedSharding

        if "key" in words:
            dtype = jax.eval_shape(lambda: jax.random.key(0, impl=words["key"])).dtype
        else:
            dtype = jnp.dtype(words["dtype"])
        shape, weak = tuple(words["shape"]), words["weak"]
        if "mesh" not in words:
            return core.ShapedArray(shape, dtype, weak_type=weak)
        mesh = self._mesh(words["mesh"]).abstract_mesh
        sharding = NamedSharding(mesh, read_spec(words["spec"]))
        return core.ShapedArray(shape, dtype, weak_type=weak, sharding=sharding)

    def lists(self, words: Description) -> dict[str, list[Any]]:
        """The lists of a program: types, shardings and layouts of arguments and results."""
        readers = {"avals": self.aval, "shardings": self.sharding, "layouts": read_layout}
        return {
            name: [readers[name.rpartition("_")[2]](one) for one in words[name]] for name in LISTS
        }

    def _mesh(self, words: Description) -> Any:
        import numpy as np
        from jax.sharding import AxisType, Mesh

        known = self._meshes.get(repr(words))
        if known is None:
            devices = np.array(self.devices(words["devices"]), dtype=object)
            known = self._meshes[repr(words)] = Mesh(
                devices.reshape(words["shape"]),
                tuple(words["axes"]),
                axis_types=tuple(AxisType[name] for name in words["types"]),
            )
        return known


def say_spec(spec: Any) -> list[Any]:
    """Which axes of a mesh each dimension is split over, as JSON."""
    return [list(one) if isinstance(one, tuple) else one for one in spec]


def read_spec(words: list[Any]) -> Any:
    """The inverse of `say_spec`."""
    from jax.sharding import PartitionSpec

    return PartitionSpec(*(tuple(one) if isinstance(one, list) else one for one in words))


def say_aval(aval: Any, meshes: Sequence[Any]) -> Description:
    """An argument's type as JSON; `meshes` are those that the program runs on."""
    import jax

    dtype = aval.dtype
    is_key = jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key)
    words: Description = {"shape": list(aval.shape), "weak": bool(aval.weak_type)}
    words |= {"key": dtype._impl.name} if is_key else {"dtype": dtype.name}
    if not aval.sharding.mesh.empty:
        mesh = next((one for one in meshes if one.abstract_mesh == aval.sharding.mesh), None)
        if mesh is None:
            raise ProgramError("an argument's type is of a mesh that the program does not run on")
        words |= {"mesh": say_mesh(mesh), "spec": say_spec(aval.sharding.spec)}
    return words


def say_layout(layout: Any) -> Description | None:
    """A layout in memory as JSON; None: the default."""
    if layout is None:
        return None
    bits = "sub_byte_element_size_in_bits"  # before JAX 0.10 with an underscore in front of it
    return {
        "order": list(layout.major_to_minor),
        "tiling": [list(tile) for tile in layout.tiling or ()],
        "bits": getattr(layout, bits if hasattr(layout, bits) else f"_{bits}"),
    }


def read_layout(words: Description | None) -> Any:
    """The inverse of `say_layout`."""
    from jax.experimental.layout import Layout

    if words is None:
        return None
    tiling = tuple(tuple(tile) for tile in words["tiling"])
    return Layout(tuple(words["order"]), tiling, words["bits"])


# --- trees ----------------------------------------------------------------------------------------


def nodes_of(tree: Any) -> Iterator[tuple[Any, Any]]:
    """(type, data) of all inner nodes of a tree's structure."""
    data = tree.node_data()
    if data is not None:
        yield data
        for child in tree.children():
            yield from nodes_of(child)


def say_tree(tree: Any, known: Sequence[tuple[Any, Any]]) -> Any:
    """A tree's structure as JSON: nodes by their place in `known`, or Python's own containers."""
    if tree.node_data() is None:
        return 0  # a leaf
    kind, data = tree.node_data()
    if kind is type(None):
        return None
    children = [say_tree(child, known) for child in tree.children()]
    if kind is dict and all(isinstance(key, str) for key in data):
        return {"dict": list(data), "of": children}
    if kind in (list, tuple):
        return {kind.__name__: children}
    for place, (other, other_data) in enumerate(known):
        if other is kind and (other_data is data or _is_equal(other_data, data)):
            return {"like": place, "of": children}
    raise ProgramError(f"its result holds a {kind.__qualname__}, and its arguments do not")


def _is_equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except Exception:  # an array compares to an array
        return False


def read_tree(words: Any, known: Sequence[tuple[Any, Any]]) -> Any:
    """The inverse of `say_tree`, as a tree structure."""
    import jax

    registry = jax.tree_util.default_registry
    make = jax.tree_util.PyTreeDef.from_node_data_and_children
    if words == 0:
        return jax.tree_util.tree_structure(0)
    if words is None:
        return jax.tree_util.tree_structure(None)
    if "dict" in words:
        data: Any = (dict, words["dict"])
        children = words["of"]
    elif "like" in words:
        data, children = known[words["like"]], words["of"]
    else:
        ((name, children),) = words.items()
        data = ({"list": list, "tuple": tuple}[name], None)
    return make(registry, data, [read_tree(child, known) for child in children])
