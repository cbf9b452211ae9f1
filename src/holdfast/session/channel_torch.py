"""Registers in the store of torch.distributed's default group, over a connection of our own.

A second connection, because one blocks while it waits: a call of the script's (its rendezvous, a
barrier) must never hold up ours, nor ours the script's. torchrun gives each restart a prefix of
its own, and `init_process_group` too.
"""

from __future__ import annotations

import datetime
import sys
from collections.abc import Sequence
from typing import Any

from holdfast.config import restart_of_torchrun
from holdfast.errors import ConfigurationError
from holdfast.session.registers import ChannelError

NAME = "torch.distributed"
TIMEOUT_S = 30.0


def _distributed() -> Any:
    """`torch.distributed` with a default group; None without."""
    distributed = sys.modules.get("torch.distributed")
    is_available = getattr(distributed, "is_available", None)
    if distributed is None or is_available is None or not is_available():
        return None
    return distributed if distributed.is_initialized() else None


def world() -> tuple[int, int] | None:
    """(rank, world size), once the default process group is there."""
    distributed = _distributed()
    if distributed is None:
        return None
    return int(distributed.get_rank()), int(distributed.get_world_size())


class TorchChannel:
    """The default group's store as registers."""

    name = NAME

    def __init__(self) -> None:
        c10d = sys.modules["torch.distributed.distributed_c10d"]
        find = getattr(c10d, "_get_default_store", None)
        # The script's own store object is kept as well: in rank 0 it is the server, and must
        # outlive a `destroy_process_group` until the others have heard the last word.
        self._served: Any = None if find is None else find()
        self._store: Any = _second_connection(self._served)
        if self._store is None:
            raise ConfigurationError(
                f"torch {sys.modules['torch'].__version__} gives no second connection to its "
                "default store, through which ranks without a supervisor agree: use `holdfast run`"
            )
        self._store.set_timeout(datetime.timedelta(seconds=TIMEOUT_S))
        self._known: set[str] = set()

    def write(self, key: str, value: bytes) -> None:
        """Overwrite a register."""
        try:
            self._store.set(key, value)
        except Exception as error:
            raise ChannelError(_short(error)) from error

    def read(self, keys: Sequence[str]) -> dict[str, bytes]:
        """Only what is known to be there is asked for: `get` waits for what is not."""
        try:
            for key in keys:
                if key not in self._known and self._store.check([key]):
                    self._known.add(key)
            there = [key for key in keys if key in self._known]
            values = self._store.multi_get(there) if there else []
        except Exception as error:
            raise ChannelError(_short(error)) from error
        return dict(zip(there, values, strict=True))


def _second_connection(store: Any) -> Any:
    """To the same store; None: there can be none."""
    if hasattr(store, "clone"):
        return store.clone()
    distributed = sys.modules["torch.distributed"]  # before PyTorch 2.8
    while hasattr(store, "underlying_store"):  # what the prefixes are, nobody says
        store = store.underlying_store
    if not isinstance(store, distributed.TCPStore):
        return None
    own = distributed.TCPStore(store.host, store.port, is_master=False, wait_for_workers=False)
    return distributed.PrefixStore(f"holdfast/{restart_of_torchrun()}", own)


def _short(error: Exception) -> str:
    return str(error).partition("\n")[0]
