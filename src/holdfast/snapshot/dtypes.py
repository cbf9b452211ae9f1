"""Names of element types: ours, numpy's, torch's and those of safetensors.

A type is named as numpy and ml_dtypes name it ("float32", "bfloat16"). Anything else that numpy can
hold without objects (byte-swapped, dates, fixed-length text, records) is named by numpy's own
description and stored as raw bytes: shape (..., itemsize) of U8.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import numpy as np

from holdfast.errors import ConfigurationError

Spec = str | list[Any]
"""A name, or a record's description as JSON (`numpy.lib.format.dtype_to_descr`)."""

_NUMPY = {
    "bool": (1, "BOOL"),
    "int8": (1, "I8"),
    "int16": (2, "I16"),
    "int32": (4, "I32"),
    "int64": (8, "I64"),
    "uint8": (1, "U8"),
    "uint16": (2, "U16"),
    "uint32": (4, "U32"),
    "uint64": (8, "U64"),
    "float16": (2, "F16"),
    "float32": (4, "F32"),
    "float64": (8, "F64"),
    "complex64": (8, None),
    "complex128": (16, None),
}
# Only codes that every reader since safetensors 0.4 knows: an unknown one makes a file unreadable.
_ML = {
    "bfloat16": (2, "BF16"),
    "float8_e4m3fn": (1, "F8_E4M3"),
    "float8_e5m2": (1, "F8_E5M2"),
    "float8_e3m4": (1, None),
    "float8_e4m3": (1, None),
    "float8_e4m3b11fnuz": (1, None),
    "float8_e4m3fnuz": (1, None),
    "float8_e5m2fnuz": (1, None),
    "float8_e8m0fnu": (1, None),
    "float6_e2m3fn": (1, None),
    "float6_e3m2fn": (1, None),
    "float4_e2m1fn": (1, None),
    "int1": (1, None),
    "int2": (1, None),
    "int4": (1, None),
    "uint1": (1, None),
    "uint2": (1, None),
    "uint4": (1, None),
}
_NAMED = _NUMPY | _ML
_DESCRIPTION = re.compile(r"[<>|][biufcmMSUV][0-9]{1,9}(\[[0-9A-Za-z]{1,8}\])?")
MAX_RECORD_DEPTH = 16


@lru_cache(maxsize=256)
def spec_of(dtype: np.dtype[Any]) -> Spec | None:
    """The name of a numpy type; None when it holds Python objects and cannot be stored."""
    if dtype.hasobject:
        return None
    if dtype.isnative and dtype.name in _NAMED and dtype.names is None:
        return dtype.name
    description: Any = np.lib.format.dtype_to_descr(dtype)
    if isinstance(description, str):
        return description if _DESCRIPTION.fullmatch(description) else None
    try:
        return _listed(description) if numpy_dtype(_listed(description)) == dtype else None
    except ValueError:
        return None


def _listed(description: Any) -> Any:
    if isinstance(description, list | tuple):
        return [_listed(item) for item in description]
    return description


def _record(spec: Any, depth: int = 0) -> Any:
    """A description from JSON back into the tuples that numpy wants; ValueError on rubbish."""
    if isinstance(spec, str) and _DESCRIPTION.fullmatch(spec):
        return spec
    if not isinstance(spec, list) or depth > MAX_RECORD_DEPTH:
        raise ValueError(f"{spec!r} describes no element type")
    fields = []
    for field in spec:
        if not isinstance(field, list) or not 2 <= len(field) <= 3:
            raise ValueError(f"{field!r} describes no field of a record")
        name = field[0] if isinstance(field[0], str) else tuple(field[0])
        shape = [tuple(field[2])] if len(field) == 3 else []
        fields.append((name, _record(field[1], depth + 1), *shape))
    return fields


def numpy_dtype(spec: Spec) -> np.dtype[Any]:
    """The numpy type of a spec; ValueError when it is none.

    ConfigurationError when it needs ml_dtypes, which is not installed: nothing is wrong with a
    checkpoint then.
    """
    if isinstance(spec, str) and spec in _ML:
        try:
            import ml_dtypes
        except ImportError as error:
            raise ConfigurationError(
                f"numpy needs the package ml_dtypes to hold {spec}: pip install ml_dtypes, "
                "or give tensors of PyTorch as `like`"
            ) from error
        try:
            named: np.dtype[Any] = np.dtype(getattr(ml_dtypes, spec))
        except AttributeError as error:
            raise ConfigurationError(f"{spec} needs a newer ml_dtypes") from error
        return named
    try:
        if isinstance(spec, str):
            return np.dtype(spec if spec in _NUMPY else _record(spec))
        record: np.dtype[Any] = np.lib.format.descr_to_dtype(_record(spec))
        return record
    except (TypeError, SyntaxError, OverflowError, IndexError) as error:
        raise ValueError(f"{spec!r} describes no element type") from error


def itemsize(spec: Spec) -> int:
    """Bytes per element; ValueError when the spec names no type."""
    if isinstance(spec, str) and spec in _NAMED:
        return _NAMED[spec][0]
    return numpy_dtype(spec).itemsize


def bits(size: int) -> np.dtype[Any]:
    """A type for elements of that size that are only moved, whatever they are."""
    return np.dtype(f"u{size}" if size in (1, 2, 4, 8) else f"V{size}")


def is_named(name: str) -> bool:
    """Whether the name is one that every framework shares."""
    return name in _NAMED


def safetensors_view(spec: Spec, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    """The dtype code and the shape under which the bytes stand in a safetensors header."""
    code = _NAMED[spec][1] if isinstance(spec, str) and spec in _NAMED else None
    return (code, shape) if code else ("U8", (*shape, itemsize(spec)))
