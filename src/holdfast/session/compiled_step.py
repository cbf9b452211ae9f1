"""`run.compile`: a jitted function whose compiled form is found again by the next attempt.

The compilation cache spares an attempt the compiling; this spares it the tracing and lowering too.
A program is known by what it is made from: the function's fingerprint, the types, trees and
shardings of its arguments, its static arguments, JAX's versions and options, and the devices. Where
anything of that cannot be told for certain, the function is traced and compiled, and the log says
why. A program that was found is run at once, and compared with its function later (`kept_check`).
"""

from __future__ import annotations

import functools
import hashlib
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.cache.entry import CacheEntry
from holdfast.journal.clocks import now_ns
from holdfast.session import executables
from holdfast.session.compile_cache import LastProgram, ProgramCache
from holdfast.session.compiling import Compiling
from holdfast.session.fingerprint import Fingerprint
from holdfast.session.jax_words import ProgramError, nodes_of
from holdfast.session.kept_check import KeptCheck
from holdfast.session.own_code import UnfathomableError
from holdfast.session.say import say

if TYPE_CHECKING:
    from holdfast.program.flops import Flops

_SCALARS = (int, float, complex)  # of Python's own: weakly typed; bool is not


@dataclass(slots=True)
class Call:
    """The arguments of one call, as a program sees them. `options`: JAX's, as set around it."""

    args: tuple[Any, ...]  # without the static ones
    kwargs: dict[str, Any]
    statics: list[Any]
    leaves: list[Any]
    tree: Any
    options: Any

    @property
    def weak(self) -> list[bool]:
        """Of each leaf, whether its type gives way to others: no check of JAX's looks at that."""
        return [
            type(leaf) in _SCALARS or bool(getattr(leaf, "weak_type", False))
            for leaf in self.leaves
        ]


@dataclass(slots=True)
class Program:
    """A compiled program, and the calls that it is for."""

    run: Callable[..., Any]
    tree: Any
    weak: list[bool]
    statics: list[Any]
    options: Any
    signature: str
    check: KeptCheck | None = None

    def suits(self, call: Call) -> bool:
        """Whether nothing but shapes, types and shardings can differ, which the program checks."""
        return (
            call.tree == self.tree
            and call.weak == self.weak
            and call.statics == self.statics
            and call.options == self.options
        )


class KeptStep(NamedTuple):
    """A program that was kept, ready to be called, and what is known about it."""

    run: Callable[..., Any]
    words: dict[str, Any]


class Static(NamedTuple):
    """Which arguments `jax.jit` was told are static."""

    places: tuple[int, ...]
    names: tuple[str, ...]


class CompiledStep:
    """What `run.compile` gives: call it as the function. Made by `Run.compile` alone."""

    def __init__(
        self,
        function: Callable[..., Any],
        compiling: Compiling,
        count: Callable[[Flops], None] | None = None,
        **options: Any,
    ) -> None:
        """`count` is told the FLOPs of a call, once for each program."""
        import jax

        is_jitted = hasattr(function, "_jit_info") or hasattr(function, "lower")
        self._jitted: Any = function if is_jitted and not options else jax.jit(function, **options)
        self._compiling = compiling
        self._count = count
        self._name = getattr(function, "__name__", type(function).__name__)
        self._stem = f"step_{self._name}"
        self._static = _static_of(self._jitted)
        self._newest: Program | None = None
        self._programs: dict[tuple[str, Any], Program] = {}
        self._surroundings = ""
        functools.update_wrapper(self, function)
        if self._static is None:
            self._tell("it is not a function of jax.jit's")
        else:
            compiling.expect(self._stem)

    def __getattr__(self, name: str) -> Any:
        """`lower`, `trace` and the like are those of the jitted function."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._jitted, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As the function, on the devices."""
        if self._static is None:
            return self._jitted(*args, **kwargs)
        call = self._call(self._static, args, kwargs)
        newest = self._newest
        if newest is not None and newest.suits(call):
            if newest.check is not None and newest.check.suspicion:
                self._confirm(newest, newest.check, call, args, kwargs)
            try:
                return newest.run(*call.args, **call.kwargs)
            except (TypeError, ValueError):
                # Other shapes, types or shardings: found before anything ran, or was donated.
                if self._signature(call) == newest.signature:
                    raise
        if any(_is_tracer(leaf) for leaf in call.leaves):
            return self._jitted(*args, **kwargs)  # inside another program
        signature = self._signature(call)
        program = self._programs.get((signature, call.options))
        if program is None:
            return self._first_run(call, signature, args, kwargs)
        self._newest = program
        return program.run(*call.args, **call.kwargs)

    # --- arguments --------------------------------------------------------------------------

    def _call(self, static: Static, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        from jax.tree_util import tree_flatten

        statics: list[Any] = []
        if static.places or static.names:
            places = {n if n >= 0 else n + len(args) for n in static.places}
            names = set(static.names)
            statics = [args[n] for n in sorted(places) if n < len(args)]
            statics += [(name, kwargs[name]) for name in sorted(names & kwargs.keys())]
            args = tuple(arg for n, arg in enumerate(args) if n not in places)
            kwargs = {name: value for name, value in kwargs.items() if name not in names}
        leaves, tree = tree_flatten((args, kwargs))
        return Call(args, kwargs, statics, leaves, tree, _options())

    def _signature(self, call: Call) -> str:
        """The abstract arguments and the static ones, in words."""
        parts = [str(call.tree)]
        for leaf, weak in zip(call.leaves, call.weak, strict=True):
            sharding = getattr(leaf, "sharding", None)
            parts.append(
                f"{getattr(leaf, 'shape', ())} {getattr(leaf, 'dtype', type(leaf).__name__)} "
                f"{weak} {sharding!r} {getattr(leaf, 'committed', None)}"
            )
        parts += [repr(static) for static in call.statics]
        return "\n".join(parts)

    # --- finding, compiling, keeping --------------------------------------------------------

    def _first_run(
        self, call: Call, signature: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Find the program of this call, or compile and keep it; gives the call's result."""
        start_ns = now_ns()
        cache, key, found = self._compiling.cache, None, None
        if cache is None:
            self._tell("compiled programs are not kept by Holdfast here")
        else:
            try:
                key = self._key(call, signature)
                found = self._find(cache, key, call, start_ns)
            except (UnfathomableError, ProgramError) as why:
                self._tell(str(why))
            except Exception as error:
                self._tell(f"this version of jax is not known here ({error!r})")
        if cache is not None and key is not None and found is not None:
            try:
                result = found.run(*call.args, **call.kwargs)
            except Exception as error:
                if any(_is_given_away(leaf) for leaf in call.leaves):
                    raise
                cache.tier.remove(key)
                self._tell(f"what was kept of it cannot be run ({error!r})")
            else:
                program = self._remember(found.run, call, signature)
                if self._count is not None and (flops := _flops_in(found.words)) is not None:
                    self._count(flops)
                program.check = self._checked(cache, key, found, call, args, kwargs)
                return result
        traced = self._jitted.trace(*args, **kwargs)
        lowered = traced.lower()
        lowered_ns = now_ns() - start_ns
        if cache is not None:
            cache.last.key = ""
        compiled = lowered.compile()
        asked = None if cache is None else replace(cache.last)
        self._remember(compiled, call, signature)
        result = compiled(*call.args, **call.kwargs)
        flops = self._counted(traced)
        if cache is not None and asked is not None and key is not None:
            # While the devices are busy with the step.
            self._keep(cache, key, asked, compiled, call, lowered, lowered_ns, flops)
        return result

    def _counted(self, traced: Any) -> Flops | None:
        """While the devices are busy with the step; never raises."""
        if self._count is None:
            return None
        try:
            from holdfast.program.jaxpr import of_jaxpr

            flops = of_jaxpr(traced.jaxpr)
            self._count(flops)
        except Exception as error:
            say(f"the FLOPs of {self._name} cannot be counted ({error!r}): tell run.flops")
            return None
        return flops

    def _remember(self, run: Callable[..., Any], call: Call, signature: str) -> Program:
        program = Program(run, call.tree, call.weak, call.statics, call.options, signature)
        self._newest = self._programs[signature, call.options] = program
        return program

    def _key(self, call: Call, signature: str) -> str:
        self._surroundings = executables.surroundings(self._backend(call))
        fingerprint = Fingerprint(executables.describe)
        fingerprint.add(self._jitted, self._name)
        for static in call.statics:
            fingerprint.add(static, "a static argument")
        for kind, data in nodes_of(call.tree):
            fingerprint.add(kind, "an argument's tree")
            if data is not None:
                fingerprint.add(data, "an argument's tree")
        counts = "" if self._count is None else "counted"  # its FLOPs are kept with it
        text = "\0".join((fingerprint.hexdigest(), signature, self._surroundings, counts))
        return f"{self._stem}-{hashlib.sha256(text.encode()).hexdigest()}"

    def _backend(self, call: Call) -> Any:
        """Where it runs: where its arguments are, else JAX's default."""
        import jax

        for leaf in call.leaves:
            sharding = getattr(leaf, "sharding", None)
            if sharding is not None:
                return next(iter(sharding.device_set)).client
        return jax.devices()[0].client

    def _find(self, cache: ProgramCache, key: str, call: Call, start_ns: int) -> KeptStep | None:
        """The program of this key; None: there is none. Raises UnkeptError if it is of no use."""
        entry = cache.seeded().get(key)
        if entry is None or not isinstance(entry.words.get("traced"), str) or cache.is_void(entry):
            return None
        words = entry.words
        try:
            backend = self._backend(call)
            loaded = self._compiling.preloaded(key)
            if loaded is not None and loaded.backend is backend:
                executable = loaded.executable
            else:
                read = partial(executables.load, words["program"], backend=backend)
                executable = cache.load(str(words.get("xla_key")), read)
                if executable is None:
                    cache.tier.remove(key)
                    return None  # its bytes were removed (not used for longest), or put aside
            found = executables.read_program(words["program"], executable, backend, call.tree)
        except ProgramError:
            cache.tier.remove(key)
            raise
        except Exception as error:
            cache.tier.remove(key)
            raise ProgramError(f"what was kept of it cannot be read ({error!r})") from error
        end_ns = now_ns()
        took_ns = words.get("took_ns")
        saved_ns = took_ns - (end_ns - start_ns) if isinstance(took_ns, int) else 0
        self._compiling.found(start_ns, end_ns, saved_ns)
        return KeptStep(found, words)

    def _keep(
        self,
        cache: ProgramCache,
        key: str,
        last: LastProgram,
        compiled: Any,
        call: Call,
        lowered: Any,
        lowered_ns: int,
        flops: Flops | None,
    ) -> None:
        """Never raises: the program is there, and runs."""
        try:
            if not last.key:
                raise ProgramError("the compilation cache was not asked for it")
            backend = self._backend(call)
            words = executables.say_program(compiled, call.tree)
            executables.check_program(words, compiled, backend, call.tree)
            made_from = executables.digest_of(lowered)
        except ProgramError as why:
            self._tell(str(why))
        except Exception as error:
            self._tell(f"{error!r}")
        else:
            kept = {
                "program": words,
                "xla_key": last.key,
                "process": backend.process_index(),
                "traced": made_from,
                "traced_ns": lowered_ns,
                "took_ns": lowered_ns + last.compile_ns,
                "kept_unix_ns": time.time_ns(),
            }
            if flops is not None:
                kept["flops"] = asdict(flops)
            if cache.tier.put(CacheEntry(key, b"", kept)):
                self._compiling.proved(key)

    # --- is it still what the function says? ------------------------------------------------

    def _checked(
        self,
        cache: ProgramCache,
        key: str,
        found: KeptStep,
        call: Call,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> KeptCheck | None:
        """Compare what was found with its function, later; None: nobody does here. Never raises."""
        compiling, surroundings = self._compiling, self._surroundings
        if not compiling.compares:
            return None  # another rank of this host does
        try:
            backend = self._backend(call)
            check = KeptCheck(
                self._jitted,
                key,
                found.words["traced"],
                (args, kwargs),
                is_alike=lambda: executables.surroundings(backend) == surroundings,
                proved=lambda: compiling.proved(key),
            )
            compiling.compare(cache, check, found.words.get("traced_ns"))
        except Exception as error:  # an argument of a kind that is not known here; no thread left
            say(f"{self._name} cannot be compared with its kept program: {error!r}")
            return None
        return check

    def _confirm(
        self,
        program: Program,
        check: KeptCheck,
        call: Call,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        """A thread has a suspicion. Raises DeclaredFailure where it turns out to be true."""
        if self._signature(call) != program.signature:
            return
        program.check = None
        if why := check.confirm(args, kwargs):
            self._compiling.disown(self._name, check, why)

    def _tell(self, why: str) -> None:
        say(f"{self._name} is traced and compiled at every start: {why}")


def _options() -> Any:
    """Those by which `jax.jit` tells its own programs apart: `with jax.enable_x64():` sets one."""
    config = sys.modules.get("jax._src.config")
    try:
        return None if config is None else config.trace_context()
    except AttributeError:  # another JAX than those that are known here
        return None


def _static_of(jitted: Any) -> Static | None:
    """None: it is not a function of jax.jit's, or of another JAX than those that are known here."""
    try:
        info = jitted._jit_info
        return Static(tuple(info.static_argnums), tuple(info.static_argnames))
    except (AttributeError, TypeError):
        return None


def _flops_in(words: dict[str, Any]) -> Flops | None:
    """Those that a kept program says; None: it says none, or rubbish."""
    from holdfast.program.flops import Flops

    kept = words.get("flops")
    if not isinstance(kept, dict):
        return None
    names = "model", "executed", "model_bytes", "executed_bytes"
    numbers = {name: one for name in names if type(one := kept.get(name)) is int and one >= 0}
    gaps = kept.get("left_out")
    if len(numbers) < len(names) or not isinstance(gaps, list):
        return None
    return Flops(**numbers, left_out=tuple(map(str, gaps)))


def _is_given_away(leaf: object) -> bool:
    """Whether an argument was donated to a program that began to run."""
    return isinstance(leaf, sys.modules["jax"].Array) and leaf.is_deleted()


def _is_tracer(leaf: object) -> bool:
    from jax.core import Tracer

    return isinstance(leaf, Tracer)
