"""One process of a machine is a host of a run, whichever scratch folder it has."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.cli.several_hosts import _only_one
from holdfast.errors import RunHeld

HOLDER = """
import os, socket, sys
os.setuid(int(sys.argv[2]))
alone = socket.socket(socket.AF_UNIX)
alone.bind(chr(0) + sys.argv[1])
print("up", flush=True)
sys.stdin.read()
"""
STRANGER = 65534


@pytest.fixture
def run_id() -> str:
    return secrets.token_hex(8)  # nobody else's on this machine, who may run the same tests


@pytest.fixture
def holder(run_id: str, request: pytest.FixtureRequest) -> Iterator[None]:
    """A process of that user which has the name."""
    words = [sys.executable, "-c", HOLDER, f"holdfast/{run_id}/1", str(request.param)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        yield
        process.kill()


@pytest.mark.real
@pytest.mark.parametrize("holder", [os.getuid()], indirect=True)
def test_our_own_process_keeps_another_out(tmp_path: Path, run_id: str, holder: None) -> None:
    with pytest.raises(RunHeld, match="another process runs as host 1"):
        _only_one(tmp_path, run_id, 1, 0.0)


@pytest.mark.real
@pytest.mark.skipif(os.getuid() != 0, reason="only root may become somebody else")
@pytest.mark.parametrize("holder", [STRANGER], indirect=True)
def test_a_strangers_process_keeps_nobody_out(tmp_path: Path, run_id: str, holder: None) -> None:
    # The folder is locked all the same.
    with _only_one(tmp_path, run_id, 1, 0.0), pytest.raises(RunHeld):
        _only_one(tmp_path, run_id, 1, 0.0)
