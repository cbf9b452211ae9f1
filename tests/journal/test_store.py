"""The run store: names, places, identities, and private local scratch."""

from __future__ import annotations

import json
import multiprocessing as mp
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ConfigurationError, StoreUnavailable, UnknownRun
from holdfast.journal.names import MAX_NAME_CHARS, check_name, default_name, new_id
from holdfast.journal.scratch import filesystem_of, is_remote, scratch_dir
from holdfast.journal.store import RunStore


@pytest.mark.parametrize(
    "name", ["a", "my-run", "run.2", "_x", "lr+1e-3", "R2D2", "x" * MAX_NAME_CHARS, "0"]
)
def test_good_names(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "it is empty"),
        ("a/b", "contains '/'"),
        ("..", "contains '..'"),
        ("a..b", "contains '..'"),
        (".hidden", "starts with '.'"),
        ("-rf", "starts with '-'"),
        ("a\\b", r"contains '\\\\'"),
        ("a\nb", r"contains '\\n'"),
        ("a\x1b[31mb", r"contains '\\x1b'"),
        ("a\n", r"contains '\\n'"),
        (" a", "contains ' '"),
        ("a ", "contains ' '"),
        ("tränen", r"contains '\\xe4'"),
        ("run@best", "contains '@'"),
        ("x" * (MAX_NAME_CHARS + 1), "has 129 characters"),
    ],
)
def test_bad_names_are_refused_in_one_safe_line(name: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as caught:
        check_name(name)
    message = str(caught.value)
    assert message.isprintable()
    assert len(message) < 250
    assert caught.value.exit_code == 78


@given(st.text(max_size=200))
def test_an_accepted_name_is_one_safe_path_component(name: str) -> None:
    try:
        check_name(name)
    except ConfigurationError:
        return
    assert os.path.normpath(f"/store/{name}") == f"/store/{name}"
    assert Path(f"/store/{name}").parent == Path("/store")
    assert len(os.fsencode(name)) <= 255
    assert name.isprintable()


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["train.py"], "train"),
        (["python", "-u", "examples/lm/train.py", "--steps", "4"], "train"),
        (["python", "-m", "pkg.training"], "training"),
        (["python", "-m", "pkg.__main__"], "pkg"),
        (["/usr/bin/my tool"], "my-tool"),
        (["./träning.py"], "tr-ning"),
        (["..."], "run"),
        ([], "run"),
        (["-c"], "python"),
    ],
)
def test_default_names(command: list[str], name: str) -> None:
    assert default_name(command) == name == check_name(name)


@given(st.lists(st.text(max_size=150), max_size=3))
def test_every_command_gets_a_name_that_is_allowed(command: list[str]) -> None:
    check_name(default_name(command))


def test_ids_differ() -> None:
    assert len({new_id() for _ in range(1000)}) == 1000


def test_create_get_and_list(tmp_path: Path) -> None:
    store = RunStore.at(tmp_path / "deep" / "store")
    assert store.names() == ()
    made = store.create("b", command=["python", "train.py"], requested_unix_ns=5)
    store.create("a")
    assert store.names() == ("a", "b")
    got = store.get("b")
    assert got == made
    assert got.identity.command == ("python", "train.py")
    assert got.identity.requested_unix_ns == 5
    assert got.attempt_dir(7) == store.root / "b" / "attempts" / "0007"
    assert got.path.stat().st_mode & 0o777 == 0o700
    with pytest.raises(ConfigurationError, match="a run named 'b' already exists"):
        store.create("b")


def test_an_unknown_run_names_its_neighbours(tmp_path: Path) -> None:
    store = RunStore.at(tmp_path)
    with pytest.raises(UnknownRun, match=f"there are no runs in {tmp_path} yet; is it the right"):
        store.get("my-run")
    with pytest.raises(UnknownRun, match=r"there is no folder .*nowhere; is it the right store"):
        RunStore.at(tmp_path / "nowhere").get("my-run")
    store.create("my-run")
    with pytest.raises(UnknownRun, match="did you mean my-run"):
        store.get("myrun")
    with pytest.raises(UnknownRun, match="the store has my-run"):
        store.get("xyz")
    with pytest.raises(ConfigurationError, match="cannot be a run's name"):
        store.get("../my-run")


@pytest.mark.real
def test_everyone_opens_the_same_run(tmp_path: Path) -> None:
    context = mp.get_context("fork")
    gate, ids = context.Barrier(6, timeout=60), context.Queue()

    def opener() -> None:
        gate.wait()
        ids.put(RunStore(tmp_path).open("r").identity.run_id)

    players = [context.Process(target=opener) for _ in range(6)]
    for player in players:
        player.start()
    found = {ids.get(timeout=60) for _ in players}
    for player in players:
        player.join()
    assert found == {RunStore(tmp_path).get("r").identity.run_id}


def test_a_creation_that_died_half_way_is_completed(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    store = RunStore(tmp_path)
    assert store.names() == ()
    assert store.open("r") == store.get("r")


def test_damaged_and_newer_runs_do_not_hide_the_others(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    for name in ("good", "newer", "renamed", "torn"):
        store.create(name)
    (tmp_path / "torn" / "run.json").write_text('{"format": 1, "name"')
    newer = tmp_path / "newer" / "run.json"
    newer.write_text(json.dumps(json.loads(newer.read_text()) | {"format": 9}))
    (tmp_path / "renamed").rename(tmp_path / "moved")
    (tmp_path / "stray").write_text("")
    folders, damage = store.runs()
    assert [folder.name for folder in folders] == ["good"]
    assert len(damage) == 3
    with pytest.raises(ConfigurationError, match=r"newer Holdfast \(format 9, this one reads"):
        store.get("newer")
    with pytest.raises(StoreUnavailable, match="damaged"):
        store.get("torn")
    with pytest.raises(StoreUnavailable, match="renamed or copied"):
        store.get("moved")


def test_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert RunStore.at("~/s").root == tmp_path / "s"
    assert RunStore.at("s/../t").root == tmp_path / "t"
    assert RunStore.at(f"file://{tmp_path}/a%20b").root == tmp_path / "a b"
    assert RunStore.at(f"file://localhost{tmp_path}").root == tmp_path


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("s3://KEY:SECRET@bucket/x", "credentials and options by environment variables"),
        ("s3://bucket/x?secret=1", "credentials and options by environment variables"),
        ("s3:///x", "names no place"),
        ("gs://bucket/a/../b", "names no place"),
        ("https://example.org/", "unknown kind 'https'"),
        ("file://elsewhere/x", "no folder of this host"),
        ("file://", "no folder of this host"),
        ("", "name a folder"),
        ("a\0b", "name a folder"),
    ],
)
def test_places_that_cannot_be(place: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        RunStore.at(place)


def test_scratch_is_private_and_ours(tmp_path: Path) -> None:
    uid = os.getuid()
    first = scratch_dir("r-1", bases=[tmp_path])
    assert first == tmp_path / f"holdfast-{uid}" / "r-1"
    assert first.stat().st_mode & 0o777 == 0o700
    (tmp_path / f"holdfast-{uid}").chmod(0o755)
    assert scratch_dir("r-1", bases=[tmp_path]) == first
    assert first.parent.stat().st_mode & 0o777 == 0o700


def test_scratch_falls_back_and_says_why(tmp_path: Path) -> None:
    uid = os.getuid()
    planted, good = tmp_path / "planted", tmp_path / "good"
    for base in (planted, good):
        base.mkdir()
    (planted / f"holdfast-{uid}").symlink_to(good)
    assert scratch_dir("k", bases=[planted, good]) == good / f"holdfast-{uid}" / "k"
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailable, match=r"is not a folder; .* a file, .*; name one with"):
        scratch_dir("k", bases=[planted, tmp_path / "file"])
    (good / f"holdfast-{uid + 1}").mkdir()
    with pytest.raises(StoreUnavailable, match=f"belongs to user id {uid}"):
        scratch_dir("k", bases=[good], uid=uid + 1)


def test_a_configured_scratch_is_created_and_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_SCRATCH", str(tmp_path / "fast" / "disk"))
    assert scratch_dir("k") == tmp_path / "fast" / "disk" / f"holdfast-{os.getuid()}" / "k"


MOUNTS = """\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:30 / /mnt/home rw shared:1 master:2 - nfs4 server:/home rw
31 22 0:31 / /mnt/home/local rw - xfs /dev/sdb rw
32 22 0:32 / /mnt/a\\040b rw - fuse.sshfs x rw
33 22 0:33 / /mnt/twice rw - ext4 /dev/sdc rw
34 33 0:34 / /mnt/twice rw - tmpfs none rw
rubbish
"""


@pytest.mark.parametrize(
    ("path", "kind", "remote"),
    [
        ("/mnt/home/ann", "nfs4", True),
        ("/mnt/home", "nfs4", True),
        ("/mnt/homestead", "ext4", False),
        ("/mnt/home/local/x", "xfs", False),
        ("/mnt/a b/c", "fuse.sshfs", True),
        ("/mnt/twice/x", "tmpfs", False),
    ],
)
def test_which_filesystem(path: str, kind: str, remote: bool) -> None:
    assert filesystem_of(Path(path), MOUNTS) == kind
    assert is_remote(kind) is remote


def test_the_real_mount_table_is_understood() -> None:
    assert filesystem_of(Path("/proc/self")) == "proc"
