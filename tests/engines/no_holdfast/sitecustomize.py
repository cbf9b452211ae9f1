"""In front of a path, it hides Holdfast, as on a node where nobody has installed it."""

from __future__ import annotations

import sys


class Hides:
    def find_spec(self, name: str, *_: object) -> None:
        if name == "holdfast":
            raise ModuleNotFoundError("No module named 'holdfast'", name=name)


sys.meta_path.insert(0, Hides())
