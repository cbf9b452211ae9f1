"""Joining the other ranks: dialling process 0 when it listens, and not before.

Who dials earlier is refused, and backs off: gRPC (`jax.distributed`) for a second, PyTorch's
TCPStore for half of one. Ranks that were woken at the same moment meet within milliseconds, so
that the back-off would be most of a restart. Where the frameworks are about to dial, we therefore
look first whether somebody listens there. What is not refused but fails otherwise (no such host,
no answer) is none of our business: the framework dials, and says what it thinks of it.
"""

from __future__ import annotations

import errno
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

from holdfast.session.hooks import arguments, hook_into
from holdfast.session.upon_import import upon_import

FIRST_LOOK_S = 0.001
LONGEST_PAUSE_S = 0.02
ANSWER_LIMIT_S = 1.0
LISTEN_LIMIT_S = 60.0  # then the framework is let try
_LOSS = "the ranks that dial before rank 0 listens back off for a second"


def await_listener(host: str, port: int, limit_s: float) -> None:
    """Until somebody listens there; at once if that cannot be told. Never raises OSError."""
    give_up_s = time.monotonic() + min(limit_s, LISTEN_LIMIT_S)
    pause_s = FIRST_LOOK_S
    while _is_refused(host, port) and time.monotonic() < give_up_s:
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


def _is_refused(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), ANSWER_LIMIT_S):
            return False
    except OSError as error:
        return error.errno == errno.ECONNREFUSED


def dial_when_heard() -> Callable[[], None]:
    """Have both frameworks do so in this process, from now on; gives what calls it off."""
    forget_jax = upon_import("jax", _change_jax, _LOSS)
    forget_torch = upon_import("torch", _change_torch, _LOSS)

    def call_off() -> None:
        forget_jax()
        forget_torch()

    return call_off


def _change_jax() -> None:
    """JAX makes its client in one call, from what the script said or the cluster's variables."""
    from jax._src import distributed

    def await_process_0(*args: Any, **options: Any) -> None:
        match args:
            case (str(address), int(process), *_) if process > 0:
                host, _, port = address.rpartition(":")
                if port.isdecimal():
                    limit_s = options.get("init_timeout", LISTEN_LIMIT_S)
                    await_listener(host.strip("[]"), int(port), limit_s)

    hook_into(distributed._jax, "get_distributed_runtime_client", _LOSS, before=await_process_0)


def _change_torch() -> None:
    """Both of PyTorch's rendezvous, env:// and tcp://, make their store in one function."""
    rendezvous = sys.modules.get("torch.distributed.rendezvous")
    if rendezvous is None:
        return  # a PyTorch that was built without it
    by_name = arguments(rendezvous._create_c10d_store, "hostname", "port", "rank", "timeout")

    def await_rank_0(*args: Any, **kwargs: Any) -> None:
        result = by_name(*args, **kwargs)
        if result["rank"] > 0:
            await_listener(result["hostname"], result["port"], result["timeout"].total_seconds())

    hook_into(rendezvous, "_create_c10d_store", _LOSS, before=await_rank_0)
