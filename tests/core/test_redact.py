"""Secrets on command lines and in what is shown of a run."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.redact import redacted, redacted_text, with_secrets


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("train.py --api-key X1 --lr 1", "train.py --api-key *** --lr 1"),
        ("train.py --api-key=X=1 -v", "train.py --api-key=*** -v"),
        ("env WANDB_API_KEY=abc python", "env WANDB_API_KEY=*** python"),
        ("wandb.api_key=abc +x.token=zz", "wandb.api_key=*** +x.token=***"),
        ("--password 1234 --apiKey zz", "--password *** --apiKey ***"),
        ("--token --verbose x", "--token --verbose x"),
        ("--max-tokens 4096 --tokenizer x", "--max-tokens 4096 --tokenizer x"),
        ("--pad-token 0 --key 1e-3", "--pad-token 0 --key 1e-3"),
        ("--monkey banana --keys a --hotkeys b", "--monkey banana --keys a --hotkeys b"),
        ("--token-file /run/token", "--token-file /run/token"),
        ("git clone https://me:pass@host/x", "git clone https://***@host/x"),
        ("--data s3://bucket/a@b", "--data s3://bucket/a@b"),
        ("hf_abcdefghijklmnopqrstuv", "***"),
        ("ghp_abcdefghijklmnopqrstuv", "***"),
        ("--id=AKIAIOSFODNN7EXAMPLE", "--id=***"),
        ("sk-proj-abcdefghijklmnopqr", "***"),
        ("xoxb-1234-abcdefgh", "***"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.dBjftJeZ4CVP", "***"),
        ("task-abcdefghijklmnopqrstuvwxyz", "task-abcdefghijklmnopqrstuvwxyz"),
    ],
)
def test_a_command_line(line: str, shown: str) -> None:
    assert " ".join(redacted(line.split(" "))) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("WANDB_API_KEY=abc python --token 'a b' x", "WANDB_API_KEY=*** python --token '***' x"),
        ('{"api_key": "X y", "n": 3}', '{"api_key": "***", "n": 3}'),
        ("api_key: X", "api_key: ***"),
        ("get https://h/x?token=abc&n=1", "get https://h/x?token=***&n=1"),
        ("Authorization: Bearer abcdefgh1234", "Authorization: Bearer ***"),
        ("KeyError: 'w'", "KeyError: 'w'"),
        ("missing key: layers.0.w", "missing key: layers.0.w"),
        ("jax.random.normal(key=rng)", "jax.random.normal(key=rng)"),
        ("the token was refused", "the token was refused"),
    ],
)
def test_other_text(text: str, shown: str) -> None:
    assert redacted_text(text) == shown


WORD = st.text(string.ascii_lowercase, min_size=1, max_size=8)
LAST = st.sampled_from(["key", "token", "secret", "password"])
SECRET = st.text(string.ascii_letters + string.digits + "+/=_.~$%^&*!?@:,;", min_size=3).map(
    lambda text: f"q{text}Z"
)


@st.composite
def names(draw: st.DrawFn) -> str:
    """A name whose last word is one of those, as options and variables are written."""
    words = [*draw(st.lists(WORD, max_size=3)), draw(LAST)]
    style = draw(st.sampled_from(["-", "_", ".", "camel", "UPPER"]))
    if style == "camel":
        return words[0] + "".join(map(str.capitalize, words[1:]))
    return "_".join(words).upper() if style == "UPPER" else style.join(words)


@given(names(), SECRET, st.booleans())
def test_no_value_of_such_a_name_is_shown(name: str, secret: str, beside: bool) -> None:
    line = [f"--{name}", secret] if beside else [f"--{name}={secret}"]
    assert redacted(["python", "t.py", *line, "--lr", "0.1"])[2:] == (
        *((f"--{name}", "***") if beside else (f"--{name}=***",)),
        "--lr",
        "0.1",
    )
    assert redacted([f"{name}={secret}"]) == (f"{name}=***",)


@given(names(), st.text(string.ascii_letters + string.digits + "_.~", min_size=3))
def test_nor_in_text(name: str, secret: str) -> None:
    secret = f"q{secret}Z"
    for text in (
        f"run --{name} {secret} on",
        f"x my_{name}={secret}; y",
        f'"{name}": "{secret}"',
    ):
        assert secret not in redacted_text(text)


@given(st.lists(WORD), WORD, st.integers() | st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_and_other_names_stay(words: list[str], plain: str, number: float) -> None:
    for name in ("max-tokens", "tokenizer", "pad-token", "keyboard"):
        line = [*words, f"--{name}", str(number), f"--{name}={number}"]
        assert redacted(line) == tuple(line)
    line = ["--lr", plain, f"--{plain}s", plain]
    assert redacted(line) == tuple(line)


@given(st.text())
def test_any_text_is_taken_and_nothing_is_redacted_twice(text: str) -> None:
    once = redacted_text(text)
    assert redacted_text(once) == once


def test_which_words_hold_secrets() -> None:
    words = ("python", "t.py", "--api-key", "abc", "A_TOKEN=xyz", "--pad-token", "0", "x")
    assert with_secrets(words) == ("--api-key ***", "A_TOKEN=***")
    assert with_secrets(("python", "https://me:pw@host/x")) == ("https://***@host/x",)
    assert with_secrets(()) == ()
