from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.snapshot.sets import SetInfo, commit, set_name
from holdfast.snapshot.shard import write_shard
from holdfast.snapshot.staging import GLOBAL, Staging

Save = Callable[..., SetInfo]


def save_ranks(
    ckpt_dir: Path,
    trees: list[Any],
    *,
    attempt: int = 0,
    step: int = 1,
    shared: tuple[str, ...] = GLOBAL,
) -> SetInfo:
    """Save one tree per rank and commit the set."""
    place = ckpt_dir / set_name(attempt, step)
    ckpt_dir.mkdir(exist_ok=True)
    for rank, tree in enumerate(trees):
        captured = Staging().capture(tree, rank, len(trees), shared)
        write_shard(place, captured, attempt=attempt, step=step, rank=rank, world_size=len(trees))
        captured.release()
    return commit(place, len(trees))


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """`save(state)` or `save(ranks=[tree, …])` → the committed set."""

    def saved(state: Any = None, *, ranks: list[Any] | None = None, **where: Any) -> SetInfo:
        return save_ranks(tmp_path / "ckpt", ranks or [{"state": state}], **where)

    return saved
