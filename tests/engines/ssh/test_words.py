"""How hosts are named and reached, and what a client's complaint means."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.cli.push import targets_of
from holdfast.core.hosts.engine import Submission
from holdfast.core.hosts.fleet import Resource, ResourceState, Slice, SliceState
from holdfast.core.hosts.reach import JobState, ReachedHost
from holdfast.engines.protocol import Ordered
from holdfast.engines.ssh import archive, waits
from holdfast.engines.ssh.archive import PackedTree
from holdfast.engines.ssh.engine import SshEngine, hosts_named
from holdfast.engines.ssh.job import PushJob
from holdfast.engines.ssh.spread import SshFleet
from holdfast.engines.ssh.words import (
    Reach,
    Target,
    complaint,
    connect_words,
    is_destination,
    told_waits,
)
from holdfast.errors import ConfigurationError

RUN = Submission("ssh", "lm", "0123456789ab", "/shared", 2, 0, ("python", "t.py"))


def test_what_a_user_names_is_no_option_and_no_line_of_a_shell() -> None:
    for text in ("-oProxyCommand=x", "a b", "a;b", "$(x)", "", "a\nb", "a'b"):
        assert not is_destination(text), text
    for text in ("h1", "me@10.0.0.1", "node-1.zone.c.project", "[::1]", "user_1@h"):
        assert is_destination(text), text


def test_the_words_of_openssh() -> None:
    reach = Reach("conf", "me", "key", "hosts")
    words = connect_words(reach, Target("lm-g2-w0", 0, "10.0.0.1", alias="lm-g2-w0"))
    assert words[:8] == ["ssh", "-T", "-F", "conf", "-i", "key", "-l", "me"]
    assert words[-3:-1] == ["--", "10.0.0.1"]
    options = dict(one.split("=") for one in words[8:-3] if one != "-o")
    assert options["StrictHostKeyChecking"] == "accept-new"
    assert options["BatchMode"] == "yes"
    assert (options["HostKeyAlias"], options["UserKnownHostsFile"]) == ("lm-g2-w0", "hosts")
    assert shlex.split(words[-1])[:3] == ["python3", "-u", "-c"]


def test_the_words_of_gcloud() -> None:
    reach = Reach(user="me", gcloud=("--project=p", "--tunnel-through-iap"))
    words = connect_words(reach, Target("x", 3, "", node="lm-g1-0", worker=1))
    tpu_vm = ["gcloud", "compute", "tpus", "tpu-vm", "ssh", "me@lm-g1-0", "--worker=1"]
    assert words[:-1] == [*tpu_vm, "--project=p", "--tunnel-through-iap"]
    assert shlex.split(words[-1].removeprefix("--command="))[0] == "python3"


CHANGED = (
    "@@@@\n@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed."
)


@pytest.mark.parametrize(
    ("code", "said", "words", "needs_person"),
    [
        (255, CHANGED, "its host key has changed", True),
        (255, "me@h: Permission denied (publickey).", "it refuses this user's key (me@h:", True),
        (255, "ssh: Could not resolve hostname x: Name", "there is no host of that name", True),
        (255, "ssh: connect to host h port 22: Connection refused", "nothing listens there", False),
        (255, "ssh: connect to host h port 22: Connection timed out", "it does not answer", False),
        (127, "bash: python3: command not found", "there is no python3", True),
        (1, "dash: 1: python3: not found", "there is no python3", True),
        (255, "", "the connection ended (255)", False),
        (255, "client_loop: send disconnect: Broken pipe", "client_loop", False),
    ],
)
def test_a_complaint_is_a_sentence(code, said, words, needs_person) -> None:
    found = complaint(code, said)
    assert found.words.startswith(words)
    assert found.needs_person is needs_person


def test_what_a_shell_over_there_complains_of_is_no_refusal() -> None:
    """A `.bashrc` with a mistake in it writes to the same standard error, before all else."""
    said = "bash: /opt/env.sh: No such file or directory\n.bashrc: /x: Permission denied\n"
    cut = said + "Timeout, server h1 not responding.\n"
    found = complaint(255, cut, has_answered=True)
    assert found.words == "Timeout, server h1 not responding."
    assert not found.needs_person
    assert not complaint(-9, "", has_answered=True).needs_person


def test_an_address_in_brackets_is_one_for_openssh() -> None:
    for name in ("[fd00::1]", "me@[fd00::1]"):
        assert connect_words(Reach(), Target("h", 0, name))[-2] == name.strip("[]").replace("[", "")


def test_hosts_are_named_once_each(tmp_path) -> None:
    listed = tmp_path / "hosts"
    listed.write_text("# mine\nh1\n\n me@h2  # the second\n")
    assert hosts_named(f"@{listed}") == ("h1", "me@h2")
    assert hosts_named("a, b,") == ("a", "b")
    for text, words in {
        "": "no hosts were named",
        "a,a": "named twice",
        "a,-b": "no host for ssh",
        f"@{tmp_path}/none": "cannot be read",
    }.items():
        with pytest.raises(ConfigurationError, match=words):
            hosts_named(text)


def slices(*counts: int) -> Resource:
    parts = tuple(
        Slice(f"lm-g1-{n}", SliceState.READY, addresses=tuple(
            (f"10.0.{n}.{w}", f"34.0.{n}.{w}" if w else "") for w in range(count)))
        for n, count in sorted(enumerate(counts), key=lambda pair: f"{pair[0]}")
    )  # fmt: skip
    return Resource("lm-g1", ResourceState.UP, slices=parts, slices_wanted=len(counts))


def test_hosts_of_slices_are_numbered_slice_by_slice() -> None:
    found = targets_of(slices(*[2] * 11))
    assert [(one.index, one.slice, one.node, one.worker) for one in found] == [
        (2 * n + w, str(n), f"lm-g1-{n}", w) for n in range(11) for w in range(2)
    ]
    assert [one.destination for one in found[:2]] == ["10.0.0.0", "34.0.0.1"]
    assert targets_of(slices(2), is_internal=True)[1].destination == "10.0.0.1"
    assert targets_of(slices(2))[0].slice == ""
    assert len({one.alias for one in found}) == 22
    with pytest.raises(ConfigurationError, match="lm-g1-0 has 2, lm-g1-1 has 1 hosts"):
        targets_of(slices(2, 1))


def test_each_host_is_told_who_it_is(tmp_path) -> None:
    wanted = Submission(
        "ssh", "lm", "id", "gs://b/r", 4, 0, ("python", "t.py"), None, ("--grace", "9")
    )
    job = PushJob(
        wanted, PackedTree("d", tmp_path, 1, 1, 1), secret="s" * 40, program=("v/holdfast",)
    )
    words = job.words(Target("x", 3, "h", slice="1"), "10.0.0.9")
    assert words == [
        "v/holdfast", "run", "--name", "lm", "--store", "gs://b/r", "--hosts", "4", "--grace", "9",
        "--host-index", "3", "--slice", "1", "--host-address", "10.0.0.9", "--secret-file", None,
        "--known", "--", "python", "t.py",
    ]  # fmt: skip


def test_a_start_tells_what_it_waited_for() -> None:
    found = waits({"HOLDFAST_SSH_WAITS": "boot:5:7,pull:7:9,lunch:1:2,pull:x:3"})
    assert [(one.kind, one.start_unix_ns, one.end_unix_ns) for one in found] == [
        ("boot", 5, 7), ("pull", 7, 9),
    ]  # fmt: skip
    assert waits({}) == ()
    assert waits(told_waits(found)) == found
    assert told_waits(()) == {"HOLDFAST_SSH_WAITS": ""}


def test_an_option_that_means_nothing_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="relay='maybe' is not valid: write on or off"):
        SshEngine.of({"hosts": "a", "relay": "maybe"}, {})


def test_what_is_kept_of_an_order_means_the_same_from_every_folder_and_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    (tmp_path / "hosts").write_text("h1\nh2\n")
    (tmp_path / "t.py").touch()
    monkeypatch.setattr(archive, "_of_git", lambda _root: None)
    monkeypatch.setattr(SshEngine, "_until_started", lambda _engine, _fleet: None)
    options = {"hosts": "@hosts", "ssh-config": "~/conf", "key": "key", "install": "make"}
    engine = SshEngine.of(options, {})
    assert (engine.reach.config, engine.reach.key) == ("/home/me/conf", f"{tmp_path}/key")
    wanted = replace(RUN, flags=("--grace", "90"), options=tuple(options.items()))
    ordered = engine.submit(wanted)
    assert dict(ordered.submission.options) == {
        "hosts": "h1,h2", "ssh-config": "/home/me/conf", "key": f"{tmp_path}/key",
        "install": "make",
    }  # fmt: skip
    given: list[float] = []

    def end(_fleet: SshFleet, targets: Sequence[Target], grace_s: float) -> tuple[Target, ...]:
        given.append(grace_s)
        return tuple(targets)

    monkeypatch.setattr(SshFleet, "end", end)
    engine.release(ordered)
    engine.release(replace(ordered, submission=RUN))
    assert given == [95.0, 35.0]  # as long as the run itself takes, and a little more


def test_a_hundred_thousand_hosts_are_named_at_once(tmp_path: Path) -> None:
    """Each is looked up among those before it, and not searched for in all of them."""
    names = [f"h{number}" for number in range(100_000)]
    (tmp_path / "hosts").write_text("\n".join(names))
    assert hosts_named(f"@{tmp_path / 'hosts'}") == tuple(names)


def test_a_host_on_which_nobody_starts_the_run_again_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bare = ReachedHost("h", "boot", (3, 11, 7), "x86_64")
    told = {
        0: replace(bare, job=JobState.RUNNING),
        1: replace(bare, job=JobState.ENDED, job_code=None),
        2: replace(bare, job=JobState.ENDED, job_code=75),
        3: bare,
    }
    monkeypatch.setattr(SshFleet, "look", lambda _fleet, _targets: told)
    engine = SshEngine({}, ("a", "b", "c", "d"), Reach())
    wanted = Submission("ssh", "lm", "0123456789ab", "/shared", 4, 0, ("python", "t.py"))
    found = engine.standing(Ordered(wanted, "0123456789ab", "started", 0))
    assert not found.is_over
    assert [(one.stage.value, one.reason.partition(",")[0]) for one in found.hosts] == [
        ("ready", ""),
        ("gone", "it was rebooted"),
        ("gone", "the run has ended there"),
        ("coming", ""),
    ]
