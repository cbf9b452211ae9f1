"""The way to a Ray cluster, and its errors in sentences."""

from __future__ import annotations

import importlib.util
import logging
import re
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

from holdfast.distribution import VERSION
from holdfast.engines.protocol import EngineError
from holdfast.engines.ray.options import RayOptions
from holdfast.errors import ConfigurationError, needs_extra

DIAL_LIMIT_S = 5.0
CLIENT = "ray://"
NO_ENVIRONMENT = "Failed to create runtime_env"


def connect(options: RayOptions) -> Any:
    """Ray, connected.

    Raises EngineError where nobody answers, ConfigurationError where Ray is not installed, or is
    another one than the cluster's.
    """
    if importlib.util.find_spec("ray") is None:
        raise ConfigurationError(needs_extra("the engine ray needs", "ray"))
    import ray

    if ray.is_initialized():
        return ray
    address = options.address
    is_client = address.startswith(CLIENT)
    if is_client and importlib.util.find_spec("grpc") is None:
        raise ConfigurationError(
            f"the address {address} is for Ray's client, which needs grpcio: pip install "
            "'ray[client]'"
        )
    dial(address.removeprefix(CLIENT))
    init = partial(
        ray.init,
        address=address or "auto",
        namespace=options.namespace,
        runtime_env=options.runtime_env or None,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    try:
        taken_in(init)
    except Exception as error:
        raise refused(address, error) from error
    return ray


def taken_in(init: Callable[[], object]) -> None:
    """Ray forks a server for each client, in a process with threads: it may be dead at birth."""
    try:
        init()
    except ConnectionAbortedError as error:
        if NO_ENVIRONMENT in str(error):
            raise
        init()


def dial(address: str) -> None:
    """Raises EngineError where nobody listens: Ray itself waits a minute for that."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), DIAL_LIMIT_S).close()
    except OSError as error:
        raise EngineError(
            f"no Ray cluster answers at {address} ({error}): look at --option address, or "
            "RAY_ADDRESS"
        ) from None


def refused(address: str, error: Exception) -> EngineError | ConfigurationError:
    """What Ray has said, in a sentence."""
    words = " ".join(str(error).split())
    if "ersion mismatch" in words:
        return ConfigurationError(
            f"this Python and the cluster's do not fit together: {_versions(words)}; submit with "
            "the cluster's own versions, from one of its nodes or images"
        )
    if isinstance(error, ConnectionError) and not address:
        return EngineError(
            "no Ray cluster runs on this machine: start or join one (ray start), or say where it "
            "is (--option address=HOST:6379, ray://HOST:10001)"
        )
    return EngineError(
        f"Ray at {address or 'auto'} does not take us: {ray_words(error)}; a cluster's address is "
        "HOST:6379 on its nodes, and ray://HOST:10001 from elsewhere"
    )


def _versions(words: str) -> str:
    """Ray's own words for both, in one line."""
    found = re.findall(r"(Ray|Python): ([\w.]+)", words)
    if len(found) < 4:
        return words[:300]
    theirs, ours = found[:2], found[2:4]
    return f"there {' and '.join(map(' '.join, theirs))}, here {' and '.join(map(' '.join, ours))}"


def in_a_sentence(error: Exception) -> EngineError | ConfigurationError:
    """An actor that could not begin, or answer."""
    words = str(error)
    missing = re.search(r"No module named '(holdfast)", words)
    if missing:
        return ConfigurationError(
            "Holdfast is not installed on the cluster's nodes: install it there, in the Python "
            "that Ray runs with, or bring it along (--option "
            """'runtime_env={"pip": ["holdfast-ml[ray]"]}')"""
        )
    return EngineError(
        f"the run's foreman could not begin: {ray_words(error)} (the nodes need Holdfast "
        f"{VERSION}, as it is here)"
    )


def ray_words(error: Exception) -> str:
    """What went wrong, in one line: Ray's first one, or the last one of a traceback in it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return repr(error)
    return lines[-1] if re.match(r"[\w.]+(Error|Exception|Unavailable)\b", lines[-1]) else lines[0]
