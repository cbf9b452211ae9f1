"""PyTorch's profiler, as a rank drives it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from holdfast.profiles.chrome import read_chrome
from holdfast.session.profilers import JaxProfiler, TorchProfiler, find_profiler

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


@pytest.mark.parametrize(
    ("jax_is_on", "has_gpu", "kind"),
    [("cpu", True, TorchProfiler), ("gpu", True, JaxProfiler), ("cpu", False, JaxProfiler)],
)
def test_of_two_frameworks_the_one_that_trains(
    jax_is_on: str, has_gpu: bool, kind: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JAX on the CPU beside PyTorch on a GPU: its profile had nothing of the training's device."""
    jax = SimpleNamespace(default_backend=lambda: jax_is_on, __version__="0")
    bridge = SimpleNamespace(backends_are_initialized=lambda: True)
    monkeypatch.setitem(sys.modules, "jax", jax)
    monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", bridge)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: has_gpu)
    assert type(find_profiler(tmp_path)) is kind
