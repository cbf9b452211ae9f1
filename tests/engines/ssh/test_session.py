"""A connection to one host, whose client is a program on this one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from holdfast.engines.ssh import session
from holdfast.engines.ssh.session import ConnectionLostError, HostSession
from holdfast.engines.ssh.words import BOOT, Reach, Target


@pytest.mark.real
def test_what_a_shell_prints_at_its_start_is_in_nobodys_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `.bashrc` that sets the terminal's title, and one that complains."""
    noise = (
        r"printf '\033]0;title\007'; echo '.bashrc: /x: Permission denied' >&2; "
        'exec "$0" -u -c "$1"'
    )
    words = ["env", f"HOME={tmp_path}", "sh", "-c", noise, sys.executable, BOOT]
    monkeypatch.setattr(session, "connect_words", lambda _reach, _target: words)
    found = HostSession(Reach(), Target("h1", 0, "h1"), "0123456789ab")
    try:
        assert found.look(-1).trees == ()
        found._client.kill()  # as a network that is gone does
        with pytest.raises(ConnectionLostError) as lost:
            found.look(-1)
        assert not lost.value.unreached.needs_person
    finally:
        found.close()
