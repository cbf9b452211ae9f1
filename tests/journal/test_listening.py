"""The secret of a run's hosts: where it may lie in the run's folder, and where it may not."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import ConfigurationError
from holdfast.journal import ownerless
from holdfast.journal.listening import SECRET_BYTES, run_secret
from holdfast.journal.store import RunStore


def test_who_comes_first_draws_the_secret(tmp_path: Path) -> None:
    folder = RunStore(tmp_path).create("r")
    secret = run_secret(folder)
    assert len(secret) >= SECRET_BYTES
    assert run_secret(folder) == secret


@pytest.mark.parametrize("kind", ["fuse.gcsfuse", "cifs", "9p"])
def test_where_files_seem_to_be_everybodys_own_a_secret_must_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Somebody else may have put it there, or may read it."""
    folder = RunStore(tmp_path).create("r")
    monkeypatch.setattr(ownerless, "filesystem_of", lambda _: kind)
    with pytest.raises(ConfigurationError, match=f"{kind}.*needs --secret-file"):
        run_secret(folder)
