"""A cluster's emulator over HTTP, in a network namespace of its own: cases in `inside/`."""

from __future__ import annotations

from pathlib import Path

import namespace
import pytest

pytestmark = pytest.mark.real

outcomes, test_in_a_namespace = namespace.mirror(Path(__file__).with_name("inside"))
