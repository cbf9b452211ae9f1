"""The checkpoints that a framework writes: what is read of them, removed, and what does not fit."""

from __future__ import annotations

import contextlib
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.snapshot.external import External

# What frameworks raise where a checkpoint is of another model.
NO_FIT = (AssertionError, AttributeError, KeyError, TypeError, ValueError)
_OF_TORCH = "in loading state_dict"  # a RuntimeError there, as of a lost neighbour, too
# How TensorStore, which reads Orbax's arrays, begins what it says; and what of it is of the model.
_STATUS = re.compile(r"([A-Z_]{6,}): ")
_OF_THE_MODEL = ("INVALID_ARGUMENT", "FAILED_PRECONDITION", "NOT_FOUND", "OUT_OF_RANGE")


@dataclass(frozen=True, slots=True)
class FrameworkFiles:
    """The framework's checkpoints in `folder`, of which those named like `own` are the run's alone.

    `ckpt_dir`: where the sets are that stand for them.
    """

    folder: Path
    own: str | None
    ckpt_dir: Path
    rank: int
    world_size: int

    def read(self, name: str) -> External:
        """One that is whole; what the run keeps no more is removed first."""
        from holdfast.snapshot.external import read_external

        if self.own is not None and self.rank == 0:
            with contextlib.suppress(HoldfastError, OSError):  # the next save tries again
                self._remove_unused(self.own, name)
        return read_external(self.folder, name, self.rank, self.world_size)

    def _remove_unused(self, own: str, name: str) -> None:
        from holdfast.snapshot.sets import list_sets

        sets, damage = list_sets(self.ckpt_dir)
        if damage or not sets:
            return  # nobody knows what those stand for
        used = {self.folder / name}
        for one in sets:  # the folder may have been moved, or be mounted elsewhere, since
            if one.external:
                used.add(self.folder / Path(one.external).relative_to(one.external_folder))
        for path in self.folder.glob(own):
            if path not in used:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def is_of_the_model(error: BaseException) -> bool:
    """Whether that may be raised because a checkpoint does not fit; not for a broken disk."""
    words = str(error)
    status = _STATUS.match(words)
    if status is not None and status[1] not in _OF_THE_MODEL:
        return False
    return isinstance(error, NO_FIT) or _OF_TORCH in words
