"""Which arrays of tracked parts are to become DTensors, each rank reading its part alone.

A module says it by its own parameters and buffers. An optimizer has no state before its first step:
what has the shape of a parameter lies as the parameter does. Any other object is asked for its
state only where a checkpoint has slices of it, since to ask may change something (an iterator).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # numpy: not before there is a state
    from holdfast.snapshot.dtensor import Layout
    from holdfast.snapshot.structure import Array


class PartLayouts:
    """Of these parts, by name, as they are now. A `Find` of `snapshot.restore`."""

    def __init__(self, parts: Mapping[str, Any]) -> None:
        from holdfast.snapshot.paths import piece

        self._parts = {piece(name): part for name, part in parts.items()}
        self._known: dict[str, dict[str, Layout]] = {}

    def __call__(self, array: Array, is_sharded: bool) -> Layout | None:
        """As what DTensor to restore an array, if as one."""
        section, name, *below = array.path.split("/", 3)
        part = self._parts.get(name) if section == "parts" else None
        if part is None or not _is_distributed():
            return None
        layout: Layout | None = None
        if hasattr(part, "param_groups"):
            if len(below) > 1 and below[0] == "state":
                layout = self._of_parameters(name, part).get(below[1].split("/")[0])
        elif is_sharded or isinstance(part, sys.modules["torch"].nn.Module):
            from holdfast.snapshot.parts import plain_name

            layout = self._of_state(name, part).get(plain_name(array.path))
        return layout if layout is not None and layout.shape == array.shape else None

    def _of_parameters(self, name: str, optimizer: Any) -> dict[str, Layout]:
        """By the number that an optimizer's state has them by."""
        from holdfast.snapshot.dtensor import is_dtensor, layout_of

        if name not in self._known:
            all_of_them = [one for group in optimizer.param_groups for one in group["params"]]
            self._known[name] = {
                str(number): layout_of(one)
                for number, one in enumerate(all_of_them)
                if is_dtensor(one)
            }
        return self._known[name]

    def _of_state(self, name: str, part: Any) -> dict[str, Layout]:
        """By path."""
        from holdfast.snapshot.arrays import ArrayKind
        from holdfast.snapshot.dtensor import layout_of
        from holdfast.snapshot.parts import part_state, plain_name
        from holdfast.snapshot.tree import flatten

        if name not in self._known:
            state = {"parts": {name: part_state(part, f"parts/{name}")}}
            self._known[name] = {
                plain_name(leaf.path): layout_of(leaf.held)
                for leaf in flatten(state).leaves
                if leaf.kind is ArrayKind.TORCH and leaf.held is not None
            }
        return self._known[name]

    def fit(self, state: Any, path: str) -> Any:
        """A state that was read whole, for its part was not tracked yet: with DTensors in it."""
        if not _is_distributed():
            return state
        from holdfast.snapshot import dtensor, nodes, paths
        from holdfast.snapshot.arrays import ArrayKind
        from holdfast.snapshot.structure import Array

        torch = sys.modules["torch"]
        if isinstance(state, torch.Tensor):
            if dtensor.is_dtensor(state):
                return state
            array = Array(path, ArrayKind.TORCH, "", tuple(state.shape), None, weak=False)
            layout = self(array, is_sharded=False)
            if layout is None:
                return state
            return dtensor.build(layout, lambda index: state[tuple(slice(*one) for one in index)])
        if not isinstance(state, dict | list | tuple):
            return state
        node = nodes.open_node(state, path)
        if node is None:
            return state
        inside = zip(node.pieces, node.children, strict=True)
        return node.rebuild([self.fit(one, paths.join(path, piece)) for piece, one in inside])


def _is_distributed() -> bool:
    """Whether there can be a DTensor at all."""
    return any(name in sys.modules for name in ("torch.distributed.tensor", _BEFORE_2_5))


_BEFORE_2_5 = "torch.distributed._tensor"
