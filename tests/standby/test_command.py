"""Which commands can have a standby."""

from __future__ import annotations

import pytest

from holdfast.standby.command import INTERPRETER, read, standby_argv


@pytest.mark.parametrize(
    ("line", "flags", "form", "target"),
    [
        ("python train.py --x 1", "", "script", "train.py"),
        ("/opt/venv/bin/python3.12 -u a/train.py -m", "-u", "script", "a/train.py"),
        ("python -m package.train -c", "", "module", "package.train"),
        ("python -mtrain", "", "module", "train"),
        ("python3 -uBm train x", "-uB", "module", "train"),
        ("python -c print(1) -E", "", "code", "print(1)"),
        ("python -Wignore -W error -Xdev t.py", "-Wignore -W error -Xdev", "script", "t.py"),
        ("python -OOWerror t.py", "-OOWerror", "script", "t.py"),
        ("python --check-hash-based-pycs never a", "--check-hash-based-pycs never", "script", "a"),
    ],
)  # fmt: skip
def test_python_commands(line: str, flags: str, form: str, target: str) -> None:
    words = line.split()
    command = read(words)
    assert not isinstance(command, str)
    assert (" ".join(command.flags), command.form, command.target) == (flags, form, target)
    assert standby_argv(words) == ([words[0], "-I", "-S", INTERPRETER], "")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", "does not start with a Python"),
        ("bash -c python", "does not start with a Python"),
        ("env A=1 python t.py", "does not start with a Python"),
        ("torchrun t.py", "does not start with a Python"),
        ("./train.py", "does not start with a Python"),
        ("pythonista t.py", "does not start with a Python"),
        ("python", "from the terminal"),
        ("python -u", "from the terminal"),
        ("python -", "standard input"),
        ("python -i t.py", "interactive"),
        ("python -I t.py", "(-I)"),
        ("python -uE t.py", "(-E)"),
        ("python -S t.py", "(-S)"),
        ("python -V", "-V"),
        ("python --version", "--version"),
        ("python -m", "lacks its argument"),
        ("python -X", "lacks its argument"),
    ],
)
def test_other_commands_start_cold(line: str, reason: str) -> None:
    argv, why = standby_argv(line.split())
    assert argv is None
    assert reason in why
