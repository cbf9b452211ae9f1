"""Values with the `__init__` that is else written with their first object.

Hypothesis reads it, to find what a class is made of.
"""

from __future__ import annotations

import sys
from typing import get_type_hints

from holdfast.core import value


def write_inits() -> None:
    """Of all classes of Holdfast that are imported."""
    modules = [module for name, module in [*sys.modules.items()] if name.startswith("holdfast.")]
    for one in {
        kind for module in modules for kind in vars(module).values() if isinstance(kind, type)
    }:
        if one.__init__.__qualname__ == value._init_of(one).__qualname__:
            one.__init__ = value._written_init(one)
            one.__init__.__annotations__ = get_type_hints(one)
