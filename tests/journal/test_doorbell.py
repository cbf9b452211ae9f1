"""The doorbell: heard when somebody listens, harmless when nobody does."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.journal.doorbell import Doorbell, ring


def test_a_ring_is_heard_once(tmp_path: Path) -> None:
    bell = Doorbell(tmp_path / "bell")
    assert not bell.answer()
    ring(str(tmp_path / "bell"))
    ring(str(tmp_path / "bell"))
    assert select.select([bell.fd], [], [], 10)[0]
    assert bell.answer()
    assert not bell.answer()
    assert not select.select([bell.fd], [], [], 0)[0], "no end of file: a select would spin"
    bell.close()


def test_nobody_there(tmp_path: Path) -> None:
    path = tmp_path / "bell"
    ring(str(path))
    bell = Doorbell(path)
    bell.close()
    bell.close()
    assert not bell.answer()
    ring(str(path))  # would block for ever without O_NONBLOCK
    assert not path.is_file()


def test_a_listener_that_never_answers_does_not_block(tmp_path: Path) -> None:
    bell = Doorbell(tmp_path / "bell")
    os.set_blocking(bell.fd, False)
    try:
        while os.write(bell.fd, bytes(4096)):
            pass
    except BlockingIOError:
        pass
    ring(str(tmp_path / "bell"))
    assert bell.answer()
    bell.close()


@pytest.mark.contract("doorbell")
def test_it_rings_from_a_process_without_descriptors(tmp_path: Path) -> None:
    path = tmp_path / "bell"
    bell = Doorbell(path)
    code = "import os, sys\nfrom holdfast.journal.doorbell import ring\n"
    code += "os.closerange(0, 1000)\nring(sys.argv[1])\nos._exit(5)"
    assert subprocess.run([sys.executable, "-c", code, path]).returncode == 5
    assert bell.answer()
    bell.close()


def test_where_none_can_be_made_it_is_silent(tmp_path: Path) -> None:
    bell = Doorbell(tmp_path / "missing" / "bell")
    assert bell.fd is None
    assert not bell.answer()
    bell.close()
