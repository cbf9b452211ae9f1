"""Where the controller of a term listens for the agents of other hosts: a file beside its lease.

    lease/000007.link    {"addresses": ["10.0.0.1"], "port": 40123, "holdfast": "1.0",
                          "certificate": "9f86d0…"}

Agents find their controller by it, and take no other certificate. It is no proof of anything: both
ends of the link prove that they know the run's secret.
"""

from __future__ import annotations

import contextlib
import re
import secrets
from pathlib import Path
from typing import NamedTuple

from holdfast.config.secret_file import read_secret_file
from holdfast.core.visible import clean
from holdfast.errors import ConfigurationError, StoreUnavailable
from holdfast.journal.atomic import (
    create_exclusive,
    encode_json,
    make_part,
    read_json,
    store_errors,
    write_atomic,
)
from holdfast.journal.fields import whole
from holdfast.journal.lease import Lease
from holdfast.journal.ownerless import written_by_anybody
from holdfast.journal.store import RunFolder

SECRET = "link-secret"  # noqa: S105 - the name of a file
SECRET_BYTES = 32
_ADDRESSES = 64
_VERSION_CHARS = 40
_DIGEST = re.compile(r"([0-9a-f]{64})?")


class Listening(NamedTuple):
    """Addresses of one host, of which some may not be reached from others, and one port of all.

    `holdfast`: its version; "": one that does not tell.
    `certificate`: the SHA-256 of the one that is shown there, in hexadecimal; "": none is.
    """

    addresses: tuple[str, ...]
    port: int
    holdfast: str = ""
    certificate: str = ""


def tell_listening(lease: Lease, where: Listening) -> None:
    """For the holder of the lease; raises StoreUnavailable."""
    write_atomic(_path(lease.folder, lease.epoch), encode_json(where._asdict()))


def read_listening(folder: RunFolder, epoch: int) -> Listening | None:
    """None: it does not listen yet, or that cannot be read now."""
    with contextlib.suppress(StoreUnavailable, FileNotFoundError, ValueError):
        raw = read_json(_path(folder, epoch))
        addresses = raw.get("addresses")
        if isinstance(addresses, list) and 0 < len(addresses) <= _ADDRESSES:
            certificate = raw.get("certificate", "")
            if isinstance(certificate, str) and _DIGEST.fullmatch(certificate):
                version = clean(str(raw.get("holdfast", "")))[:_VERSION_CHARS]
                port = whole(raw, "port", high=65535)
                return Listening(tuple(map(str, addresses)), port, version, certificate)
    return None


def run_secret(folder: RunFolder) -> bytes:
    """The secret that agents and controller prove to each other, drawn by who comes first.

    It lies in the run's folder, for its owner alone to read: whoever reads it may write the run's
    folder as well. Raises ConfigurationError where that is not so, as in an object store, and
    StoreUnavailable.
    """
    if where := written_by_anybody(folder.path):
        raise ConfigurationError(
            f"a run of several hosts in {where} needs --secret-file: who may read or write there "
            "is not always allowed to command the run"
        )
    make_part(folder.lease_dir)
    path = folder.lease_dir / SECRET
    if not path.exists():
        with contextlib.suppress(FileExistsError):
            create_exclusive(path, secrets.token_hex(SECRET_BYTES).encode())
    with store_errors("read the run's secret", path):
        return read_secret_file(path, "the secret of the run's hosts")


def _path(folder: RunFolder, epoch: int) -> Path:
    return folder.lease_dir / f"{epoch:06d}.link"
