"""Ledgers whose columns leave plain numbers for numpy sooner than usual."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import strategies as st

from holdfast.core.ledger import spans, steps
from holdfast.core.ledger.columns import FEW

FEW_ROWS = st.sampled_from([0, 3, FEW])  # from the first row on, on the way, hardly ever


@contextmanager
def plain_up_to(few: int) -> Iterator[None]:
    """Up to so many rows are kept as plain numbers."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(spans, "FEW", few)
        patched.setattr(steps, "FEW", few)
        yield
