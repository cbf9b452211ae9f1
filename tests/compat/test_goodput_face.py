"""Our face has all public names of the library's wheel: parameters, members and fields."""

from __future__ import annotations

import ast
import dataclasses
import enum
import importlib
import importlib.metadata
import inspect
import subprocess
import sys
from typing import Any

import pytest

MODULES = (
    "checkpoint_badput_calculator",
    "exclusion_utils",
    "goodput",
    "goodput_cache",
    "goodput_elastic",
    "goodput_utils",
    "monitoring",
    "monitoring_elastic",
)
# Names of what they import, or of how they are made: no part of an API.
NOT_PUBLIC = {"Enum", "GCPMetrics", "GoogleAPIError", "Retry", "ValueType", "logger"}


def source(module: str) -> ast.Module:
    wheel = importlib.metadata.distribution("ml-goodput-measurement")
    path = next(f for f in wheel.files or () if f.match(f"src/{module}.py"))
    return ast.parse(path.locate().read_text())


def ours(module: str) -> Any:
    return importlib.import_module(f"holdfast.compat.ml_goodput_measurement.{module}")


def parameters(function: ast.FunctionDef) -> list[tuple[str, bool]]:
    """(name, whether it has a default), in order; those by keyword only at the end."""
    args = function.args
    plain = [*args.posonlyargs, *args.args]
    bare = len(plain) - len(args.defaults)
    found = [(one.arg, at >= bare) for at, one in enumerate(plain)]
    found += [
        (one.arg, default is not None)
        for one, default in zip(args.kwonlyargs, args.kw_defaults, strict=True)
    ]
    return [one for one in found if one[0] != "self"]


def our_parameters(function: Any) -> list[tuple[str, bool]]:
    return [
        (one.name, one.default is not inspect.Parameter.empty)
        for one in inspect.signature(function).parameters.values()
        if one.name != "self"
    ]


def is_public(name: str) -> bool:
    return not name.startswith("_") or name == "__init__"


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_is_there(module: str) -> None:
    names = [
        node.name if isinstance(node, ast.ClassDef | ast.FunctionDef) else node.targets[0].id
        for node in source(module).body
        if isinstance(node, ast.ClassDef | ast.FunctionDef)
        or (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name))
    ]
    wanted = {name for name in names if is_public(name)} - NOT_PUBLIC
    assert sorted(wanted - set(dir(ours(module)))) == []


@pytest.mark.parametrize("module", MODULES)
def test_classes_and_functions_take_the_same(module: str) -> None:
    mine = ours(module)
    different = []
    for node in source(module).body:
        if isinstance(node, ast.FunctionDef) and is_public(node.name):
            same = parameters(node) == our_parameters(getattr(mine, node.name))
            different += [] if same else [node.name]
        if not isinstance(node, ast.ClassDef) or not is_public(node.name):
            continue
        kind = getattr(mine, node.name)
        for method in node.body:
            if isinstance(method, ast.FunctionDef) and is_public(method.name):
                found = getattr(kind, method.name, None)
                if found is None or parameters(method) != our_parameters(found):
                    different.append(f"{node.name}.{method.name}")
    assert different == []


def test_enums_and_fields_are_the_same() -> None:
    for module in MODULES:
        for node in source(module).body:
            if not isinstance(node, ast.ClassDef) or not is_public(node.name):
                continue
            kind = getattr(ours(module), node.name)
            if isinstance(kind, enum.EnumMeta):
                theirs = {
                    one.targets[0].id: ast.literal_eval(one.value)
                    for one in node.body
                    if isinstance(one, ast.Assign)
                }
                assert {one.name: one.value for one in kind} == theirs, node.name
            elif dataclasses.is_dataclass(kind) or "TypedDict" in map(ast.unparse, node.bases):
                fields = [one.target.id for one in node.body if isinstance(one, ast.AnnAssign)]
                assert set(fields) <= set(inspect.get_annotations(kind)), node.name


@pytest.mark.real
def test_an_import_brings_nothing_heavy_and_no_more_of_ours_than_it_must() -> None:
    """What records and what answers come with the first that is wanted of them."""
    code = (
        "import sys; from holdfast.compat.ml_goodput_measurement import goodput, monitoring; "
        "print(sorted({'numpy', 'google', 'scipy', 'requests', 'torch', 'tensorboardX', 'jax'}"
        " & sys.modules.keys()));"
        "print(sorted(x for x in sys.modules if x.startswith(('holdfast.c', 'holdfast.j'))"
        " and not x.startswith('holdfast.compat')), f'{goodput.__package__}.local' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (out.stdout.split("\n"), out.stderr) == (["[]", "[] False", ""], "")
