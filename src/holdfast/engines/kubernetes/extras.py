"""Beside a run's pods: an account that may hear of them, and its image on every node. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Object = dict[str, Any]
RBAC = "rbac.authorization.k8s.io"
PAUSE = "registry.k8s.io/pause:3.10"
# What a pod asks: notices watch it and its node, and what a start waited for is in the others.
IN_THE_NAMESPACE = (
    ("", ("pods", "events"), ("get", "list", "watch")),
    ("batch", ("jobs",), ("get",)),
)
OF_NODES = (("", ("nodes",), ("get", "list", "watch")),)


def access(account: str, namespace: str) -> list[Object]:
    """A service account with the rights that a run's pods make use of, all of them to read.

    The rights to nodes are the cluster's own, which many may not give: who has only a namespace
    leaves those two objects out, and hears of the pods alone.
    """
    wide = f"{account}-{namespace}"[:253]
    return [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": account, "namespace": namespace},
        },
        _role("Role", {"name": account, "namespace": namespace}, IN_THE_NAMESPACE),
        _binding("Role", {"name": account, "namespace": namespace}, account, namespace),
        _role("ClusterRole", {"name": wide}, OF_NODES),
        _binding("ClusterRole", {"name": wide}, account, namespace),
    ]


def _role(
    kind: str, metadata: Object, rights: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]
) -> Object:
    rules = [
        {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
        for group, resources, verbs in rights
    ]
    return {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": metadata, "rules": rules}


def _binding(kind: str, metadata: Object, account: str, namespace: str) -> Object:
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": f"{kind}Binding",
        "metadata": metadata,
        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": metadata["name"]},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    }


def prepull(metadata: Object, image: str, placed: Mapping[str, Any]) -> Object:
    """A pod on each node that may get a host, which has pulled the image and then does nothing.

    It also shows whether the image has Holdfast: without it, these pods do not get ready. `placed`:
    the hosts' selector and tolerations.
    """
    labels = {"app.kubernetes.io/component": metadata["name"]}
    small = {"requests": {"cpu": "1m", "memory": "8Mi"}, "limits": {"memory": "256Mi"}}
    pull = {
        "name": "pull",
        "image": image,
        "command": ["holdfast", "--version"],
        "resources": small,
    }
    rest = {"name": "rest", "image": PAUSE, "resources": small}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": metadata,
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    **placed,
                    "terminationGracePeriodSeconds": 0,
                    "initContainers": [pull],
                    "containers": [rest],
                },
            },
        },
    }
