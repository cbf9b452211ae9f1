"""A cluster that is asked over HTTP, and the kubeconfig by which."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast.testing.kubernetes_cluster import KubernetesClusterEmulator

HERE = Path(__file__).parent
_PLACES = [str(HERE), str(HERE.parents[2] / "examples")]  # --import-mode=importlib leaves them out
sys.path[:0] = _PLACES
import kubelet  # noqa: E402, F401
from manifest_schema import wrong  # noqa: E402

for _place in _PLACES:
    sys.path.remove(_place)


@pytest.fixture
def cluster() -> Iterator[KubernetesClusterEmulator]:
    with KubernetesClusterEmulator(invalid=wrong) as emulator:
        yield emulator


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """`config(url)`: writes a kubeconfig of one context, and names it to Holdfast."""

    def write(server: str, user: dict[str, Any] | None = None, **of_the_cluster: Any) -> Path:
        path = tmp_path / "kubeconfig"
        cluster = {"server": server, **of_the_cluster}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "lab",
            "contexts": [
                {"name": "lab", "context": {"cluster": "lab", "user": "ada", "namespace": "ml"}}
            ],
            "clusters": [{"name": "lab", "cluster": cluster}],
            "users": [{"name": "ada", "user": user or {}}],
        }
        path.write_text(yaml.safe_dump(document))
        monkeypatch.setenv("KUBECONFIG", str(path))
        return path

    return write
