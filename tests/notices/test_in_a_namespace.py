"""Sources against the emulators of their services, in a network namespace with only a loopback.

The cases are in `inside/`, one file a source; they run in one process, see `namespace`.
"""

from __future__ import annotations

from pathlib import Path

import namespace
import pytest

pytestmark = pytest.mark.real

outcomes, test_in_a_namespace = namespace.mirror(Path(__file__).with_name("inside"))
