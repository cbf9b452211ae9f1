"""PyTorch's profiler, as a rank drives it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from holdfast.profiles.chrome import read_chrome
from holdfast.session.profilers import TorchProfiler

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("has_compiled", [False, True])
def test_pytorchs_profiler_starts_without_an_import(
    has_compiled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inductor's takes seconds, in the training's thread."""
    for name in [one for one in sys.modules if one.startswith("torch._inductor")]:
        monkeypatch.delitem(sys.modules, name)
    if has_compiled:
        config = SimpleNamespace(triton=SimpleNamespace(cudagraphs=False))
        inductor = SimpleNamespace(config=config)
        monkeypatch.setattr(torch, "_inductor", inductor, raising=False)
        monkeypatch.setitem(sys.modules, "torch._inductor", inductor)
        monkeypatch.setitem(sys.modules, "torch._inductor.config", config)
    before = set(sys.modules)
    profiler = TorchProfiler()
    profiler.start()
    torch.ones(4, 5) @ torch.ones(5, 6)
    profiler.stop()
    assert not {one for one in set(sys.modules) - before if one.startswith("torch._inductor")}
    profiler.write(tmp_path / "trace")
    found = read_chrome((tmp_path / "trace").read_bytes())
    assert [one.flops for one in found.events if one.name == "aten::mm"] == [2 * 4 * 5 * 6]
    assert len(found.anchors) == 2
