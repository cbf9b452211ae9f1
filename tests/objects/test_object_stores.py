"""Object stores, tested in a network namespace of their own (`namespace`): cases in `inside/`."""

from __future__ import annotations

from pathlib import Path

import namespace
import pytest

pytestmark = pytest.mark.real

pytest.importorskip("obstore")
pytest.importorskip("moto")

outcomes, test_in_a_namespace = namespace.mirror(Path(__file__).with_name("inside"), by_file=True)
