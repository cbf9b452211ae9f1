"""Metadata servers, which are on this host's own link: no proxy belongs between. Pure."""

from __future__ import annotations

from collections.abc import MutableMapping

PROXIES = ("HTTP_PROXY", "ALL_PROXY")  # of requests without TLS, as these are
SERVERS = ("169.254.169.254", "metadata.google.internal")
OF_CONTAINERS = ("169.254.170.2", "169.254.170.23")  # on ECS and EKS


def keep_from_proxy(environ: MutableMapping[str, str]) -> None:
    """Name them among those that the environment's proxy is not for, where it names one.

    A proxy is another machine: it would see this one's token, or fetch its own.
    """
    if not any(environ.get(name) or environ.get(name.lower()) for name in PROXIES):
        return
    for name in [one for one in ("NO_PROXY", "no_proxy") if one in environ] or ["NO_PROXY"]:
        known = [one.strip() for one in environ.get(name, "").split(",") if one.strip()]
        if "*" not in known:
            environ[name] = ",".join(dict.fromkeys([*known, *SERVERS, *OF_CONTAINERS]))
