"""The import law, enforced on the source text, with a test that the test can fail.

What may import what stands in two tables, `LAYERS` and `PURE`. Everything is checked statically, so
an import inside a function or under TYPE_CHECKING counts like any other.
"""

from __future__ import annotations

import ast
import functools
import graphlib
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

SRC = Path(__file__).parents[1] / "src"
ROOT = "holdfast"

# Package (or module) → what of ours it may import besides itself. `cli` composes everything.
BASE = {"core", "errors", "config", "distribution"}
LAYERS: dict[str, set[str]] = {
    "distribution": set(),
    "errors": {"distribution"},
    "core": {"errors"},
    "config": {"core", "errors"},
    "journal": BASE,
    "cache": BASE | {"journal"},
    "snapshot": BASE | {"journal"},
    "session": BASE | {"cache", "controller", "journal", "profiles", "program", "snapshot"},
    "standby": set(),  # its interpreters need not have us installed
    "controller": BASE | {"journal", "link", "snapshot"},
    "agent": BASE
    | {"cache", "controller", "journal", "link", "notices", "profiles", "snapshot", "standby"},
    "link": BASE | {"journal"},
    "notices": BASE,
    "engines": BASE | {"journal"},
    "provision": BASE,
    "program": BASE,
    "profiles": BASE | {"journal"},
    "convert": BASE,
    "sim": BASE | {"controller", "journal", "snapshot"},
    "report": BASE | {"journal", "profiles", "runs", "snapshot"},
    "runs": BASE | {"journal", "snapshot"},
    "serve": BASE | {"export", "journal", "report", "runs"},
    "export": BASE | {"journal", "runs"},
    "testing": {"errors"},  # emulators know the vendors' protocols, and nothing of ours
    "doctor": BASE | {"journal", "notices", "sim", "snapshot"},
    "rehearse": BASE | {"controller", "journal", "testing"},
    "adapters": BASE | {"compat", "journal", "session", "snapshot"},
    "compat": BASE | {"export", "journal", "session", "snapshot"},
    "": BASE | {"report", "session", "snapshot"},  # the public face, holdfast/__init__.py
}
INDEPENDENT = ("notices", "engines", "provision")  # their modules never import one another,
SHARED = {  # but for what is there for all of them
    f"holdfast.notices.{name}"
    for name in ("fetch", "found", "listener", "protocol", "registry", "said")
} | {"holdfast.provision.protocol", "holdfast.engines.protocol", "holdfast.engines.registry"}

# The standard library's pure parts: no clock, no chance, no input or output.
# fmt: off
PURE = {
    "__future__", "abc", "array", "bisect", "collections", "dataclasses", "enum", "fractions",
    "functools", "heapq", "itertools", "json", "math", "numbers", "operator", "re", "string",
    "textwrap", "types", "typing",
}
# fmt: on
NUMPY_IN_CORE = ("holdfast.core.history", "holdfast.core.ledger", "holdfast.core.plan.optimum")
IMPURE_BUILTINS = {"open", "print", "input", "exec", "eval", "breakpoint", "__import__"}
WRITES_CODE = {"holdfast.core.value": {"exec"}}  # as `dataclasses` does (decision 0080)
HEAVY = {
    "numpy", "click", "rich", "xxhash", "jax", "torch", "optax", "orbax", "asyncio", "obstore",
    "altair", "jinja2", "vl_convert", "grpc", "google", "prometheus_client", "tensorboardX",
    "starlette", "uvicorn", "anyio", "yaml",
}  # fmt: skip
READS = ("holdfast.config", "holdfast.engines.ssh.host_side")
FRAMEWORKS = ("jax", "torch", "tensorflow")
QUICK = ("holdfast.cli.ls", "holdfast.cli.supervise", "holdfast.cli.several_hosts")
ENVIRONMENT = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}
ORDERED_CONSUMERS = {"list", "tuple", "enumerate", "iter", "zip", "map", "reversed", "sum"}


class Import(NamedTuple):
    """One import statement's target, as a dotted module."""

    target: str
    line: int
    at_import: bool  # runs when the module is imported: not in a function, not TYPE_CHECKING


class Module(NamedTuple):
    """One module's name and parsed source."""

    name: str
    tree: ast.Module
    is_package: bool


@functools.cache
def read_sources() -> list[Module]:
    found = []
    for path in sorted((SRC / ROOT).rglob("*.py")):
        parts = path.relative_to(SRC).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        found.append(Module(name, ast.parse(path.read_text(), str(path)), is_package))
    return found


def imports_of(module: Module, known: set[str]) -> Iterator[Import]:
    """Every import in the module, relative ones resolved; `from a import b` is a.b if a module."""
    for node, at_import in walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, at_import)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                up = module.name.split(".")[: None if module.is_package else -1]
                up = up[: len(up) - node.level + 1]
                base = ".".join([*up, base] if base else up)
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                yield Import(inner if inner in known else base, node.lineno, at_import)


def walk(node: ast.AST, at_import: bool = True) -> Iterator[tuple[ast.AST, bool]]:
    """All nodes, each with whether it runs when the module is imported."""
    for child in ast.iter_child_nodes(node):
        deferred = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) or (
            isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
        )
        yield child, at_import and not deferred
        yield from walk(child, at_import and not deferred)


def layer_of(name: str) -> str:
    return name.split(".")[1] if "." in name else ""


def violations(modules: list[Module]) -> list[str]:
    """Every breach of the law, one sentence each."""
    known = {m.name for m in modules}
    edges = {m.name: list(imports_of(m, known)) for m in modules}
    found: list[str] = []
    for module in modules:
        for edge in edges[module.name]:
            found += [f"{module.name}:{edge.line} {why}" for why in breaches(module.name, edge)]
        if layer_of(module.name) == "core":
            lawful = WRITES_CODE.get(module.name, set())
            found += [
                f"{module.name}:{line} {why}" for line, why in impurities(module.tree, lawful)
            ]
        # A standby's environment is that of the program which it will become, not ours; what runs
        # on a host before we are there has none of ours.
        if module.name not in READS and layer_of(module.name) != "standby":
            found += [f"{module.name}:{n} reads the environment" for n in env_reads(module.tree)]
    return found + cycles(edges) + heavy_at_import(edges) + slow_starts(edges)


def breaches(importer: str, edge: Import) -> Iterator[str]:
    layer, target = layer_of(importer), edge.target
    ours = target.split(".")[0] == ROOT
    if ours and layer != "cli":
        wanted = layer_of(target)
        if wanted != layer and wanted not in LAYERS.get(layer, set()):
            yield f"imports {target}: {layer or 'the face'} may not import {wanted or 'the face'}"
        inner = [".".join(name.split(".")[:3]) for name in (importer, target)]
        is_sibling = target.count(".") > 1 and inner[0] != inner[1] and inner[1] not in SHARED
        if wanted == layer in INDEPENDENT and is_sibling:
            yield f"imports its sibling {target}"
    lawful = PURE | {ROOT} | ({"numpy"} if importer.startswith(NUMPY_IN_CORE) else set())
    if layer == "core" and target.split(".")[0] not in lawful:
        yield f"imports {target}, which is not among core's pure modules"


def is_set(node: ast.AST, set_names: set[str]) -> bool:
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in {"set", "frozenset"}
    if isinstance(node, ast.BinOp):
        return is_set(node.left, set_names) or is_set(node.right, set_names)
    name = getattr(node, "id", None) or getattr(node, "attr", None)
    return isinstance(node, ast.Name | ast.Attribute) and name in set_names


def impurities(tree: ast.Module, lawful: Collection[str] = ()) -> Iterator[tuple[int, str]]:
    """Iteration over sets (its order differs between processes), and input or output.

    `lawful`: what else would be that.
    """
    nodes = list(ast.walk(tree))
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.AnnAssign | ast.arg) and node.annotation is not None:
            if ast.unparse(node.annotation).startswith(("set", "frozenset")):
                names.add(node.arg if isinstance(node, ast.arg) else ast.unparse(node.target))
        elif isinstance(node, ast.Assign) and is_set(node.value, set()):
            names |= {t.id for t in node.targets if isinstance(t, ast.Name)}
    for node in nodes:
        iterated: list[ast.expr] = []
        if isinstance(node, ast.For | ast.comprehension):
            iterated = [node.iter]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in ORDERED_CONSUMERS:
                iterated = node.args
            elif node.func.id in IMPURE_BUILTINS.difference(lawful):
                yield node.lineno, f"calls {node.func.id}"
        for expression in iterated:
            if is_set(expression, names):
                yield expression.lineno, f"iterates over a set: {ast.unparse(expression)}"


def env_reads(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        from_os = isinstance(node, ast.ImportFrom) and node.module in {"os", "posix"}
        if from_os and any(alias.name in ENVIRONMENT for alias in node.names):
            yield node.lineno
        if isinstance(node, ast.Attribute) and node.attr in ENVIRONMENT:
            of_os = isinstance(node.value, ast.Name) and node.value.id in {"os", "posix"}
            yield from [node.lineno] if of_os else []


def cycles(edges: dict[str, list[Import]]) -> list[str]:
    graph = {name: {e.target for e in out if e.target in edges} for name, out in edges.items()}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return ["import cycle: " + " → ".join(reversed(error.args[1]))]
    return []


def heavy_at_import(
    edges: dict[str, list[Import]], root: str = ROOT, heavy: Collection[str] = tuple(HEAVY)
) -> list[str]:
    """What importing `root` pulls in by module-level imports, the parent packages included."""
    found, seen, todo = [], {root}, [root]
    while todo:
        name = todo.pop()
        for edge in edges.get(name, []):
            if not edge.at_import:
                continue
            if edge.target.split(".")[0] in heavy:
                found.append(f"{name}:{edge.line} makes `import {root}` import {edge.target}")
            parts = edge.target.split(".")
            for parent in (".".join(parts[:n]) for n in range(1, len(parts) + 1)):
                if parent in edges and parent not in seen:
                    seen.add(parent)
                    todo.append(parent)
    return found


def slow_starts(edges: dict[str, list[Import]]) -> list[str]:
    """What takes a tenth of a second of commands that do without it."""
    return [
        words for root in QUICK for words in heavy_at_import(edges, root, ("numpy", *FRAMEWORKS))
    ]


def test_the_house_keeps_the_import_law() -> None:
    assert violations(read_sources()) == []


def test_every_package_has_its_place_in_the_table() -> None:
    packages = {layer_of(m.name) for m in read_sources()} - {"cli"}
    assert packages <= set(LAYERS)


@pytest.mark.parametrize(
    ("sources", "complaint"),
    [
        ({"core.x": "import os"}, "holdfast.core.x:1 imports os, which"),
        ({"core.x": "def f():\n    import time"}, "holdfast.core.x:2 imports time"),
        ({"core.x": "import numpy"}, "imports numpy"),
        ({"cli.ls": "import holdfast.runs.x", "runs.x": "import numpy"}, "ls` import numpy"),
        ({"core.x": "from holdfast import config", "config": ""}, "core may not import config"),
        ({"core.x": "from ..journal import y", "journal.y": ""}, "core may not import journal"),
        ({"core.x": "for y in {1, 2}: pass"}, "iterates over a set: {1, 2}"),
        ({"core.x": "def f(a: set[int]): return [b for b in a]"}, "iterates over a set: a"),
        ({"core.x": "def f(a): return tuple(set(a))"}, "iterates over a set: set(a)"),
        ({"core.x": "def f(p): return open(p)"}, "calls open"),
        ({"session.x": "from holdfast.agent import y", "agent.y": ""}, "may not import agent"),
        ({"session.x": "def f():\n  import holdfast.report.y", "report.y": ""}, "import report"),
        ({"notices.a": "from . import b", "notices.b": ""}, "sibling holdfast.notices.b"),
        ({"notices.fetch": "from . import b", "notices.b": ""}, "sibling holdfast.notices.b"),
        ({"agent.x": "import os\nos.environ['A']"}, "holdfast.agent.x:2 reads the environment"),
        ({"agent.x": "from os import getenv"}, "reads the environment"),
        ({"journal.a": "from holdfast.journal import b",
          "journal.b": "def f():\n    from holdfast.journal import a"}, "import cycle"),
        ({"session.x": "import numpy", "": "from holdfast.session.x import y"},
         "holdfast.session.x:1 makes `import holdfast` import numpy"),
    ],
)  # fmt: skip
def test_a_breach_is_caught(sources: dict[str, str], complaint: str) -> None:
    modules = [
        Module(f"{ROOT}.{name}".rstrip("."), ast.parse(text), not name)
        for name, text in sources.items()
    ]
    assert any(complaint in found for found in violations(modules)), violations(modules)


@pytest.mark.parametrize(
    "sources",
    [
        {"core.ledger.fast": "import numpy as np"},
        {"core.x": "def f(a: set[int]): return sorted(a), len(a), 3 in a"},
        {"notices.a": "from holdfast.core import word", "core.save.word": ""},
        {"notices.a": "from holdfast.notices import fetch", "notices.fetch": ""},
        {"config": "import os\nos.environ"},
        {"session.x": "def f():\n    import numpy", "": "from holdfast.session.x import y"},
        {"cli.x": "import holdfast.agent.y, holdfast.report.z", "agent.y": "", "report.z": ""},
    ],
)
def test_what_is_lawful_passes(sources: dict[str, str]) -> None:
    test = [Module(f"{ROOT}.{n}".rstrip("."), ast.parse(t), not n) for n, t in sources.items()]
    assert violations(test) == []


@pytest.mark.contract("import: light")
def test_import_holdfast_is_light() -> None:
    program = f"import holdfast, sys; print(sorted(set({sorted(HEAVY)}) & sys.modules.keys()))"
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (out.stdout.strip(), out.stderr) == ("[]", "")
