"""What is pushed of a working tree."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

import pytest

from holdfast.engines.ssh import archive
from holdfast.engines.ssh.archive import listed, packed
from holdfast.errors import ConfigurationError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    for name in ("train.py", "lib/a.py", "data/x.ckpt", ".venv/bin/python", "__pycache__/a.pyc"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    return root


def no_git(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "_of_git", lambda _root: None)


def test_a_folder_is_pushed_without_what_is_made_again(root, monkeypatch) -> None:
    no_git(monkeypatch)
    assert listed(root) == ["data/x.ckpt", "lib/a.py", "train.py"]
    assert listed(root, ["*.ckpt"]) == ["lib/a.py", "train.py"]
    assert listed(root, ["data", "lib/*"]) == ["train.py"]
    with pytest.raises(ConfigurationError, match="nothing to push"):
        listed(root, ["*"])
    with pytest.raises(ConfigurationError, match="is no folder"):
        listed(root / "train.py")


def test_too_much_is_refused_and_the_largest_are_named(root, monkeypatch) -> None:
    no_git(monkeypatch)
    monkeypatch.setattr(archive, "MOST_BYTES", 1 << 20)
    (root / "data/big").write_bytes(bytes(3 << 20))
    with pytest.raises(ConfigurationError, match=r"more than a working tree.*--exclude.*data \(3"):
        listed(root)
    assert listed(root, ["big"])


def test_the_same_tree_is_the_same_archive(root, tmp_path, monkeypatch) -> None:
    no_git(monkeypatch)
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "lib/link").symlink_to("../train.py")
    first = packed(root, [], tmp_path)
    (root / "train.py").touch()
    assert packed(root, [], tmp_path).digest == first.digest
    with tarfile.open(first.path) as tar:
        modes = {one.name: one.mode for one in tar if not one.issym()}
        assert tar.getmember("lib/link").linkname == "../train.py"
    assert (modes["run.sh"], modes["train.py"]) == (0o755, 0o644)
    assert (first.files, first.unpacked_bytes > 20) == (5, True)
    (root / "train.py").write_text("other")
    assert packed(root, [], tmp_path).digest != first.digest


@pytest.mark.parametrize("target", ["/etc/passwd", "../../x"])
def test_a_link_out_of_the_tree_is_refused(root, tmp_path, monkeypatch, target) -> None:
    no_git(monkeypatch)
    (root / "lib/out").symlink_to(target)
    with pytest.raises(ConfigurationError, match="out of the tree"):
        packed(root, [], tmp_path)
    packed(root, ["lib/out"], tmp_path)


def git(checkout: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(checkout), *words], check=True, capture_output=True)


@pytest.mark.real
def test_of_a_checkout_what_git_does_not_ignore(root: Path) -> None:
    git(root, "init", "-q")
    (root / ".gitignore").write_text(".venv\n__pycache__\n*.ckpt\n")
    git(root, "add", "train.py", "lib/a.py")
    (root / "lib/a.py").unlink()  # deleted, and git does not know
    (root / "n\new.py").write_text("not tracked")
    assert listed(root) == [".gitignore", "n\new.py", "train.py"]


@pytest.mark.real
def test_of_a_checkout_its_submodules_too(tmp_path: Path) -> None:
    root, sub = tmp_path / "root", tmp_path / "root" / "third" / "sub"
    for checkout in (sub, root):
        checkout.mkdir(exist_ok=True, parents=True)
        git(checkout, "init", "-q")
        (checkout / ".gitignore").write_text("*.ckpt\n")
        (checkout / "a.py").write_text("code")
        (checkout / "a.ckpt").write_text("ignored")
        git(checkout, "add", ".")
        git(checkout, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first")
    own = [".gitignore", "a.py"]
    assert listed(root) == [*own, *(f"third/sub/{name}" for name in own)]
    (root / "third" / "empty").mkdir()  # as git leaves one whose content nobody asked for
    assert len(listed(root)) == 4
