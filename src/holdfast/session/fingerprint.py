"""What a Python function will do when it is traced, as a digest, without tracing it.

The digest of a function covers everything that its trace can see: the code of the user's own
modules (all that are loaded), the values in closures, defaults and globals that the function and
what it calls can reach, and the packages that they come from, by version and by the time stamps of
their files. Two processes with the same digest trace the same program.

Where that cannot be promised, there is no digest but a reason (`UnfathomableError`): the function
reaches something whose answers may change (`os`, `time`, a random generator, an open file), an
array, or an object that cannot be looked into.
"""

from __future__ import annotations

import builtins
import dis
import enum
import functools
import hashlib
import struct
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from holdfast.session.own_code import UnfathomableError, is_own, own_modules, stamps_of

# The standard library's modules whose functions answer the same in every process.
STEADY = frozenset(
    {"__future__", "abc", "bisect", "collections", "copy", "dataclasses", "enum", "functools"}
    | {"fractions", "heapq", "itertools", "math", "numbers", "operator", "re", "string"}
    | {"textwrap", "types", "typing", "contextlib", "statistics", "cmath"}
)
UNSTEADY_BUILTINS = frozenset(
    {"__import__", "breakpoint", "compile", "eval", "exec", "globals", "hash", "id", "input"}
    | {"locals", "open", "vars"}
)
UNSTEADY_NAMES = frozenset({"numpy.random"})
_ATOMS = (type(None), bool, int, str, bytes, complex, type(Ellipsis), type(NotImplemented))
# Methods that a trace may call, and that no number depends on.
_OUT_OF_PROGRAMS = ("__hash__", "__repr__", "__str__")
_SEPARATOR = b"\0"


class Fingerprint:
    """Digests values one after the other. One use; `hexdigest` is the sum of all."""

    def __init__(self, describe: Callable[[object], object | None] = lambda _: None) -> None:
        """`describe` gives something simpler for a framework's own objects; None: it knows none."""
        self._hash = hashlib.sha256()
        self._describe = describe
        self._seen: dict[int, int] = {}
        self._alive: list[object] = []  # ids stay true as long as these live
        self._packages: set[str] = set()

    def hexdigest(self) -> str:
        """Of everything added, of the user's modules, and of the packages that were reached.

        Raises UnfathomableError.
        """
        try:
            for package in sorted(self._packages):
                self._mark(f"package {package}", stamps_of(package))
            for name, path in own_modules():
                self._mark("module", name)
                self._hash.update(hashlib.sha256(path.read_bytes()).digest())
        except OSError as error:
            raise UnfathomableError(f"{error.filename} cannot be read: {error.strerror}") from error
        return self._hash.hexdigest()

    def add(self, value: Any, where: str) -> None:
        """Take in a value; `where` names it in a reason. Raises UnfathomableError."""
        kind = type(value)
        if kind in _ATOMS:
            self._mark(kind.__name__, repr(value))
        elif kind is float:
            self._hash.update(struct.pack("<d", value))
        elif kind in (tuple, frozenset):  # how these are shared is the interpreter's business
            self._add_container(value, kind, where)
        elif id(value) in self._seen:
            self._mark("again", str(self._seen[id(value)]))
        else:
            self._seen[id(value)] = len(self._seen)
            self._alive.append(value)
            self._add_object(value, kind, where)

    def _add_object(self, value: Any, kind: type, where: str) -> None:
        simple = self._describe(value)
        if simple is not None:
            self._mark("described", f"{kind.__module__}.{kind.__qualname__}")
            self.add(simple, where)
        elif isinstance(value, list | tuple | dict | set | frozenset) and _is_plain(kind):
            self._add_container(value, kind, where)
        elif isinstance(value, types.FunctionType):
            self._add_function(value, where)
        elif isinstance(value, types.MethodType):
            self.add(value.__func__, where)
            self.add(value.__self__, where)
        elif isinstance(value, functools.partial):
            self._mark("partial", "")
            for part in (value.func, value.args, value.keywords):
                self.add(part, where)
        elif isinstance(value, types.BuiltinFunctionType | types.BuiltinMethodType):
            self._add_builtin(value, where)
        elif isinstance(value, types.CodeType):
            self._add_code(value, where)
        elif isinstance(value, type):
            self._add_class(value, where)
        elif isinstance(value, types.ModuleType):
            raise UnfathomableError(f"{where} hands on the module {value.__name__} as a value")
        elif isinstance(value, enum.Enum):
            self._add_class(kind, where)
            self._mark("enum", value.name)
        elif isinstance(value, slice | range):
            self._mark(kind.__name__, repr(value))
        elif kind.__module__ in ("numpy", "numpy.dtypes"):
            self._add_numpy(value, where)
        else:
            self._add_state(value, kind, where)

    # --- values -----------------------------------------------------------------------------

    def _add_container(self, value: Any, kind: type, where: str) -> None:
        self._mark(f"{kind.__module__}.{kind.__qualname__}", str(len(value)))
        if isinstance(value, dict):
            for key, item in value.items():
                self.add(key, where)
                self.add(item, f"{where}[{key!r:.40}]")
        elif isinstance(value, set | frozenset):
            if not all(type(item) in (*_ATOMS, float) for item in value):
                raise UnfathomableError(
                    f"{where} is a set of other things than numbers and strings"
                )
            for text in sorted(f"{type(item).__name__} {item!r}" for item in value):
                self._mark("item", text)
        else:
            for item in value:
                self.add(item, where)

    def _add_numpy(self, value: Any, where: str) -> None:
        kind = type(value)
        if hasattr(value, "tobytes") and hasattr(value, "dtype") and not value.dtype.hasobject:
            self._mark(f"numpy {value.dtype!r}", str(value.shape))
            self._hash.update(value.tobytes())
        elif kind.__name__ == "ufunc" or isinstance(value, _numpy_dtype()):
            self._mark("numpy", repr(value))
        else:
            raise UnfathomableError(f"{where} is a numpy.{kind.__qualname__}")

    def _add_state(self, value: Any, kind: type, where: str) -> None:
        """An object: its class, and what it holds."""
        state = getattr(value, "__dict__", None)
        slots = [
            name
            for cls in kind.__mro__
            for name in _slots(cls)
            if name not in ("__dict__", "__weakref__")
        ]
        is_tuple = isinstance(value, tuple)  # a named one
        if not isinstance(state, dict) and not slots and not is_tuple:
            raise UnfathomableError(
                f"{where} is a {kind.__module__}.{kind.__qualname__}, which cannot be looked into"
            )
        if isinstance(value, list | dict | set | frozenset):
            raise UnfathomableError(f"{where} is a {kind.__module__}.{kind.__qualname__}")
        self._add_class(kind, where)
        if is_tuple:
            for item in value:
                self.add(item, where)
        for name in sorted(state or ()):
            self._mark("attribute", str(name))
            self.add((state or {})[name], f"{where}.{name}")
        for name in slots:
            if hasattr(value, name):
                self._mark("attribute", name)
                self.add(getattr(value, name), f"{where}.{name}")

    def _add_builtin(self, value: Any, where: str) -> None:
        owner = getattr(value, "__self__", None)
        module = getattr(value, "__module__", None) or ""
        self._mark("builtin", f"{module}.{value.__qualname__}")
        if owner is None or isinstance(owner, types.ModuleType):
            self._look_at(module, value.__name__, where)
        elif isinstance(owner, type):
            self._add_class(owner, where)
        else:
            self.add(owner, where)

    def _add_class(self, value: type, where: str) -> None:
        self._mark("class", f"{value.__module__}.{value.__qualname__}")
        if not self._look_at(value.__module__, value.__qualname__, where):
            return
        if id(value) not in self._seen:
            self._seen[id(value)] = len(self._seen)
            self._alive.append(value)
        for name, member in sorted(vars(value).items()):
            function = getattr(member, "__func__", None) or getattr(member, "fget", None) or member
            if isinstance(function, types.FunctionType) and name not in _OUT_OF_PROGRAMS:
                self.add(function, f"{value.__qualname__}.{name}")
        for base in value.__bases__:
            if id(base) not in self._seen:
                self._add_class(base, where)

    # --- functions --------------------------------------------------------------------------

    def _add_function(self, function: types.FunctionType, where: str) -> None:
        name = f"{function.__module__}.{function.__qualname__}"
        self._mark("function", name)
        is_own = self._look_at(function.__module__, function.__qualname__, where)
        self._add_code(function.__code__, where)
        label = function.__qualname__.rpartition(".")[2]
        self.add(function.__defaults__, f"a default of {label}")
        self.add(function.__kwdefaults__, f"a default of {label}")
        for variable, cell in zip(
            function.__code__.co_freevars, function.__closure__ or (), strict=True
        ):
            self._mark("closes over", variable)
            try:
                held = cell.cell_contents
            except ValueError:
                continue  # not set yet
            if isinstance(held, types.ModuleType):
                self._look_at(held.__name__, "", f"{label} (by {variable})")
            else:
                self.add(held, f"{variable}, which {label} closes over,")
        if is_own:
            for chain in _names_read(function.__code__):
                self._add_global(function, chain, label)

    def _add_global(self, function: types.FunctionType, chain: tuple[str, ...], label: str) -> None:
        """What a chain of names, `module.attribute.attribute`, stands for now."""
        first = chain[0]
        self._mark("reads", ".".join(chain))
        if first in function.__globals__:
            value = function.__globals__[first]
        elif hasattr(builtins, first):
            if first in UNSTEADY_BUILTINS:
                raise UnfathomableError(f"{label} calls {first}()")
            return
        else:
            return  # not there yet: reading it would raise
        path, is_users = first, True
        for attribute in chain[1:]:
            if not isinstance(value, types.ModuleType):
                break
            is_users = self._look_at(value.__name__, attribute, label)
            path = f"{path}.{attribute}"
            try:
                value = getattr(value, attribute)
            except AttributeError:
                raise UnfathomableError(f"{label} reads {path}, which is not there") from None
        if isinstance(value, types.ModuleType):
            self._look_at(value.__name__, "", label)
            if is_own(value.__name__):
                raise UnfathomableError(f"{label} hands on the module {value.__name__} as a value")
            return
        home = getattr(value, "__module__", None)
        if callable(value) and isinstance(home, str) and not is_own(home):
            # A package's function or class is known by its name: the package's files are digested.
            # What a call of a package gave to the user's module (`f = jit(g)`) says whose it is.
            inner = getattr(value, "__wrapped__", None)
            if inner is None and (isinstance(value, types.FunctionType | type) or not is_users):
                self._look_at(home, getattr(value, "__qualname__", ""), label)
                if not getattr(value, "__closure__", None):
                    self._mark("named", f"{home}.{getattr(value, '__qualname__', path)}")
                    return
        self.add(value, path)

    def _add_code(self, code: types.CodeType, where: str) -> None:
        """What it does; not where it stands, which the user's files tell."""
        self._hash.update(code.co_code)
        for names in (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars):
            self._mark("names", " ".join(names))
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self._add_code(constant, where)
            else:
                self.add(constant, where)

    def _look_at(self, module: str | None, name: str, where: str) -> bool:
        """Whether a module is the user's own; raises UnfathomableError if it is not steady."""
        top = (module or "").partition(".")[0]
        if not top or top == "builtins":
            if name in UNSTEADY_BUILTINS:
                raise UnfathomableError(f"{where} calls {name}()")
            return False
        full = f"{module}.{name}".rstrip(".")
        for unsteady in UNSTEADY_NAMES:
            if full == unsteady or full.startswith(f"{unsteady}."):
                raise UnfathomableError(f"{where} uses {unsteady}, whose answers change")
        if top in sys.stdlib_module_names:
            if top.lstrip("_") not in STEADY and top not in STEADY:
                raise UnfathomableError(f"{where} uses the module {top}, whose answers may change")
            return False
        if is_own(str(module)):
            return True
        self._packages.add(top)
        return False

    def _mark(self, kind: str, text: str) -> None:
        self._hash.update(f"{kind}:{text}".encode("utf-8", "surrogatepass") + _SEPARATOR)


def _names_read(code: types.CodeType) -> Iterator[tuple[str, ...]]:
    """The chains `a.b.c` that begin with a global name, inner functions' included."""
    chain: list[str] = []
    for instruction in dis.get_instructions(code):
        if chain and instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            chain.append(str(instruction.argval))
            continue
        if chain:
            yield tuple(chain)
            chain = []
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            chain = [str(instruction.argval)]
        elif instruction.opname == "IMPORT_NAME":
            raise UnfathomableError(f"{code.co_name} imports {instruction.argval} inside")
    if chain:
        yield tuple(chain)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_read(constant)


def _slots(cls: type) -> tuple[str, ...]:
    slots = cls.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _is_plain(kind: type) -> bool:
    """Exactly a container of Python's own, of which nothing but the items counts."""
    return kind in (list, tuple, dict, set, frozenset) or kind is types.MappingProxyType


def _numpy_dtype() -> type:
    dtype: type = sys.modules["numpy"].dtype
    return dtype
