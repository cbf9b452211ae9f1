"""Compiled programs as files: what JAX needs to run one again, without pickle.

A compiled step is XLA's own serialized program, which the compilation cache holds anyway, and what
JAX knows about it: shapes, shardings, layouts, the trees of arguments and results. That is written
down here as plain JSON. What this encoding does not know is refused when the program is kept, never
when it is needed: what was written is read back at once and must be equal to the original.

Everything in this module is private to JAX 0.10; another version says `UnkeptError`, and compiles.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from holdfast.session.fingerprint import UnfathomableError

Words = dict[str, Any]


class UnkeptError(Exception):
    """A program that cannot be kept; the text says why."""


# --- devices, shardings, layouts, types -----------------------------------------------------------


def say_sharding(sharding: Any) -> Words:
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
    raise UnkeptError(f"a sharding of the kind {type(sharding).__name__}")


def say_mesh(mesh: Any) -> Words:
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
            raise UnkeptError(f"device {missing} is not there") from None

    def sharding(self, words: Words) -> Any:
        """The inverse of `say_sharding`."""
        from jax.sharding import NamedSharding, SingleDeviceSharding

        if "device" in words:
            (device,) = self.devices([words["device"]])
            return SingleDeviceSharding(device, memory_kind=words["memory"])
        mesh, spec = self._mesh(words["mesh"]), read_spec(words["spec"])
        return NamedSharding(mesh, spec, memory_kind=words["memory"])

    def aval(self, words: Words) -> Any:
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

    def lists(self, words: Words) -> dict[str, list[Any]]:
        """The lists of a program: types, shardings and layouts of arguments and results."""
        readers = {"avals": self.aval, "shardings": self.sharding, "layouts": read_layout}
        return {
            name: [readers[name.rpartition("_")[2]](one) for one in words[name]] for name in LISTS
        }

    def _mesh(self, words: Words) -> Any:
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


def say_aval(aval: Any, meshes: Sequence[Any]) -> Words:
    """An argument's type as JSON; `meshes` are those that the program runs on."""
    import jax

    dtype = aval.dtype
    is_key = jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key)
    words: Words = {"shape": list(aval.shape), "weak": bool(aval.weak_type)}
    words |= {"key": dtype._impl.name} if is_key else {"dtype": dtype.name}
    if not aval.sharding.mesh.empty:
        mesh = next((one for one in meshes if one.abstract_mesh == aval.sharding.mesh), None)
        if mesh is None:
            raise UnkeptError("an argument's type is of a mesh that the program does not run on")
        words |= {"mesh": say_mesh(mesh), "spec": say_spec(aval.sharding.spec)}
    return words


def say_layout(layout: Any) -> Words | None:
    """A layout in memory as JSON; None: the default."""
    if layout is None:
        return None
    return {
        "order": list(layout.major_to_minor),
        "tiling": [list(tile) for tile in layout.tiling or ()],
        "bits": layout.sub_byte_element_size_in_bits,
    }


def read_layout(words: Words | None) -> Any:
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
    raise UnkeptError(f"its result holds a {kind.__qualname__}, and its arguments do not")


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


# --- the program ----------------------------------------------------------------------------------

LISTS = (
    "input_avals",
    "output_avals",
    "input_shardings",
    "output_shardings",
    "xla_in_layouts",
    "dispatch_in_layouts",
    "xla_out_layouts",
)


def say_program(compiled: Any, in_tree: Any) -> Words:
    """All that is needed beside XLA's bytes; raises UnkeptError."""
    try:
        unloaded = compiled._executable._unloaded_executable
        if compiled._params.const_args:
            raise UnkeptError("it closes over arrays")
        if compiled.in_tree != in_tree:
            raise UnkeptError("its arguments are not those of the call")
        for name in ("unordered_effects", "ordered_effects", "keepalive", "host_callbacks", "mut"):
            if getattr(unloaded, name):
                raise UnkeptError(f"it has {name.replace('_', ' ')}")
        infos = compiled.args_info
        leaves = sys.modules["jax"].tree_util.tree_leaves(infos)
        shardings = [*unloaded.input_shardings, *unloaded.output_shardings]
        meshes = [one.mesh for one in shardings if hasattr(one, "mesh")]
        say_type = functools.partial(say_aval, meshes=meshes)
        sayers: dict[str, Callable[[Any], Any]] = {
            "avals": say_type,
            "shardings": say_sharding,
            "layouts": say_layout,
        }
        words: Words = {
            name: [sayers[name.rpartition("_")[2]](one) for one in getattr(unloaded, name)]
            for name in LISTS
        }
        words |= {
            "name": unloaded.name,
            "devices": [device.id for device in unloaded.device_list],
            "committed": bool(unloaded.committed),
            "kept": sorted(unloaded.kept_var_idx),
            "args": [{**say_type(leaf._aval), "donated": bool(leaf.donated)} for leaf in leaves],
            "no_kwargs": bool(compiled._no_kwargs),
            "out": say_tree(compiled.out_tree, list(nodes_of(in_tree))),
        }
    except (AttributeError, TypeError, ValueError, KeyError) as error:
        raise UnkeptError(f"this JAX's programs look otherwise ({error})") from error
    return words


def load(words: Words, stored: bytes, backend: Any) -> Any:
    """XLA's part of a program, from what JAX's compilation cache holds of it, on its devices."""
    from jax._src import compilation_cache
    from jax._src.lib import xla_client

    program = compilation_cache.decompress_executable(stored)
    program, _ = compilation_cache.extract_executable_and_time(program)
    devices = xla_client.DeviceList(tuple(Reader(backend).devices(words["devices"])))
    return backend.deserialize_executable(program, executable_devices=devices)


def read_program(words: Words, executable: Any, backend: Any, in_tree: Any) -> Any:
    """The compiled program around XLA's part, ready to be called; raises UnkeptError."""
    try:
        return _read_program(words, executable, backend, in_tree)
    except (AttributeError, TypeError, ValueError, KeyError, ImportError, IndexError) as error:
        raise UnkeptError(f"it cannot be read ({type(error).__name__}: {error})") from error
    except RuntimeError as error:  # JAX's own kind: XLA does not take it
        raise UnkeptError(f"the backend does not take it ({error})") from error


def _read_program(words: Words, executable: Any, backend: Any, in_tree: Any) -> Any:
    from jax import stages
    from jax._src.interpreters import pxla
    from jax._src.lib import xla_client

    reader = Reader(backend)
    devices = xla_client.DeviceList(tuple(reader.devices(words["devices"])))
    out_tree = read_tree(words["out"], list(nodes_of(in_tree)))
    infos = [stages.ArgInfo(reader.aval(one), one["donated"]) for one in words["args"]]
    unloaded = pxla.UnloadedMeshExecutable(
        xla_executable=executable,
        device_list=devices,
        backend=backend,
        committed=words["committed"],
        name=words["name"],
        unordered_effects=[],
        ordered_effects=[],
        keepalive=[],
        host_callbacks=[],
        kept_var_idx=set(words["kept"]),
        mut=None,
        all_args_info=None,
        pgle_profiler=None,
        **reader.lists(words),
    )
    args_info = in_tree.unflatten(infos)
    return stages.Compiled(unloaded.load(), [], args_info, out_tree, no_kwargs=words["no_kwargs"])


def check_program(words: Words, compiled: Any, backend: Any, in_tree: Any) -> None:
    """Raise UnkeptError unless the words, read back, are the program that they were made from."""
    unloaded = compiled._executable._unloaded_executable
    for name, found in Reader(backend).lists(words).items():
        if found != list(getattr(unloaded, name)):
            raise UnkeptError(f"its {name.replace('_', ' ')} are of a kind that is not known here")
    if read_tree(words["out"], list(nodes_of(in_tree))) != compiled.out_tree:
        raise UnkeptError("the tree of its results is of a kind that is not known here")


# --- what a program depends on beside the function ------------------------------------------------


def describe(value: object) -> object | None:
    """JAX's objects in a function's reach, as simpler ones; raises UnfathomableError for arrays."""
    import jax
    from jax.sharding import Mesh, PartitionSpec, Sharding

    if isinstance(value, jax.Array):
        raise UnfathomableError("it holds an array: hand it over as an argument")
    if isinstance(value, PartitionSpec):
        return ["spec", *value]
    if isinstance(value, Mesh):
        return ["mesh", say_mesh(value)]
    if isinstance(value, Sharding):
        with contextlib.suppress(UnkeptError):
            return ["sharding", say_sharding(value)]
        return None
    if isinstance(value, jax.tree_util.PyTreeDef | jax.Device):
        return [type(value).__name__, str(value)]
    info = getattr(value, "_jit_info", None)
    if info is not None and hasattr(value, "_fun"):
        return ["jit", value._fun, *jit_options(info)]
    if type(value).__name__ == "UnspecifiedValue":
        return ["unspecified"]
    return None


def jit_options(info: Any) -> list[object]:
    """What `jax.jit` was told, but for the function's name and place."""
    return [
        [name, getattr(info, name)]
        for name in info._fields
        if name not in ("fun_sourceinfo", "fun_signature")
    ]


def surroundings(backend: Any) -> str:
    """Versions, devices, flags and options: all that a program depends on but the function."""
    import jax
    from jax._src import cache_key, config
    from jax._src.lib import xla_client

    flags: Any = []

    class Heard:
        """Takes what JAX digests for its own keys."""

        def update(self, data: bytes) -> None:
            flags.append(data.hex())

    cache_key._hash_xla_flags(Heard(), cache_key.get_flag_prefixes())
    options = sorted(
        f"{name}={state.value!r}"
        for name, state in config.config_states.items()
        if name not in _VARYING
    )
    topology = xla_client.get_topology_for_devices(list(backend.devices()))
    context = [o for o in config.trace_context() if type(o).__name__ != "AxisEnv"]
    text = repr(
        (
            jax.__version__,
            jax.lib.__version__,
            sys.version,
            sys.flags.optimize,
            backend.platform,
            backend.platform_version,
            topology.fingerprint(),
            [(d.id, d.device_kind, d.process_index) for d in backend.devices()],
            backend.process_index(),
            flags,
            cache_key.custom_hook(),
            options,
            context,
        )
    )
    if " at 0x" in text:
        raise UnfathomableError("an option of JAX is an object that cannot be looked into")
    return text


# Options of JAX that differ between processes and attempts, and change no program.
_VARYING = frozenset(
    {
        "jax_compilation_cache_dir",
        "jax_coordinator_address",
        "jax_persistent_cache_min_compile_time_secs",
        "jax_persistent_cache_enable_xla_caches",
    }
)
