"""A certificate for one life of a controller, made on its host; its key lies nowhere afterwards.

By the platform's `openssl`, which takes 20 ms, else by `cryptography` where that is installed
(`pip install 'holdfast-ml[tls]'`). Whoever dials knows it by its digest, so nothing in it means
anything.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import ssl
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.link.tls import listening_context

NAME = "link"
TOOL_LIMIT_S = 20.0


@dataclass(frozen=True)
class Certificate:
    """`digest`: SHA-256 of it, in hexadecimal digits. `context`: with its key, for a server."""

    digest: str
    context: ssl.SSLContext = field(repr=False)


def make_certificate() -> Certificate | None:
    """None: there is nothing to make one with.

    `ssl` reads a key from a file alone: from one in memory that has no name, so that a process that
    is killed in between leaves no key behind.
    """
    with contextlib.ExitStack() as stack:
        try:
            descriptor = os.memfd_create(NAME, os.MFD_CLOEXEC)
            stack.callback(os.close, descriptor)
            both = Path(f"/proc/self/fd/{descriptor}")
            if not (_by_tool(descriptor, both) or _by_library(both)):
                return None
            context = listening_context()
            context.load_cert_chain(both)
            _, begin, rest = both.read_text().partition("-----BEGIN CERTIFICATE-----")
            shown = ssl.PEM_cert_to_DER_cert((begin + rest).strip())
        except (OSError, ssl.SSLError, ValueError):
            return None
        return Certificate(hashlib.sha256(shown).hexdigest(), context)


def _by_library(both: Path) -> bool:
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        return False
    import datetime

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, NAME)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=3650))
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    both.write_bytes(private + made.public_bytes(pem))
    return True


def _by_tool(descriptor: int, both: Path) -> bool:
    tool = shutil.which("openssl")
    if tool is None:
        return False
    # fmt: off
    command = [
        tool, "req", "-x509", "-batch", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
        "-nodes", "-subj", f"/CN={NAME}", "-days", "3650", "-keyout", str(both), "-out", "-",
    ]
    # fmt: on
    try:
        made = subprocess.run(
            command,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=TOOL_LIMIT_S,
            check=True,
            pass_fds=(descriptor,),
        )
    except (OSError, subprocess.SubprocessError):
        return False
    both.write_bytes(both.read_bytes() + made.stdout)
    return True
