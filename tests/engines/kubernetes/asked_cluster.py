"""A cluster that is asked without a network, in a calendar of the test's own."""

from __future__ import annotations

import ssl
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from holdfast.core.hosts.engine import Submission
from holdfast.engines.kubernetes.api import Cluster
from holdfast.engines.kubernetes.engine import KubernetesEngine
from holdfast.engines.kubernetes.kubeconfig import ClusterAccess
from holdfast.testing.emulator import HttpRequest, Later
from holdfast.testing.kubernetes_cluster import KubernetesClusterEmulator
from holdfast.testing.scripted import ScriptedEmulator

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from manifest_schema import wrong
from orders import ordered

del sys.path[:2]

NOW_S = 1_800_000_000
S = 10**9
RUN_ID = "1234567890ab"


class Unplugged(KubernetesClusterEmulator):
    """It listens nowhere; the schemas that the tests hold manifests to are its own."""

    def __init__(self, **more: object) -> None:
        super().__init__(**{"invalid": wrong, **more})
        self.now_s = float(NOW_S)
        self.calendar = lambda: self.now_s

    def _listen(self, tls: ssl.SSLContext | None) -> None:
        assert tls is None
        self.url = "http://cluster.test:6443"

    def close(self) -> None:
        ScriptedEmulator.close(self)


class Asked(Cluster):
    """Each exchange is a call."""

    def __init__(
        self,
        emulator: Unplugged,
        namespace: str = "ml",
        renew: Callable[[], ClusterAccess] | None = None,
    ) -> None:
        words = "the context lab of ~/.kube/config"
        super().__init__(ClusterAccess(emulator.url, namespace, words), renew)
        self.emulator = emulator
        self.pauses: list[float] = []
        self._pause = self.pauses.append

    def _exchange(
        self, method: str, target: str, data: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, bytes, str]:
        parts = urlsplit(target)
        named = {name.lower(): value for name, value in headers.items()}
        request = HttpRequest(method, parts.path, dict(parse_qsl(parts.query)), named, data or b"")
        self.emulator.requests.append(request)
        reply = self.emulator.answer(request)
        assert not isinstance(reply, Later)
        body = reply.body
        answer = body.encode() if isinstance(body, str) else body
        return reply.status, answer, reply.headers.get("Retry-After", "")


def engine_of(emulator: Unplugged, *, namespace: str = "ml", **options: str) -> KubernetesEngine:
    wanted = {"image": "example/lm:1", "claim": "runs"}
    wanted |= {name.replace("_", "-"): value for name, value in options.items()}
    return KubernetesEngine(wanted, lambda: Asked(emulator, namespace))


def submission(hosts: int = 2, spares: int = 0, **options: str) -> Submission:
    wanted, _ = ordered(hosts, spares, **options)
    fields = {name: getattr(wanted, name) for name in wanted.__slots__}
    return Submission(**fields | {"run_id": RUN_ID})


def names(emulator: KubernetesClusterEmulator) -> list[str]:
    """Of the pods that are there, by their index."""
    return [one["metadata"]["name"] for one in emulator.pods()]
