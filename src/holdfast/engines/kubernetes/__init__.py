"""Kubernetes as an engine: a JobSet or an Indexed Job with a pod for each host.

options     what `-o NAME=VALUE` says
manifest    a submission as plain data for the cluster (pure); `extras`: what goes with it
kubeconfig  where the cluster is, and who asks; `api`: the few questions and orders, over HTTP
standing    what the cluster says of the pods, as hosts (pure); `waits`: as time (pure)
engine      all of it together
"""

from __future__ import annotations

from holdfast.engines.kubernetes.engine import make, waits
from holdfast.engines.kubernetes.options import OPTIONS

__all__ = ["OPTIONS", "make", "waits"]
