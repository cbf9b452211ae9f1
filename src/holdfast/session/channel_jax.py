"""Registers in JAX's coordination service, which runs in process 0 after `jax.distributed`.

JAX has no public face for its key-value store; the only private access of this package is here.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from holdfast.errors import ConfigurationError
from holdfast.session.hooks import hook_into
from holdfast.session.registers import ChannelError
from holdfast.session.upon_import import upon_import

NAME = "jax.distributed"
NEEDED = ("key_value_set_bytes", "key_value_dir_get_bytes")
_SERVICE_OPTION = "jax_enable_preemption_service"
_LOSS = "a SIGTERM between jax.distributed.initialize and the first step is lost"


def _state() -> Any:
    """`jax.distributed`'s state; None: JAX is not imported, or not initialised."""
    distributed = sys.modules.get("jax._src.distributed")
    state = getattr(distributed, "global_state", None)
    return state if getattr(state, "client", None) is not None else None


def world() -> tuple[int, int] | None:
    """(process, number of processes), once `jax.distributed.initialize` was called."""
    state = _state()
    return None if state is None else (int(state.process_id), int(state.num_processes))


def keep_sigterm() -> None:
    """Keep JAX's preemption service from taking SIGTERM over, if it can still be told.

    It would replace the session's handler at `jax.distributed.initialize`, and a SIGTERM between
    that and the loop would be lost. Whoever wants it sets JAX_ENABLE_PREEMPTION_SERVICE.
    """
    upon_import("jax", _leave_service_out, _LOSS)


def _leave_service_out() -> None:
    if _state() is not None:
        return
    config = sys.modules["jax"].config
    if hasattr(config, _SERVICE_OPTION):
        config.update(_SERVICE_OPTION, False)
        return
    # JAX 0.8.0 has no such option, and always begins the service.
    from jax._src import distributed

    state = distributed.global_state
    hook_into(state, "initialize_preemption_sync_manager", _LOSS, before=lambda: True)


class JaxChannel:
    """The coordination service as registers."""

    name = NAME

    def __init__(self) -> None:
        client = _state().client
        for method in NEEDED:
            if not hasattr(client, method):
                jax = sys.modules["jax"]
                raise ConfigurationError(
                    f"jax {jax.__version__} has no {method} in its distributed client, through "
                    "which ranks without a supervisor agree: use `holdfast run`, or another JAX"
                )
        self._client = client

    def write(self, key: str, value: bytes) -> None:
        """Overwrite a register."""
        try:
            self._client.key_value_set_bytes(key, value, allow_overwrite=True)
        except Exception as error:  # JAX's own kind of RuntimeError
            raise ChannelError(str(error).partition("\n")[0]) from error

    def read(self, keys: Sequence[str]) -> dict[str, bytes]:
        """Folder by folder: asking for one key that is not there would be an error."""
        wanted = set(keys)
        found: dict[str, bytes] = {}
        try:
            for folder in sorted({key.rpartition("/")[0] for key in keys}):
                for key, value in self._client.key_value_dir_get_bytes(folder + "/"):
                    if key in wanted:
                        found[key] = value
        except Exception as error:
            raise ChannelError(str(error).partition("\n")[0]) from error
        return found
