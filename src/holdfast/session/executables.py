"""Compiled programs as files: what JAX needs to run one again, without pickle.

A compiled step is XLA's own serialized program, which the compilation cache holds anyway, and what
JAX knows about it: shapes, shardings, layouts, the trees of arguments and results. That is written
down as plain JSON (`jax_words`). What this encoding does not know is refused when the program is
kept, never when it is needed: what was written is read back at once and must be equal.

Everything in this module is private to JAX (0.8 to 0.12); another version says `ProgramError`, and
compiles.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import sys
from collections.abc import Callable
from typing import Any

from holdfast.session.jax_words import (
    LISTS,
    Description,
    ProgramError,
    Reader,
    nodes_of,
    read_tree,
    say_aval,
    say_layout,
    say_mesh,
    say_sharding,
    say_tree,
)
from holdfast.session.own_code import UnfathomableError

# What a program that is kept must have none of.
_EMPTY = (
    "unordered_effects",
    "ordered_effects",
    "keepalive",
    "host_callbacks",
    "mut",
    "auto_spmd_lowering",
)
_KNOWN = {*_EMPTY, *LISTS, "xla_executable", "device_list", "backend", "committed", "name"}
_KNOWN |= {"kept_var_idx", "all_args_info", "pgle_profiler"}

# --- the program ----------------------------------------------------------------------------------


def say_program(compiled: Any, in_tree: Any) -> Description:
    """All that is needed beside XLA's bytes; raises UnkeptError."""
    try:
        unloaded = compiled._executable._unloaded_executable
        if compiled._params.const_args:
            raise ProgramError("it closes over arrays")
        if compiled.in_tree != in_tree:
            raise ProgramError("its arguments are not those of the call")
        fields = {one.name for one in dataclasses.fields(unloaded)}
        if unknown := sorted(fields - _KNOWN):
            raise ProgramError(f"this JAX's programs have {' and '.join(unknown)}")
        for name in _EMPTY:
            if getattr(unloaded, name, None):
                raise ProgramError(f"it has {name.replace('_', ' ')}")
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
        words: Description = {
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
        raise ProgramError(f"this JAX's programs look otherwise ({error})") from error
    return words


def digest_of(lowered: Any) -> str:
    """Of all that a function was traced and lowered to, but for where its code stands."""
    return hashlib.sha256(lowered.as_text().encode()).hexdigest()


def load(words: Description, stored: bytes, backend: Any) -> Any:
    """XLA's part of a program, from what JAX's compilation cache holds of it, on its devices."""
    from jax._src import compilation_cache
    from jax._src.lib import xla_client

    program = compilation_cache.decompress_executable(stored)
    program, _ = compilation_cache.extract_executable_and_time(program)
    devices = xla_client.DeviceList(tuple(Reader(backend).devices(words["devices"])))
    return backend.deserialize_executable(program, executable_devices=devices)


def read_program(words: Description, executable: Any, backend: Any, in_tree: Any) -> Any:
    """The compiled program around XLA's part, ready to be called; raises UnkeptError."""
    try:
        return _read_program(words, executable, backend, in_tree)
    except (AttributeError, TypeError, ValueError, KeyError, ImportError, IndexError) as error:
        raise ProgramError(f"it cannot be read ({type(error).__name__}: {error})") from error
    except RuntimeError as error:  # JAX's own kind: XLA does not take it
        raise ProgramError(f"the backend does not support it ({error})") from error


def _read_program(words: Description, executable: Any, backend: Any, in_tree: Any) -> Any:
    from jax import stages
    from jax._src.interpreters import pxla
    from jax._src.lib import xla_client

    reader = Reader(backend)
    devices = xla_client.DeviceList(tuple(reader.devices(words["devices"])))
    out_tree = read_tree(words["out"], list(nodes_of(in_tree)))
    infos = [stages.ArgInfo(reader.aval(one), one["donated"]) for one in words["args"]]
    fields = {one.name for one in dataclasses.fields(pxla.UnloadedMeshExecutable)}
    gone = {"auto_spmd_lowering": False}  # since JAX 0.10
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
        **{name: value for name, value in gone.items() if name in fields},
        **reader.lists(words),
    )
    args_info = in_tree.unflatten(infos)
    return stages.Compiled(unloaded.load(), [], args_info, out_tree, no_kwargs=words["no_kwargs"])


def check_program(words: Description, compiled: Any, backend: Any, in_tree: Any) -> None:
    """Raise UnkeptError unless the words, read back, are the program that they were made from."""
    unloaded = compiled._executable._unloaded_executable
    for name, found in Reader(backend).lists(words).items():
        if found != list(getattr(unloaded, name)):
            raise ProgramError(f"its {name.replace('_', ' ')} are of a kind that is not known here")
    if read_tree(words["out"], list(nodes_of(in_tree))) != compiled.out_tree:
        raise ProgramError("the tree of its results is of a kind that is not known here")


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
        with contextlib.suppress(ProgramError):
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
    import numpy as np
    from jax._src import cache_key, config

    parts: Any = []  # XLA's flags, and the topology

    class KeyParts:
        """Takes what JAX digests for its own keys."""

        def update(self, data: bytes) -> None:
            parts.append(data.hex())

    cache_key._hash_xla_flags(KeyParts(), cache_key.get_flag_prefixes())
    cache_key._hash_accelerator_config(KeyParts(), np.array(backend.devices(), dtype=object))
    options = sorted(
        f"{name}={state.value!r}"
        for name, state in config.config_states.items()
        if name not in _VARYING
    )
    context = [o for o in config.trace_context() if type(o).__name__ != "AxisEnv"]
    text = repr(
        (
            jax.__version__,
            jax.lib.__version__,
            sys.version,
            sys.flags.optimize,
            backend.platform,
            backend.platform_version,
            [(d.id, d.device_kind, d.process_index) for d in backend.devices()],
            backend.process_index(),
            parts,
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
