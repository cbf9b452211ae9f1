"""The runs of a scene outlive the case that starts them; the scene ends them all."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _no_child_left() -> None:
    """In place of the one of all tests."""
