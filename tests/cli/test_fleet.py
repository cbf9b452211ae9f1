"""`holdfast up`, `recover` and `health`: what is not valid is said before anything is done."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from holdfast.cli.health import health
from holdfast.cli.recover import recover
from holdfast.cli.up import up
from holdfast.config import tpu_endpoint
from holdfast.core.hosts.wanted import Machines, prefix_for
from holdfast.errors import ConfigurationError
from holdfast.journal.store import RunStore

WHERE = ("--project", "p", "--zone", "z", "--type", "v5litepod-8", "--runtime", "v2-alpha")


def refused(command, *words):
    result = CliRunner().invoke(command, words)
    assert isinstance(result.exception, ConfigurationError), result.output
    return str(result.exception)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--slices", "2"), "2 slices are one queued resource, not one node; add --queued"),
        (("--api", "v2"), "autocheckpoint is not in version v2 of Cloud TPU's API; use v2alpha1"),
        (("--api", "v1"), "Cloud TPU has no API 'v1'; use v2alpha1 or v2"),
        (("--slices", "0", "--queued"), "0 slices are not possible; ask for 1 to 1024"),
        (("--buy", "best-effort"), "a single node cannot be best-effort; add --queued, or use"),
        (("--label", "Team=x"), "Team=x cannot be a label; use small letters"),
        (("--label", "team"), "'team' is not a label; write NAME=VALUE"),
        (("--setup", "nowhere.sh"), "the script nowhere.sh cannot be read"),
        (("--project", "a b"), "the project 'a b' is not valid; name one"),
    ],
)
def test_machines_that_cannot_be_are_refused(store, words, sentence):
    assert sentence in refused(up, "lm", *WHERE, *words, "--", "python", "train.py")
    assert RunStore(store).names() == ()


def test_a_dry_run_shows_the_script_and_makes_nothing(store, tmp_path):
    setup = tmp_path / "setup.sh"
    setup.write_text("pip install mine\n")
    words = ("lm", *WHERE, "--setup", setup, "--dry-run", "--", "python", "train.py", "a b")
    shown = CliRunner().invoke(up, [str(word) for word in words]).output
    assert "would make lm-000000-g1: one slice of v5litepod-8, on-demand" in shown
    assert "pip install mine\n" in shown
    assert f"holdfast run --name lm --store {store} -- python train.py 'a b'\n" in shown
    assert RunStore(store).names() == ()


def test_what_has_no_machines_cannot_be_recovered(store):
    RunStore(store).create("lm")
    for command in (recover, health):
        assert "has no machines of its own; make them with holdfast up" in refused(command, "lm")
    assert "--dry-run does nothing" in refused(recover, "lm", "--dry-run", "--delete")
    assert "add one" in refused(recover, "lm", "--watch")
    assert "name a run, or a project and a zone" in refused(health)


@pytest.mark.parametrize("place", ["tpu.googleapis.com:443", "10.0.0.1:80", "127.0.0.1", "x"])
def test_an_emulator_is_on_this_machine(monkeypatch, place):
    monkeypatch.setenv("HOLDFAST_TPU_ENDPOINT", place)
    with pytest.raises(ConfigurationError, match="an emulator on this machine"):
        tpu_endpoint()
    monkeypatch.setenv("HOLDFAST_TPU_ENDPOINT", "127.0.0.1:8080")
    assert tpu_endpoint() == "127.0.0.1:8080"


@pytest.mark.parametrize("run", ["lm", "My.Run_2", "7b", "___", "x" * 128])
def test_every_run_has_a_prefix_that_google_takes(run):
    prefix = prefix_for(run, "0123456789ab")
    machines = Machines("cloud-tpu", prefix, "0123", run, "p", "z", "t", "r")
    assert Machines.from_json(machines.to_json()) == machines
    assert len(f"{prefix}-g999-1023") <= 61


def test_a_secret_in_the_script_is_said(tmp_path):
    setup = tmp_path / "setup.sh"
    setup.write_text("export HF_TOKEN=hf_abcdefghijklmnopq\npip install x\n")
    words = ("lm", *WHERE, "--setup", str(setup), "--dry-run", "--", "train", "--api-key", "abc")
    said = CliRunner().invoke(up, words).stderr
    assert "a secret is in it (export HF_TOKEN=***, holdfast run" in said
    assert "hf_abc" not in said
    assert "--api-key ***" in said
    plain = CliRunner().invoke(up, ("lm", *WHERE, "--dry-run", "--", "train"))
    assert (plain.exit_code, plain.stderr) == (0, "")
