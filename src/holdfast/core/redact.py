"""Command lines and other text without the secrets in them.

A value is a secret where the last word of its option's or variable's name says so (`--api-key X`,
`WANDB_API_KEY=X`), where it has the shape of a known kind of token, or as the user's part of a URL.
Numbers behind a name that ends in key or token stay: `--pad-token 0` is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

STARS = "***"
_MAY_BE_NUMBERS = ("key", "token")
# `api_key`, `--api-key`, `wandb.api_key`, `apiKey`, `API_KEY`, and never `monkey` or `tokenizer`.
_LAST_WORD = (
    "(?i:token|secret|password|passwd|passphrase|(?:api|access|auth|private)key)"
    "|(?<![A-Za-z])(?i:key)|(?<=[A-Za-z0-9])Key"
)
_NAME = rf"[A-Za-z0-9_.+-]*(?:{_LAST_WORD})"
_NAMED = re.compile(_NAME)
_QUOTED_OR_PLAIN = r"""\"(?:[^"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|[^\s"'&,;)}\]]+"""
_IN_TEXT = re.compile(
    rf"(?<![A-Za-z0-9_.+-])(?P<name>{_NAME})"
    rf"(?P<between>(?P<quote>[\"'])?\s*[=:]\s*|[ \t]+)(?P<value>{_QUOTED_OR_PLAIN})"
)
_NUMBER = re.compile(r"[+-]?[0-9][0-9_]*(\.[0-9]*)?([eE][+-]?[0-9]+)?")
_TOKENS = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"hf_[A-Za-z0-9]{16,}"  # Hugging Face
    r"|gh[a-z]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{16,}|glpat-[A-Za-z0-9_-]{16,}"
    r"|A[A-Z]IA[A-Z0-9]{16}"  # AWS
    r"|AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9_-]{16,}"  # Google
    r"|sk-[A-Za-z0-9_-]{16,}"  # OpenAI, Anthropic
    r"|xox[a-z]-[A-Za-z0-9-]{8,}"  # Slack
    r"|eyJ[A-Za-z0-9_-]{6,4096}\.[A-Za-z0-9_-]{6,4096}\.[A-Za-z0-9_-]*"  # JSON Web Tokens
    r")|(?<=[Bb]earer )[A-Za-z0-9._~+/=-]{8,}"
)
_USERINFO = re.compile(r"(?P<scheme>(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]*://)[^\s/?#\"'<>]*@")


def redacted(words: Iterable[str]) -> tuple[str, ...]:
    """The words of a command line, without secrets."""
    found: list[str] = []
    name = ""  # of the option whose value comes next
    for word in words:
        found.append(_value(name, word) if name and not word.startswith("--") else _word(word))
        option = word.lstrip("-")
        name = option if word.startswith("-") and _NAMED.fullmatch(option) else ""
    return tuple(found)


def with_secrets(words: Sequence[str]) -> tuple[str, ...]:
    """Which words of a command line hold secrets, as they are shown: `--api-key ***`, `KEY=***`."""
    found = []
    for place, (word, shown) in enumerate(zip(words, redacted(words), strict=True)):
        if word != shown:
            found.append(f"{words[place - 1]} {shown}" if shown == STARS and place else shown)
    return tuple(found)


def redacted_text(text: str) -> str:
    """Any text (a shell command, a line of a log, a sentence), without secrets."""
    without = _IN_TEXT.sub(_named_value, text)
    return _TOKENS.sub(STARS, _USERINFO.sub(rf"\g<scheme>{STARS}@", without))


def _word(word: str) -> str:
    """One word of a command line: `--api-key=X` and `key=X` as a whole, whatever X holds."""
    name, equals, value = word.partition("=")
    if equals and _NAMED.fullmatch(name):
        return f"{name}={_value(name, value)}"
    return redacted_text(word)


def _named_value(found: re.Match[str]) -> str:
    name, between, quote, value = found.group("name", "between", "quote", "value")
    is_option = name.startswith("-")
    separator = between.strip("\"' \t")
    if not separator and (not is_option or value.startswith("-")):
        return found[0]  # words beside each other
    if separator == ":" and not quote and name.isalpha():
        return found[0]  # "missing key: x"
    if name == "key" and separator == "=":
        return found[0]  # as Python code has it everywhere
    bare = value.strip("\"'")
    return f"{name}{between}{value.replace(bare, _value(name, bare))}" if bare else found[0]


def _value(name: str, value: str) -> str:
    is_number = _NUMBER.fullmatch(value) and name.lower().endswith(_MAY_BE_NUMBERS)
    return value if is_number or not value else STARS
