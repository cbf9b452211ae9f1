"""Good bytes made bad: the ways in which files are torn, flipped, forged, and never expected."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

WORDS = [0, 1, 7, 255, 4095, 2**16, 2**31 - 1, 2**31, 2**32, 2**40 - 1, 2**40, 2**48, 2**53,
         2**62, 2**63 - 1, 2**63, 2**64 - 1, 1_000_000_000, 10_000_001]  # fmt: skip


def _deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


VALUES: list[Any] = [
    None, True, False, -1, 0, 1, 2, 3.5, -0.0, 1e308, float("inf"), float("-inf"), float("nan"),
    2**31, 2**40, 2**53 + 1, 2**62, 2**63 - 1, 2**63, 2**64, -(2**63) - 1, 10**400,
    "", " ", "0", "7", ".", "..", "../..", "../../canary", "/etc/passwd", "a/b", "a\x00b", "a\nb",
    "\x1b[31m", "\ud800", "\udcff", "\N{ARABIC-INDIC DIGIT THREE}", "~nobody-of-that-name/x",
    "x" * 300, "x" * 70_000, "none", "NaN", "|V0", "|O8", "<U999999999", "float32",
    [], {}, [[]], [None], [0, 0], [2**62, 2**62], {"a": 1}, {"$": "array"}, {"$": []},
    _deep(60), _deep(300), _deep(600),
]  # fmt: skip
LITERALS = [b"1e999", b"-1e999", b"NaN", b"Infinity", b"9" * 5000, b"1." + b"0" * 5000 + b"1",
            b"1e-999999999", b"0.000000000000000000000001", b"[" * 100_000, b'{"a":' * 3000,
            b'"\\ud800"', b'"\\u0000"', b"\xff\xfe", b"\x00" * 8, b"{}", b"[]", b"null", b"1_000",
            b"0x10", b"\xef\xbb\xbf", b"\r", b"\n"]  # fmt: skip

Mutator = Callable[[random.Random, bytes], bytes]


def mutate_bytes(rng: random.Random, data: bytes) -> bytes:
    """One to four changes to bytes: flips, words, cuts, repeats, lengths, stray literals."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        rng.choice(_BYTE_MOVES)(rng, changed)
    return bytes(changed)


def _flip(rng: random.Random, data: bytearray) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _word(rng: random.Random, data: bytearray) -> None:
    """An aligned 64-bit word: all that a journal is made of. One that is in use, rather."""
    places = [at for at in range(0, len(data) - 7, 8) if any(data[at : at + 8])]
    if places:
        at = rng.choice(places) if rng.random() < 0.8 else rng.randrange(len(data) // 8) * 8
        data[at : at + 8] = rng.choice(WORDS).to_bytes(8, "little")


def _cut(rng: random.Random, data: bytearray) -> None:
    if data:
        at = rng.randrange(len(data))
        if rng.random() < 0.5:
            del data[at:]
        else:
            del data[at : at + rng.randint(1, 64)]


def _repeat(rng: random.Random, data: bytearray) -> None:
    if data:
        at = rng.randrange(len(data))
        piece = data[at : at + rng.choice((1, 8, 32, 256))]
        data[at:at] = piece * rng.randint(1, 4)


def _literal(rng: random.Random, data: bytearray) -> None:
    at = rng.randint(0, len(data))
    data[at : at + rng.choice((0, 1, 8))] = rng.choice(LITERALS)


_BYTE_MOVES = (_flip, _word, _word, _cut, _repeat, _literal)


def mutate_json(rng: random.Random, data: bytes) -> bytes:
    """Changes to the value that JSON text stands for, written as Python writes it (NaN and all).

    Text that is no JSON, and one time in five any text, is changed as bytes.
    """
    try:
        said = json.loads(data)
    except (ValueError, RecursionError):
        return mutate_bytes(rng, data)
    if rng.random() < 0.2:
        return mutate_bytes(rng, data)
    for _ in range(rng.randint(1, 3)):
        said = _changed(rng, said)
    try:
        return json.dumps(said).encode()
    except (ValueError, RecursionError):
        return data


def _changed(rng: random.Random, said: Any) -> Any:
    """The value with one place in it replaced, removed, moved or doubled."""
    if not isinstance(said, dict | list) or not said:
        return _strange(rng, said)
    here = said
    while True:
        keys: list[Any] = list(here) if isinstance(here, dict) else list(range(len(here)))
        key = rng.choice(keys)
        below = here[key]
        if isinstance(below, dict | list) and below and rng.random() < 0.8:
            here = below
            continue
        move = rng.random()
        if move < 0.15:
            del here[key]
        elif move < 0.25:
            here[key] = here[rng.choice(keys)]
        elif move < 0.35 and isinstance(here, list):
            here.extend([below] * rng.choice((1, 2, 30)))
        elif move < 0.40 and isinstance(here, dict):
            here[rng.choice(["", "..", "a/b", "\ud800", "$", "0"])] = below
        else:
            here[key] = _strange(rng, below)
        return said


def _strange(rng: random.Random, value: Any) -> Any:
    if type(value) is int and rng.random() < 0.5:
        return value + rng.choice((-1, 1, 2, 64, 4096, 2**31, 2**40, 2**62, -(2**63)))
    if type(value) is str and value and rng.random() < 0.3:
        return mutate_bytes(rng, value.encode("utf-8", "surrogatepass")).decode("latin-1")
    return rng.choice(VALUES)


def mutate_lines(rng: random.Random, data: bytes) -> bytes:
    """Lines of JSON: one is changed, doubled, moved or dropped."""
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    move = rng.random()
    if move < 0.6:
        lines[at] = mutate_json(rng, lines[at])
    elif move < 0.7:
        lines.insert(rng.randrange(len(lines)), lines[at])
    elif move < 0.8:
        del lines[at]
    elif move < 0.9:
        other = rng.randrange(len(lines))
        lines[at], lines[other] = lines[other], lines[at]
    else:
        return mutate_bytes(rng, data)
    return b"\n".join(lines)
