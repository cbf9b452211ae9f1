"""What tests of the goodput API share: both places that a recorder's entries can go to."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# --import-mode=importlib leaves the folder out; tests find the module loaded.
sys.path.insert(0, str(Path(__file__).parent))
from goodput_logs import ListLog

sys.path.pop(0)


@pytest.fixture(params=["store", "injected"])
def log(request, tmp_path, monkeypatch) -> Iterator[Any]:
    """A run in a store of the test's own, or a log that the user injects."""
    if request.param == "injected":
        yield ListLog()
        return
    from holdfast.compat.ml_goodput_measurement.local import LocalLog

    monkeypatch.setenv("HOLDFAST_STORE", str(tmp_path / "store"))
    local = LocalLog("job")
    yield local
    local.close()
