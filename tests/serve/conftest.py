"""A server for each module that wants one, and modules of other folders that tests here need."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# --import-mode=importlib leaves the folders out.
_PLACES = [str(Path(__file__).parents[1] / "runs"), str(Path(__file__).parent)]
sys.path[:0] = _PLACES
import asked  # noqa: E402, F401
import made_runs  # noqa: E402, F401
import under_way  # noqa: E402, F401
from served import Served, serving  # noqa: E402

for _place in _PLACES:
    sys.path.remove(_place)


@pytest.fixture(scope="module")
def serve_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Served]]:
    """Serves a store; `--port 0`, and whatever flags are given."""
    with serving(tmp_path_factory.mktemp("serve") / "mirror") as begin:
        yield begin
