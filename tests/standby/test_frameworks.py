"""JAX and PyTorch in a standby: no device is opened, no backend initialised, nothing read early."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import standing

pytestmark = pytest.mark.real

JAX = """
import os, sys
import jax, jax.numpy as jnp, optax
print("jaxlib" in sys.modules, jax._src.xla_bridge._backends)
print(jnp.arange(3).sum(), jax.process_index(), os.environ["RANK"])
"""
TORCH = """
import os, sys
ahead = "torch._dynamo" in sys.modules
import torch, torch.distributed
print(ahead, torch.cuda.is_initialized(), torch.get_num_threads() > 0)
print(torch.arange(3).sum(), torch.distributed.is_initialized(), os.environ["RANK"])
"""
CASES = {
    "jax": (JAX, ["jax", "jax.numpy", "optax"], "True {}\n3 0 1\n"),
    "torch": (TORCH, ["torch", "torch._dynamo"], "True False True\ntensor(3) False 1\n"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_framework_is_there_and_untouched(
    name: str,
    tmp_path: Path,
    stand: Callable[..., standing.Standing],
    surroundings: dict[str, str],
) -> None:
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    text, modules, want = CASES[name]
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "script.py").write_text(text)
    learned = standing.learn(tmp_path / "learned.json", *modules)
    env = {**surroundings, "RANK": "0", "MASTER_PORT": "1", "JAX_COORDINATOR_ADDRESS": "a:1"}
    standby = stand([sys.executable, "script.py"], learned, tmp_path / "work", env)
    ready = standby.told()
    assert ready["event"] == "ready", ready
    assert ready["never"] == {}
    held = Path(f"/proc/{standby.process.pid}/fd").iterdir()
    links = [str(path.readlink()) for path in held]
    assert [link for link in links if link.startswith("/dev/") and link != "/dev/null"] == []
    # Were one of the attempt's variables read by an import, this would be a cold start.
    attempts = {
        "RANK": "1",
        "MASTER_PORT": "2",
        "JAX_COORDINATOR_ADDRESS": "a:2",
        "WORLD_SIZE": "2",
    }
    standby.wake(env={**env, **attempts})
    woken = standby.told()
    assert woken["event"] == "warm", woken
    result = standby.result()
    assert (result.code, result.stdout) == (0, want), result.stderr
